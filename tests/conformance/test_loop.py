"""What `ports.Loop` promises, for the loops of asyncio and uvloop and the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tidelog.ports import Loop
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import ProcessLoop, SimulatedLoop

Run = Callable[[float], None]
"""Let so many seconds pass."""


@pytest.fixture(params=["asyncio", "uvloop", "simulated", "process"])
def loop_and_run(request: pytest.FixtureRequest) -> Iterator[tuple[Loop, Run]]:
    if request.param in ("simulated", "process"):
        world = SimulatedLoop(SimulatedClock())
        yield (world if request.param == "simulated" else ProcessLoop(world)), world.run
    else:
        loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
        yield loop, lambda seconds: loop.run_until_complete(asyncio.sleep(seconds))
        loop.close()


def test_a_call_happens_later_and_not_inside(loop_and_run: tuple[Loop, Run]) -> None:
    loop, run = loop_and_run
    happened: list[str] = []

    loop.call_soon(lambda: happened.append("soon"))
    loop.call_later(0, lambda: happened.append("later"))
    assert happened == []
    run(0.01)

    assert sorted(happened) == ["later", "soon"]


def test_calls_happen_in_the_order_in_which_they_were_asked_for(loop_and_run: tuple[Loop, Run]) -> None:
    loop, run = loop_and_run
    happened: list[int] = []

    for n in range(100):
        loop.call_soon(lambda n=n: happened.append(n))  # type: ignore[misc]
    run(0.01)

    assert happened == list(range(100))


def test_timers_happen_in_the_order_of_their_moments(loop_and_run: tuple[Loop, Run]) -> None:
    loop, run = loop_and_run
    happened: list[int] = []

    for n in (3, 1, 4, 2):
        loop.call_later(n * 0.01, lambda n=n: happened.append(n))  # type: ignore[misc]
    run(0.1)

    assert happened == [1, 2, 3, 4]


def test_a_cancelled_call_does_not_happen(loop_and_run: tuple[Loop, Run]) -> None:
    loop, run = loop_and_run
    happened: list[str] = []
    soon = loop.call_soon(lambda: happened.append("soon"))
    later = loop.call_later(0.01, lambda: happened.append("later"))
    kept = loop.call_later(0.01, lambda: happened.append("kept"))

    soon.cancel()
    later.cancel()
    later.cancel()
    run(0.05)
    kept.cancel()

    assert happened == ["kept"]


def test_a_call_can_ask_for_another(loop_and_run: tuple[Loop, Run]) -> None:
    loop, run = loop_and_run
    happened: list[int] = []

    def happen() -> None:
        happened.append(len(happened))
        if len(happened) < 5:
            loop.call_soon(happen)

    loop.call_soon(happen)
    run(0.01)

    assert happened == [0, 1, 2, 3, 4]
