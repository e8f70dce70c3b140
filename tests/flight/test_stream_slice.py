"""Slices: the entries of any range, in pieces that are bounded, whatever the nodes look like."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from tests.streams.cold_nodes import chilled
from tidelog import limits
from tidelog.flight.nodes import PACKED, SCHEMA, unpacked
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.flight.stream_slice import batches, first_offset, make_slice, packed_batches
from tidelog.streams.node import FIELDS, TAGGED, pack_id
from tidelog.streams.stream import Stream


def made(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Sealed and active nodes, cold ones, holes, evicted entries, both kinds."""
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 7)
    stream = Stream()
    for ms in range(1, 40):
        count = rng.randrange(1, 6)
        stream.append(ms, 0, rng.choice([TAGGED, FIELDS]), [b"t%d" % ms] * count, [rng.randbytes(5)] * count)
    stream.delete(rng.sample(range(1, stream.next), 12))
    stream.evict(rng.randrange(1, 20))
    for node in stream.sealed:
        if rng.random() < 0.5:
            chilled(node)
    return stream


def rows_of(found: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for batch in found:
        assert batch.schema == SCHEMA
        rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows


def read(stream: Stream, request: ReadRequest) -> tuple[list[tuple[object, ...]], int]:
    """The rows of a range, and how many slices it took. Packed nodes have the same rows."""
    rows: list[tuple[object, ...]] = []
    packed: list[pa.RecordBatch] = []
    part = make_slice(stream, request, first_offset(stream, request.first), request.most)
    slices = 1
    while True:
        rows += rows_of(batches(part))
        packed += packed_batches(part)
        if part.next_offset is None:
            assert all(batch.schema == PACKED for batch in packed)
            assert rows_of(unpacked(packed, limits.FLIGHT_BATCH_ROWS, 10**6)) == rows
            return rows, slices
        part = make_slice(stream, request, part.next_offset, part.left)
        slices += 1


def cold_stream(nodes: int) -> Stream:
    """Each node is large, and compressed to next to nothing."""
    stream = Stream()
    for ms in range(1, nodes + 1):
        stream.append(ms, 0, TAGGED, [b""], [bytes(limits.NODE_BYTES_MAX)])
    for node in stream.sealed:
        chilled(node)
    return stream


@pytest.mark.parametrize("seed", range(30))
def test_any_range(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    stream = made(rng, monkeypatch)
    rows = stream.read(1, 10_000)
    expected = list(zip(*rows, strict=True))
    monkeypatch.setattr(limits, "FLIGHT_SLICE_BYTES_MAX", rng.choice([1, 500, 10**6]))
    monkeypatch.setattr(limits, "FLIGHT_BATCH_ROWS", rng.choice([1, 10, 10**6]))
    assert read(stream, ReadRequest(b"k"))[0] == expected
    for _ in range(20):
        low, high = sorted(rng.randrange(stream.next + 5) for _ in range(2))
        by_offset = ReadRequest(b"k", 0, RangeEnd(offset=low), RangeEnd(offset=high))
        assert read(stream, by_offset)[0] == [row for row in expected if low <= row[0] <= high]
        first, last = sorted(pack_id(rng.randrange(42), rng.randrange(6)) for _ in range(2))
        by_id = ReadRequest(b"k", 0, RangeEnd(number=first), RangeEnd(number=last))
        inside = [row for row in expected if first <= pack_id(row[1], row[2]) <= last]
        assert read(stream, by_id)[0] == inside
        count = rng.randrange(30)
        assert read(stream, by_id._replace(most=count))[0] == inside[:count]


def test_slices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = made(random.Random(1), monkeypatch)
    monkeypatch.setattr(limits, "FLIGHT_SLICE_BYTES_MAX", 1)
    rows, slices = read(stream, ReadRequest(b"k"))
    assert len(rows) == len(stream)
    assert slices >= len(stream.sealed)


def test_no_entries() -> None:
    assert read(Stream(), ReadRequest(b"k")) == ([], 1)


def test_compressed_nodes_that_are_large_when_opened_are_not_joined_without_bound() -> None:
    stream = cold_stream(20)
    part = make_slice(stream, ReadRequest(b"s"), 1, None)
    assert len(part.pieces) == 20
    assert max(batch.nbytes for batch in batches(part)) < limits.FLIGHT_SLICE_BYTES_MAX + 2 * limits.NODE_BYTES_MAX


def test_packed_nodes_leave_as_they_lie_and_are_opened_within_a_bound() -> None:
    stream = cold_stream(20)
    packed = list(packed_batches(make_slice(stream, ReadRequest(b"s"), 1, None)))
    assert sum(batch.nbytes for batch in packed) < limits.NODE_BYTES_MAX
    cold = {node.place.read() for node in stream.sealed if node.place is not None}
    assert cold <= {node for batch in packed for node in batch.column("node").to_pylist()}
    opened = list(unpacked(packed, 1000, 2 * limits.NODE_BYTES_MAX))
    assert sum(batch.num_rows for batch in opened) == 20
    assert max(batch.nbytes for batch in opened) < 4 * limits.NODE_BYTES_MAX
