"""Signals while a loop runs: the work ends in order first, unless a function of the caller is running."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tidelog.client.interruption import InterruptibleLoop


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def send(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


async def work(ends: list[str], *, cleaning_s: float = 0.0) -> None:
    try:
        asyncio.get_running_loop().call_later(0.02, send)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(cleaning_s)
        ends.append("in order")


def test_a_signal_ends_the_work_in_order(loop: asyncio.AbstractEventLoop) -> None:
    before = signal.getsignal(signal.SIGINT)
    ends: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        InterruptibleLoop(loop).run(work(ends, cleaning_s=0.05))
    assert ends == ["in order"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_does_not_wait(loop: asyncio.AbstractEventLoop) -> None:
    ends: list[str] = []
    timer = threading.Timer(0.2, send)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        InterruptibleLoop(loop).run(work(ends, cleaning_s=60))
    timer.join()
    assert ends == []


def test_a_signal_interrupts_a_function_of_the_caller(loop: asyncio.AbstractEventLoop) -> None:
    interruptible = InterruptibleLoop(loop)
    ends: list[str] = []

    async def call() -> None:
        try:
            with interruptible.calling():
                timer = threading.Timer(0.05, send)
                timer.start()
                time.sleep(60)
        finally:
            await asyncio.sleep(0)
            ends.append("in order")

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interruptible.run(call())
    assert time.monotonic() - began < 30
    assert ends == ["in order"]


def test_a_signal_that_comes_too_late_still_counts(loop: asyncio.AbstractEventLoop) -> None:
    async def ignore() -> str:
        send()
        return "done"

    with pytest.raises(KeyboardInterrupt):
        InterruptibleLoop(loop).run(ignore())


def test_what_the_work_raises_is_raised(loop: asyncio.AbstractEventLoop) -> None:
    async def fail() -> None:
        raise ArithmeticError("broken")

    async def cancel() -> None:
        raise asyncio.CancelledError

    interruptible = InterruptibleLoop(loop)
    with pytest.raises(ArithmeticError, match="broken"):
        interruptible.run(fail())
    with pytest.raises(asyncio.CancelledError):
        interruptible.run(cancel())
    assert interruptible.run(asyncio.sleep(0, "fine")) == "fine"


def test_in_another_thread_signals_are_nobodys_business(loop: asyncio.AbstractEventLoop) -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(InterruptibleLoop(loop).run(asyncio.sleep(0, "fine"))))
    thread.start()
    thread.join()
    assert found == ["fine"]
