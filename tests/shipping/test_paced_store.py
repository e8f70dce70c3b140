"""A store with a limit of bytes per second: how long puts wait, and which."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.shipping.paced_store import PacedStore
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore


class Pace:
    """A store that takes 1000 bytes a second, on a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(monotonic_us=5_000_000)
        self.bucket = SimulatedBucket(self.clock, Random(0))
        self.client: SimulatedObjectStore = self.bucket.client()
        self.slept: list[float] = []
        self.store = PacedStore(self.client, 1000, self.clock, self.sleep)
        self._count = 0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(round(seconds * 1_000_000))

    def put(self, size: int) -> None:
        self._count += 1
        self.store.put(f"object-{self._count:04}", [bytes(size // 2), bytes(size - size // 2)])


@pytest.fixture
def pace() -> Pace:
    return Pace()


def test_the_first_put_does_not_wait_however_large(pace: Pace) -> None:
    pace.put(60_000)
    assert pace.slept == []


def test_the_next_put_waits_for_what_the_last_one_cost(pace: Pace) -> None:
    pace.put(3000)
    pace.put(500)
    pace.put(100)
    assert pace.slept == [3.0, 0.5]


def test_time_that_passes_anyway_counts(pace: Pace) -> None:
    pace.put(3000)
    pace.clock.advance(2_000_000)
    pace.put(500)
    pace.clock.advance(10_000_000)
    pace.put(500)
    assert pace.slept == [1.0]


def test_silence_is_not_saved_up(pace: Pace) -> None:
    pace.clock.advance(3_600_000_000)
    pace.put(1000)
    pace.put(1000)
    assert pace.slept == [1.0]


def test_a_failed_put_costs_the_same(pace: Pace) -> None:
    pace.client.fail("put")
    with pytest.raises(OSError, match="simulated"):
        pace.put(2000)
    pace.put(1)
    assert pace.slept == [2.0]


def test_over_time_the_rate_holds(pace: Pace) -> None:
    rng = Random(9)
    began_us, sent, largest = pace.clock.monotonic_us(), 0, 0
    for _ in range(300):
        size = rng.choice([0, 1, 10, 500, 20_000])
        pace.clock.advance(rng.randrange(200_000))
        pace.put(size)
        sent, largest = sent + size, max(largest, size)
        assert sent <= 1000 * (pace.clock.monotonic_us() - began_us) / 1_000_000 + largest + 1


def test_reading_and_deleting_cost_nothing(pace: Pace) -> None:
    pace.put(5000)
    name = pace.store.list("")[0].name
    assert (len(pace.store.get(name)), pace.store.size(name), pace.store.read(name, 0, 2)) == (5000, 5000, b"\0\0")
    assert pace.store.folders("") == []
    pace.store.delete(name)
    assert pace.bucket.names() == []
    assert pace.slept == []


def test_a_sleep_may_give_up(pace: Pace) -> None:
    def stop(seconds: float) -> None:
        raise InterruptedError

    store = PacedStore(pace.client, 1000, pace.clock, stop)
    store.put("first", [bytes(5000)])
    with pytest.raises(InterruptedError):
        store.put("second", [b"x"])
    assert pace.bucket.names() == ["first"]


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_is_positive(pace: Pace, rate: int) -> None:
    with pytest.raises(ValueError, match="sends nothing"):
        PacedStore(pace.client, rate, pace.clock, pace.sleep)
