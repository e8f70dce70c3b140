"""Runs coroutines of tests: with a bound, and a look at what is left of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec

SECONDS_MAX: Final = 30.0

Arguments = ParamSpec("Arguments")


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await work
        gc.collect()
        await asyncio.sleep(0.02)
        assert asyncio.all_tasks() - {asyncio.current_task()} == set()

    asyncio.run(bounded())


def run_bounded(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Makes a test of one that is a coroutine."""

    @wraps(test)
    def run_it(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        run(test(*arguments, **named))

    return run_it
