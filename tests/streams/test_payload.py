"""Payloads: what was put together is taken apart again, and numbers that claim too much cost nothing."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.ids import U64_MAX
from tidelog.journal import flit
from tidelog.streams.payload import PayloadReader, id_runs, numbers, packed_id, runs, text
from tidelog.streams.rows import unpack_id


@given(st.lists(st.integers(1, 60)))
def test_runs_keep_their_order(offsets: list[int]) -> None:
    reader = PayloadReader(runs(offsets))
    assert list(reader.runs()) == offsets
    reader.end()


_SPANS = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 5), st.just(U64_MAX - 40)), st.integers(1, 40)), min_size=1
)
"""Ms after the last, first seq and how many."""


@given(_SPANS)
def test_ids_are_kept(spans: list[tuple[int, int, int]]) -> None:
    ids: set[int] = set()
    ms = 1000
    for after_ms, seq, count in spans:
        ms += after_ms
        ids.update(ms << 64 | each for each in range(seq, seq + count))
    expected = sorted(ids)
    columns = [unpack_id(each) for each in expected]
    payload = id_runs([each for each, _ in columns], [seq for _, seq in columns])
    reader = PayloadReader(payload)
    assert reader.id_runs() == expected
    reader.end()
    for end in range(len(payload)):
        with pytest.raises(FormatError):
            PayloadReader(payload[:end]).id_runs()


@pytest.mark.parametrize(
    ("ms", "size"), [([7] * 500, 19), ([7] * 250 + [8] * 250, 37), ([*range(7, 507)], 3 + 16 * 500)]
)
def test_how_many_bytes_ids_take(ms: list[int], size: int) -> None:
    assert len(id_runs(ms, [at % 250 if ms[0] != ms[-1] else at for at in range(500)])) == size


@pytest.mark.parametrize(
    "payload",
    [
        flit.encode(0) + flit.encode(0),
        flit.encode(0) + flit.encode(U64_MAX),
        flit.encode(0) + flit.encode(2) + numbers(1, 1, 2, 1),
        flit.encode(1) + flit.encode(0) + numbers(1, 1),
        flit.encode(1) + flit.encode(U64_MAX) + numbers(1, 1),
        flit.encode(1) + flit.encode(3) + numbers(1, U64_MAX - 1),
        flit.encode(2) + flit.encode(2) + numbers(2, 1) + flit.encode(1) + numbers(1, 1),
    ],
)
def test_ids_that_cannot_be(payload: bytes) -> None:
    with pytest.raises(FormatError):
        PayloadReader(payload).id_runs()


def test_parts() -> None:
    reader = PayloadReader(text(b"key") + numbers(1, U64_MAX) + packed_id(5 << 64 | 6) + b"\1" + b"rest")
    assert (reader.text(), reader.numbers(2), reader.id(), reader.flag(), reader.rest()) == (
        b"key",
        (1, U64_MAX),
        5 << 64 | 6,
        True,
        b"rest",
    )
    reader.end()


@pytest.mark.parametrize(
    "payload",
    [
        flit.encode(1) + flit.encode(1) + flit.encode(U64_MAX - 2),
        flit.encode(2) + flit.encode(1) + flit.encode(limits.RECORD_OFFSETS_MAX) + flit.encode(1) + flit.encode(1),
        flit.encode(1) + flit.encode(U64_MAX) + flit.encode(1),
        flit.encode(U64_MAX),
        flit.encode(1) + flit.encode(1),
        b"",
    ],
)
def test_runs_that_claim_too_much(payload: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(FormatError):
        PayloadReader(payload).runs()
    assert tracemalloc.get_traced_memory()[1] < 100 * limits.RECORD_OFFSETS_MAX
    tracemalloc.stop()


def test_nothing_is_read_beyond_the_end() -> None:
    for read in (
        PayloadReader.text,
        PayloadReader.flit,
        PayloadReader.id,
        PayloadReader.flag,
        lambda each: each.numbers(1),
    ):
        with pytest.raises(FormatError):
            read(PayloadReader(b""))
    for payload in (numbers(U64_MAX), b"\0" + numbers(U64_MAX)):
        with pytest.raises(FormatError):
            PayloadReader(payload).count(1)
    with pytest.raises(FormatError):
        PayloadReader(b"\0" + numbers(U64_MAX)).text()


def test_items_and_ends() -> None:
    with pytest.raises(FormatError):
        PayloadReader(b"abc").items([2, 2])
    with pytest.raises(FormatError):
        PayloadReader(b"abc").end()
    with pytest.raises(FormatError):
        PayloadReader(b"\2").flag()
    assert PayloadReader(b"abc").items([2, 1]) == [b"ab", b"c"]
