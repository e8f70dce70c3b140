"""Objects are as large as goes out in two seconds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tidelog import limits
from tidelog.limits import MIB
from tidelog.ports import Chunk
from tidelog.shipping.uploads import Uploads
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore


class SlowStore(SimulatedObjectStore):
    """Passes so many bytes a second."""

    bytes_per_s = MIB

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        super().put(name, chunks)
        clock = self.bucket.clock
        assert isinstance(clock, SimulatedClock)
        clock.advance(1_000_000 * sum(map(len, chunks)) // self.bytes_per_s)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore(SimulatedBucket(SimulatedClock(), Random(1)), "slow")


def test_a_slow_line_gets_small_objects(store: SlowStore) -> None:
    uploads = Uploads(store, "db", 0, store.bucket.clock)
    assert uploads.bytes_at_once == limits.SHIPPED_OBJECT_BYTES_MAX
    for _ in range(3):
        uploads.put("x", bytes(uploads.bytes_at_once))
    assert uploads.bytes_at_once == pytest.approx(2 * MIB, rel=0.01)
    uploads.put("small", b"says nothing of the line")
    assert uploads.bytes_at_once == pytest.approx(2 * MIB, rel=0.01)

    store.bytes_per_s = 100 * MIB
    for _ in range(12):
        uploads.put("x", bytes(uploads.bytes_at_once))
    assert uploads.bytes_at_once == limits.SHIPPED_OBJECT_BYTES_MAX


def test_what_fails_is_tried_in_smaller_pieces(store: SlowStore) -> None:
    """A put has only so much time: on a line that is too slow for 32 MiB nothing would ever be shipped."""
    uploads = Uploads(store, "db", 0, store.bucket.clock)
    sizes = []
    for _ in range(10):
        sizes.append(uploads.bytes_at_once)
        store.fail("put")
        with pytest.raises(OSError, match="simulated"):
            uploads.put("x", bytes(uploads.bytes_at_once))
    assert sizes[1] == sizes[0] // 2
    assert uploads.bytes_at_once == limits.SHIPPED_OBJECT_BYTES_MIN


def test_counts_go_on_under_the_next_lease(store: SlowStore) -> None:
    before = Uploads(store, "db", 0, store.bucket.clock)
    before.put("x", b"123")
    after = Uploads(store, "db", 7, store.bucket.clock, before)
    after.put("x", b"45")
    assert (after.objects_put, after.bytes_put) == (2, 5)
