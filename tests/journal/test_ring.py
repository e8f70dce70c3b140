"""The ring against a naive model: everything that was added, as bytes of files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.ids import Lsn, ShardId
from tidelog.journal.ring import Ring
from tidelog.journal.segment import FilePosition

SHARDS = 2
FIRST = ShardId(0)


def add(ring: Ring, at: int, *chunks: bytes, segment: int = 0, shard: int = 0) -> None:
    ring.add(ShardId(shard), FilePosition(Lsn(segment), at), list(chunks))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, list[bytes]]]:
    """Batches as a writer makes them: (shard, segment, position, chunks), each where the one before ended."""
    ends = [(0, 0)] * SHARDS
    history = []
    for _ in range(draw(st.integers(0, 25))):
        shard = draw(st.integers(0, SHARDS - 1))
        segment, at = ends[shard]
        if draw(st.integers(0, 4)) == 0:
            segment, at = segment + draw(st.integers(1, 5)), 0
        chunks = draw(st.lists(st.binary(max_size=300), max_size=4))
        history.append((shard, segment, at, chunks))
        ends[shard] = (segment, at + sum(map(len, chunks)))
    return history


@given(histories(), st.integers(0, 4000), st.data())
@settings(max_examples=150)
def test_the_ring_has_the_bytes_that_were_written_or_says_that_it_does_not(
    history: list[tuple[int, int, int, list[bytes]]], bytes_max: int, data: st.DataObject
) -> None:
    ring = Ring(SHARDS, bytes_max)
    files: dict[tuple[int, int], bytes] = {}
    for shard, segment, at, chunks in history:
        add(ring, at, *chunks, segment=segment, shard=shard)
        file = files.get((shard, segment), b"")
        assert len(file) == at
        files[shard, segment] = file + b"".join(chunks)
    assert ring.bytes_held <= bytes_max
    for (shard, segment), file in files.items():
        start = data.draw(st.integers(0, len(file)))
        end = data.draw(st.integers(start + 1, len(file) + 2))
        found = ring.read(ShardId(shard), Lsn(segment), start, end)
        assert found is None or found == file[start:end]
        if end > len(file):
            assert found is None
        if bytes_max == 4000 and sum(len(chunk) + 200 for _, _, _, chunks in history for chunk in chunks) <= 4000:
            assert found is not None or end > len(file)


def test_everything_is_there_while_there_is_room() -> None:
    ring = Ring(1)
    add(ring, 0, b"abc", b"def")
    add(ring, 6, b"ghi")
    assert ring.read(FIRST, Lsn(0), 0, 9) == b"abcdefghi"
    assert ring.read(FIRST, Lsn(0), 1, 8) == b"bcdefgh"
    assert ring.read(FIRST, Lsn(0), 3, 6) == b"def"


def test_the_oldest_chunk_goes_first_over_all_shards() -> None:
    ring = Ring(2, 700)
    add(ring, 0, b"a" * 100, shard=0)
    add(ring, 0, b"b" * 100, shard=1)
    assert ring.read(ShardId(0), Lsn(0), 0, 100) is not None
    add(ring, 100, b"c" * 100, shard=1)
    assert ring.read(ShardId(0), Lsn(0), 0, 100) is None
    assert ring.read(ShardId(1), Lsn(0), 0, 200) == b"b" * 100 + b"c" * 100
    assert ring.bytes_held == 600


def test_a_read_that_reaches_back_before_the_oldest_finds_nothing() -> None:
    ring = Ring(1, 500)
    add(ring, 0, b"a" * 100)
    add(ring, 100, b"b" * 100)
    assert ring.read(FIRST, Lsn(0), 99, 150) is None
    assert ring.read(FIRST, Lsn(0), 100, 150) == b"b" * 50


def test_a_segment_is_not_continued_by_the_next() -> None:
    ring = Ring(1)
    add(ring, 0, b"a" * 10, segment=0)
    add(ring, 0, b"b" * 10, segment=7)
    assert ring.read(FIRST, Lsn(0), 5, 11) is None
    assert ring.read(FIRST, Lsn(7), 0, 10) == b"b" * 10
    assert ring.read(FIRST, Lsn(3), 0, 1) is None


def test_bytes_between_two_chunks_are_not_made_up() -> None:
    ring = Ring(1)
    add(ring, 0, b"a" * 10)
    add(ring, 20, b"b" * 10)
    assert ring.read(FIRST, Lsn(0), 5, 25) is None
    assert ring.read(FIRST, Lsn(0), 15, 25) is None
    assert ring.read(FIRST, Lsn(0), 20, 25) == b"b" * 5


def test_a_chunk_larger_than_the_ring_is_not_kept() -> None:
    ring = Ring(1, 1000)
    add(ring, 0, b"x" * 2000)
    assert ring.bytes_held == 0
    assert ring.read(FIRST, Lsn(0), 0, 10) is None


@pytest.mark.parametrize("size", [1, 50])
def test_many_small_chunks_are_bounded_by_what_they_cost_and_not_by_their_bytes(size: int) -> None:
    ring = Ring(1, 100_000)
    for number in range(10_000):
        add(ring, number * size, b"x" * size)
    assert ring.bytes_held <= 100_000
    held = 100_000 // (size + 200)
    assert ring.read(FIRST, Lsn(0), (10_000 - held) * size, 10_000 * size) == b"x" * size * held
    assert ring.read(FIRST, Lsn(0), (10_000 - held - 1) * size, 10_000 * size) is None
    kept = ring._shards[0]
    assert len(kept._chunks) < 4 * held + 2100, "what has left is let go"
