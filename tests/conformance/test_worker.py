"""What `ports.Worker` promises, for the thread of a server and the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog.ports import Worker
from tidelog.server.work_thread import WorkThread
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.worker import SimulatedWorker

Run = Callable[[], None]
"""Let the loop run for a while."""


class Threads:
    """A worker, and the loop that it tells."""

    def __init__(self, worker: Worker, run: Run, errors: list[BaseException]) -> None:
        self.worker = worker
        self.run = run
        self.errors = errors
        """What was raised on the loop."""


@pytest.fixture(params=["thread", "simulated"])
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    errors: list[BaseException] = []
    if request.param == "simulated":
        world = SimulatedLoop(SimulatedClock())

        def run() -> None:
            try:
                world.run(1)
            except ZeroDivisionError as error:
                errors.append(error)
                run()

        yield Threads(SimulatedWorker(world), run, errors)
        return
    loop = asyncio.new_event_loop()

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        errors.append(context["exception"])

    loop.set_exception_handler(note)
    thread = WorkThread(loop)
    yield Threads(thread, lambda: loop.run_until_complete(asyncio.sleep(0.2)), errors)
    thread.close()
    loop.close()


def test_the_loop_is_told_later(threads: Threads) -> None:
    happened: list[str] = []
    threads.worker.submit(lambda: happened.append("work"), lambda: happened.append("done"))
    assert "done" not in happened
    threads.run()
    assert happened == ["work", "done"]


def test_work_is_done_in_the_order_in_which_it_was_submitted(threads: Threads) -> None:
    worked: list[int] = []
    done: list[int] = []
    for n in range(20):
        threads.worker.submit(lambda n=n: worked.append(n), lambda n=n: done.append(n))  # type: ignore[misc]
    threads.run()
    assert worked == done == list(range(20))


def test_work_may_be_submitted_when_other_work_is_done(threads: Threads) -> None:
    happened: list[int] = []

    def again() -> None:
        if len(happened) < 3:
            threads.worker.submit(lambda: happened.append(len(happened)), again)

    again()
    threads.run()
    assert happened == [0, 1, 2]


def test_an_error_of_the_work_is_raised_on_the_loop(threads: Threads) -> None:
    happened: list[str] = []
    threads.worker.submit(lambda: [][1 // 0], lambda: happened.append("done"))
    threads.worker.submit(lambda: None, lambda: happened.append("next"))
    threads.run()
    assert [type(error) for error in threads.errors] == [ZeroDivisionError]
    assert happened == ["next"]
