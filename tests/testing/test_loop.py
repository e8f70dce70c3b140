"""How a test lets simulated time pass, and what a process that is stopped or dead misses."""

from __future__ import annotations

import pytest

from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import ProcessLoop, SimulatedLoop


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(SimulatedClock())


def test_time_jumps_from_call_to_call(loop: SimulatedLoop) -> None:
    moments: list[int] = []
    for seconds in (3600.0, 0.000001, 60.0):
        loop.call_later(seconds, lambda: moments.append(loop.clock.monotonic_us()))

    loop.run(4000)

    assert moments == [1, 60_000_000, 3_600_000_000]
    assert loop.clock.monotonic_us() == 4_000_000_000
    assert loop.calls == 3


def test_a_run_ends_when_its_time_is_over(loop: SimulatedLoop) -> None:
    happened: list[str] = []
    loop.call_later(1.0, lambda: happened.append("just in time"))
    loop.call_later(1.000001, lambda: happened.append("too late"))

    loop.run(1.0)
    assert happened == ["just in time"]
    assert "1000000 µs, 1 calls ahead" in repr(loop)

    loop.run(1.0)
    assert happened == ["just in time", "too late"]


def test_calls_of_one_moment_happen_in_the_order_of_asking(loop: SimulatedLoop) -> None:
    happened: list[str] = []
    loop.call_later(1.0, lambda: happened.append("first"))
    loop.call_at(1_000_000, lambda: happened.append("second"))
    loop.clock.advance(1_000_000)
    loop.call_soon(lambda: happened.append("third"))

    loop.run(0)

    assert happened == ["first", "second", "third"]


def test_a_moment_that_has_passed_is_now(loop: SimulatedLoop) -> None:
    loop.clock.advance(100)
    moments: list[int] = []

    loop.call_at(7, lambda: moments.append(loop.clock.monotonic_us()))
    loop.call_later(-5.0, lambda: moments.append(loop.clock.monotonic_us()))
    loop.run(1)

    assert moments == [100, 100]


def test_waiting_until_something_is_the_case(loop: SimulatedLoop) -> None:
    happened: list[str] = []
    loop.call_later(1.0, lambda: happened.append("a"))
    loop.call_later(2.0, lambda: happened.append("b"))

    assert loop.run_until(lambda: "a" in happened)
    assert loop.clock.monotonic_us() == 1_000_000
    assert not loop.run_until(lambda: "c" in happened, seconds_max=9.0)
    assert loop.clock.monotonic_us() == 10_000_000
    assert happened == ["a", "b"]


def test_waiting_until_nothing_is_left(loop: SimulatedLoop) -> None:
    def ask_again() -> None:
        loop.call_later(1.0, lambda: None)

    loop.call_later(1.0, ask_again)
    loop.call_later(9.0, lambda: None).cancel()

    loop.run_until_idle()

    assert loop.clock.monotonic_us() == 2_000_000


def test_what_repeats_without_end_is_noticed(loop: SimulatedLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="more than 1000 calls"):
        loop.run(1.0, calls_max=1000)
    again()
    with pytest.raises(RuntimeError, match="more than 1000 calls"):
        loop.run_until(lambda: False, calls_max=1000)
    again()
    with pytest.raises(RuntimeError, match="more than 1000 calls"):
        loop.run_until_idle(calls_max=1000)


def test_an_error_of_a_call_reaches_the_test(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    loop.call_soon(fail)

    with pytest.raises(ZeroDivisionError):
        loop.run(1.0)


# --- a process --------------------------------------------------------------------------------------------------


def test_a_stopped_process_does_everything_later(loop: SimulatedLoop) -> None:
    process, other = ProcessLoop(loop), ProcessLoop(loop)
    happened: list[tuple[str, int]] = []

    def note(what: str) -> None:
        happened.append((what, loop.clock.monotonic_us()))

    process.call_later(1.0, lambda: note("timer"))
    process.call_soon(lambda: note("call"))
    cancelled = process.call_later(0.5, lambda: note("cancelled"))
    process.call_later(5.0, lambda: note("not due before"))
    other.call_later(1.0, lambda: note("other"))
    process.stop()
    loop.run(2.0)
    assert happened == [("other", 1_000_000)]

    cancelled.cancel()
    process.go_on()
    loop.run(4.0)

    assert happened[1:] == [("call", 2_000_000), ("timer", 2_000_000), ("not due before", 5_000_000)]


def test_a_dead_process_does_nothing(loop: SimulatedLoop) -> None:
    process = ProcessLoop(loop)
    happened: list[str] = []
    process.call_soon(lambda: happened.append("before"))
    process.stop()
    loop.run(1.0)
    process.call_later(1.0, lambda: happened.append("timer"))

    process.die()
    process.call_soon(lambda: happened.append("after"))
    process.go_on()
    loop.run(9.0)

    assert happened == []
