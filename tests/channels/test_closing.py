"""Closing leaves nothing open: whenever the one who closes is cancelled, and whatever calls are under way meanwhile.

A connection that is left open is found when it is collected, and fails its test (`leftovers.py`).
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.channels.servers import ChannelServer
from tidelog.address import ServerAddress
from tidelog.channels import Channels, message_of
from tidelog.channels.closing import close_client, finished
from tidelog.redis_client import connect_calls

STEPS_MAX = 300
EXPIRE_MS = 60_000


@pytest.fixture
def unclosed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was collected and not closed."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: found.append(str(told.exc_value)))
    return found


async def let_run(task: asyncio.Task[Any], steps: int) -> bool:
    """Let a task do so many steps, or a few more; whether it has ended."""
    for step in range(steps):
        await asyncio.sleep(0.001 if step % 2 else 0)  # what comes over a socket takes a moment
        if task.done():
            return True
    return task.done()


def at_every_step(work: Callable[[int], Coroutine[Any, Any, bool]], unclosed: list[str]) -> None:
    """Try something that happens to a task after so many steps, until it has done them all."""
    for steps in range(STEPS_MAX):
        has_ended = asyncio.run(work(steps))
        gc.collect()
        assert unclosed == [], f"after {steps} steps"
        if has_ended:
            return
    pytest.fail("the work has no end")


async def use(channels: Channels) -> None:
    await channels.subscribe("orders", "me", expire_ms=EXPIRE_MS)
    await channels.publish("orders", message_of("m1", 1), expire_ms=EXPIRE_MS)
    await channels.fetch_when_there("orders", "me", timeout_s=5)


def test_whoever_uses_and_closes_channels_may_be_cancelled_at_any_step(
    server: ChannelServer, unclosed: list[str]
) -> None:
    async def use_and_close() -> None:
        async with server.channels() as channels:
            await use(channels)

    async def cancelled_after(steps: int) -> bool:
        task = asyncio.ensure_future(use_and_close())
        has_ended = await let_run(task, steps)
        task.cancel()
        await asyncio.wait([task])
        return has_ended

    at_every_step(cancelled_after, unclosed)


def test_channels_are_closed_while_others_use_them(server: ChannelServer, unclosed: list[str]) -> None:
    async def closed_after(steps: int) -> bool:
        channels = server.channels()
        task = asyncio.ensure_future(use(channels))
        has_ended = await let_run(task, steps)
        await channels.aclose()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it may have failed, or not
        return has_ended

    at_every_step(closed_after, unclosed)


def test_a_client_of_a_cluster_that_learns_the_slots_anew_is_closed(server: ChannelServer) -> None:
    """redis-py's own takes itself for closed then."""

    async def close() -> None:
        client = connect_calls(ServerAddress.parse(server.url, takes_cluster=True))
        await client.get("key")
        if server.is_cluster:
            await client.aclose()
            await client.nodes_manager.initialize()  # as a call does that was under way
        await close_client(client)

    asyncio.run(close())


# --- finished ---------------------------------------------------------------------------------------------------------


def test_work_is_finished_although_its_caller_is_cancelled_more_than_once() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append("work")

    async def run() -> None:
        task = asyncio.ensure_future(finished(work()))
        for _ in range(3):
            await asyncio.sleep(0.005)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["work"]

    asyncio.run(run())


def test_an_error_of_finished_work_is_its_callers() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        asyncio.run(finished(work()))
