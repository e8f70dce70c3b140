"""Ordinary records: whatever the bytes, the fast walk finds what `skim` finds, and fails where it fails."""

from __future__ import annotations

import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.journal import control, record, record_runs
from tidelog.journal.operation import DEL, VAL, decode_pairs, encode_pairs
from tidelog.journal.record import BLOB, CONTROL, FINISH, NEXT_CONT, TS
from tidelog.journal.record_runs import RecordHeader, count_up_to, cut_sections, find_ordinary, skim_notable

SHORT = st.binary(max_size=20)
LONG = st.integers(100, 20_000).map(lambda size: b"v" * size)
PAIRS = st.lists(st.tuples(SHORT, SHORT | LONG), max_size=5)
FLAGS = st.sampled_from([0, FINISH, FINISH | BLOB, NEXT_CONT])
ODD = st.builds(
    record.encode,
    st.sampled_from([VAL, DEL, 0x10, control.EPOCH, control.SELECT]),
    FLAGS,
    SHORT | PAIRS.map(encode_pairs),
    ts_relative=st.none() | st.integers(0, 2**32 - 1),
    expire_ms=st.none() | st.just(5),
    padding=st.sampled_from([0, 0, 3]),
)
SETS = st.builds(
    record.encode, st.just(VAL), st.just(FINISH), PAIRS.map(encode_pairs), ts_relative=st.integers(0, 2**32 - 1)
)
MARK = st.just(record.encode(control.MARK, 0, bytes(36)))
RECORDS = st.lists(SETS | SETS | MARK | ODD, max_size=30).map(b"".join)
ENDS = st.sampled_from(
    [b"", bytes(9), b"\0" + b"\1\1\1\1\1\1", b"\1", b"\1\x11\xff", b"\1\x11\x82\xff\xff", b"\1\x80\3"]
)
FRAMES = st.tuples(RECORDS, ENDS).map(b"".join) | st.binary(max_size=60)


def skim_all(data: bytes) -> tuple[list[RecordHeader], str | None]:
    """The records that there are, and why there are no more, if that is an error."""
    found: list[RecordHeader] = []
    try:
        found.extend(record.skim(data, 0, len(data)))
    except FormatError as error:
        return found, str(error)
    return found, None


@given(FRAMES, st.integers(-1, 2**32))
def test_operations_are_counted_up_to_a_ts_as_skim_would(data: bytes, ts_relative: int) -> None:
    headers, problem = skim_all(data)
    expected: int | None = 0
    for opcode, _, ts, *_ in headers:
        if opcode < CONTROL:
            if ts > ts_relative:
                break
            expected = (expected or 0) + 1
    else:
        expected = None
    if expected is None and problem is not None:
        with pytest.raises(FormatError, match=re.escape(problem)):
            count_up_to(data, 0, len(data), ts_relative)
    else:
        assert count_up_to(data, 0, len(data), ts_relative) == expected


@given(FRAMES)
def test_ordinary_records_are_those_of_skim(data: bytes) -> None:
    expected, _ = skim_all(data)
    found = find_ordinary(data, 0, len(data))
    same = expected[: len(found.starts)]
    assert [(each[4], each[0], each[1]) for each in same] == list(
        zip(found.starts.tolist(), found.opcodes.tolist(), found.flags.tolist(), strict=True)
    )
    assert found.end == (same[-1][-1] if same else 0)


@given(FRAMES)
def test_notable_records_are_those_of_skim_that_are_no_ordinary_operations(data: bytes) -> None:
    expected, error = skim_all(data)
    seen, passed = [], 0
    problem = None
    try:
        for count, header in skim_notable(data, 0, len(data)):
            passed += count
            if header is not None:
                seen.append((passed, header))
                passed += 1
    except FormatError as raised:
        problem = str(raised)
    assert problem == error
    assert passed == len(expected) or error is not None
    assert [header for _, header in seen] == [expected[index] for index, _ in seen]
    indexes = {index for index, _ in seen}
    skipped = [each for index, each in enumerate(expected) if index not in indexes]
    assert all(each[0] < CONTROL and not each[1] & (BLOB | NEXT_CONT) for each in skipped)


@given(FRAMES)
def test_pieces_are_all_of_the_records_and_runs_what_they_set(data: bytes) -> None:
    expected, error = skim_all(data)
    with mock.patch.object(record_runs, "RUN_RECORDS_MIN", 1):
        pieces = list(cut_sections(data, 0, len(data)))
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][: len(pieces)]
    taken: list[RecordHeader] = []
    problem = None
    try:
        for start, end, run in pieces:
            inside = list(record.skim(data, start, end))
            taken += inside
            if run is None:
                continue
            sets = [each for each in inside if each[0] != control.MARK]
            assert all(each[:2] == (VAL, TS | FINISH) for each in sets)
            assert (run.records, run.last_ts_relative) == (len(sets), sets[-1][2])
            spans = zip(run.keys, run.values, run.ends, strict=True)
            assert [(data[key:value], data[value:stop]) for key, value, stop in spans] == [
                pair for each in sets for pair in decode_pairs(data[each[5] : each[6]])
            ]
    except FormatError as raised:
        problem = str(raised)
    assert problem == error
    assert taken == expected[: len(taken)]
    assert len(taken) == len(expected) or error is not None
