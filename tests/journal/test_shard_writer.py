"""The frames of one shard as they are written: what lies in the bytes, checked by walking them naively."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import InternalError, LimitExceeded
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import blob, control, record
from tidelog.journal.frame import CHECKSUM, Geometry, decode_header
from tidelog.journal.operation import VAL
from tidelog.journal.record import BLOB, CONTROL, FINISH, NEXT_CONT, TS
from tidelog.journal.segment import FilePosition
from tidelog.journal.shard_writer import Batch, ShardState, ShardWriter

FRAME = 1024
EMPTY = ShardState(None, Lsn(0), Ts(0), 0, 0, 0)
FIRST_TS = Ts(1_000_000)


class Found(NamedTuple):
    """A record as the naive walk found it."""

    lsn: int
    ts: int
    opcode: int
    is_last: bool
    database: int
    expire_ms: int
    payload: bytes


class Files:
    """What a shard has on disk, and a naive walk over all of it."""

    def __init__(self, frames_per_segment: int = 4) -> None:
        self.geometry = Geometry(FRAME, frames_per_segment)
        self.journal: dict[int, bytearray] = {}
        self.blobs: dict[int, bytearray] = {}

    def put(self, batch: Batch) -> None:
        for whale in batch.blobs:
            file = self.blobs.setdefault(whale.position.segment, bytearray())
            assert whale.position.at == len(file)
            file += whale.payload
        for write in batch.writes:
            file = self.journal.setdefault(write.position.segment, bytearray())
            assert write.position.at == len(file), "no gaps, and nothing is written twice"
            for chunk in write.chunks:
                file += chunk
        assert batch.end == (max(self.journal), len(self.journal[max(self.journal)]))

    def frames(self) -> Iterable[tuple[int, int, bytes]]:
        for segment, file in sorted(self.journal.items()):
            assert len(file) <= self.geometry.segment_bytes
            for at in range(0, len(file), FRAME):
                yield segment, at, bytes(file[at : at + FRAME])

    def records(self) -> list[Found]:
        found: list[Found] = []
        lsn, head, frame_before = 0, None, -1
        for segment, at, data in self.frames():
            header = decode_header(data)
            assert header.flags & CHECKSUM
            assert header.lsn == lsn
            if at == 0:
                assert segment == lsn
                assert header.prev_record_offset is None, "a record never spans two segments"
            if len(data) == FRAME:
                assert crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")
            assert (header.prev_record_offset is not None) == (head is not None)
            if head is not None:
                assert header.prev_record_offset == frame_before
            ts, database, base = int(header.ts), 0, 0
            for each in record.walk(data, header.size, min(len(data), FRAME - 4)):
                payload = data[each.payload : each.payload_end]
                if each.opcode == control.MARK:
                    assert head is None, "a batch does not end inside a record"
                    assert crc32c(data[base : each.payload_end - 4]) == control.decode_mark(payload).crc
                    base = each.end
                elif each.opcode == control.SELECT:
                    database = control.decode_select(payload)
                elif each.opcode < CONTROL:
                    if head is not None:
                        assert each.opcode == head.opcode
                        payload = head.payload + payload
                        lsn_here, ts_here, expire, database_here = head.lsn, head.ts, head.expire_ms, head.database
                    else:
                        ts = header.ts + each.ts_relative if each.flags & TS else ts
                        lsn_here, ts_here, expire, database_here = lsn, ts, each.expire_ms, database
                        lsn += 1
                    if each.flags & BLOB:
                        payload = self.whale(segment, payload)
                    head = Found(
                        lsn_here, ts_here, each.opcode, bool(each.flags & FINISH), database_here, expire, payload
                    )
                    if each.flags & NEXT_CONT:
                        frame_before = each.start
                    else:
                        found.append(head)
                        head = None
        assert head is None
        return found

    def whale(self, segment: int, payload: bytes) -> bytes:
        reference = blob.decode_reference(payload)
        assert reference.segment == segment
        data = bytes(self.blobs[segment][reference.position : reference.position + reference.length])
        assert crc32c(data) == reference.crc
        return data


class Writing:
    """A writer and the files it fills."""

    def __init__(self, *, frames_per_segment: int = 4, shards: int = 1) -> None:
        self.files = Files(frames_per_segment)
        self.shards = shards
        self.writer = ShardWriter(self.files.geometry, shards, EMPTY)
        self.cycle = 0
        self.ts = FIRST_TS

    def add(self, payload: bytes, *, database: int = 0, step: int = 1, expire_ms: int | None = None) -> Ts:
        self.ts = Ts(self.ts + step)
        self.writer.add(self.ts, VAL, TS | FINISH, payload, expire_ms, database)
        return self.ts

    def end(self) -> Batch:
        self.cycle += 1
        ends = [self.writer.next_lsn] * self.shards
        batch = self.writer.end_batch(Cycle(self.cycle), self.ts, Cycle(0), ends)
        self.files.put(batch)
        return batch


# --- the naive walk agrees with what was added ------------------------------------------------------------------

ROWS = st.tuples(
    st.integers(0, 600),  # size: 256 and more are whales
    st.sampled_from([0, 0, 0, 1, 7, 300]),  # database
    st.sampled_from([1, 1000, 2**31, 2**33]),  # µs since the one before
    st.none() | st.integers(0, 2**63),  # expiry
    st.sampled_from(["one", "begin", "middle", "finish"]),
    st.booleans(),  # the batch ends after it
)


@given(st.lists(ROWS, max_size=60), st.integers(2, 4))
@settings(max_examples=120)
def test_what_is_added_lies_in_the_files(
    rows: list[tuple[int, int, int, int | None, str, bool]], frames_per_segment: int
) -> None:
    writing = Writing(frames_per_segment=frames_per_segment)
    expected = []
    for lsn, (size, database, step, expire_ms, part, ends) in enumerate(rows):
        payload = bytes([lsn % 251]) * size
        flags = {"one": TS | FINISH, "begin": TS, "middle": 0, "finish": FINISH}[part]
        if flags & TS or lsn == 0:
            writing.ts = Ts(writing.ts + step)
            flags |= TS
        writing.writer.add(writing.ts, VAL, flags, payload, expire_ms, database)
        expire = -1 if expire_ms is None else expire_ms
        expected.append(Found(lsn, writing.ts, VAL, bool(flags & FINISH), database, expire, payload))
        if ends:
            writing.end()
    if writing.writer.is_dirty:
        writing.end()
    assert writing.files.records() == expected
    assert writing.writer.next_lsn == len(rows)


@given(
    st.lists(
        st.tuples(st.integers(0, 600), st.sampled_from([0, 0, 5]), st.sampled_from([1, 2**33]), st.booleans()),
        max_size=40,
    )
)
@settings(max_examples=80)
def test_the_hot_way_of_one_record_writes_the_same_bytes(rows: list[tuple[int, int, int, bool]]) -> None:
    hot, plain = Writing(), Writing()
    for size, database, step, ends in rows:
        plain.add(b"p" * size, database=database, step=step)
        hot.ts = Ts(hot.ts + step)
        hot.writer.add_one(hot.ts, VAL, b"p" * size, database)
        if ends:
            plain.end()
            hot.end()
    if rows:
        plain.end()
        hot.end()
    assert hot.files.journal == plain.files.journal
    assert hot.files.blobs == plain.files.blobs


# --- edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", range(30, 120))
def test_the_end_of_a_frame_is_crossed_whatever_room_is_left(room: int) -> None:
    writing = Writing()
    first = FRAME - 4 - 20 - room  # what fills the frame up to `room` bytes
    for size in (first // 4,) * 3:
        writing.add(b"a" * (size - 8))
    writing.add(b"a" * (first - 3 * (first // 4) - 8))
    writing.add(b"b" * 200)
    writing.end()
    found = writing.files.records()
    assert [len(each.payload) for each in found][-1] == 200
    second = decode_header(bytes(writing.files.journal[0][FRAME:]))
    is_split = second.prev_record_offset is not None
    assert is_split == (room - 8 >= limits.SPLIT_ROOM_BYTES_MIN)


@pytest.mark.parametrize("size", [255, 256, 257, 5000])
def test_a_payload_over_a_quarter_of_a_frame_goes_to_the_blob_file(size: int) -> None:
    writing = Writing()
    writing.add(b"w" * size)
    batch = writing.end()
    assert [len(whale.payload) for whale in batch.blobs] == ([size] if size > FRAME // 4 else [])
    assert [each.payload for each in writing.files.records()] == [b"w" * size]


def test_a_split_counts_its_lsn_in_the_first_frame_and_finishes_in_the_second() -> None:
    writing = Writing()
    while writing.writer.next_lsn < 5:
        writing.add(b"x" * 220)
    writing.end()
    heads = [decode_header(data) for _, _, data in writing.files.frames()]
    assert heads[1].lsn == 5
    assert heads[1].prev_record_offset is not None
    first, second = (data for _, _, data in writing.files.frames())
    assert next(record.walk(first, heads[1].prev_record_offset, FRAME - 4)).flags == TS | NEXT_CONT
    assert next(record.walk(second, heads[1].size, len(second))).flags == FINISH


def test_the_last_frame_of_a_segment_ends_with_a_whole_record() -> None:
    writing = Writing(frames_per_segment=1)
    for _ in range(20):
        writing.add(b"x" * 200)
        writing.end()
    assert len(writing.files.journal) > 3
    assert all(decode_header(data).prev_record_offset is None for _, _, data in writing.files.frames())
    assert len(writing.files.records()) == 20


def test_a_ts_more_than_71_minutes_after_the_frames_starts_a_new_frame() -> None:
    writing = Writing()
    writing.add(b"a")
    writing.add(b"b", step=2**32 - 1)
    writing.add(b"c", step=1)
    writing.end()
    assert [header.ts for header in (decode_header(data) for _, _, data in writing.files.frames())] == [
        FIRST_TS + 1,
        FIRST_TS + 1 + 2**32,
    ]
    assert [each.payload for each in writing.files.records()] == [b"a", b"b", b"c"]


def test_a_database_is_selected_when_it_changes_and_first_in_a_frame() -> None:
    writing = Writing()
    for database in (0, 3, 3, 0, 3):
        writing.add(b"x", database=database)
    writing.add(b"y" * 250, database=3)
    for _ in range(8):
        writing.add(b"z" * 200, database=3)
    writing.end()
    selects = []
    for _, at, data in writing.files.frames():
        header = decode_header(data)
        opcodes = [each.opcode for each in record.walk(data, header.size, min(len(data), FRAME - 4))]
        selects.append(opcodes.count(control.SELECT))
        if at:
            assert opcodes[1 if header.prev_record_offset is not None else 0] == control.SELECT
    assert selects[0] == 3
    assert set(selects[1:]) == {1}
    assert [each.database for each in writing.files.records()] == [0, 3, 3, 0, *[3] * 10]


def test_a_mark_covers_what_came_since_the_one_before_or_the_frame_began() -> None:
    writing = Writing()
    writing.add(b"a")
    writing.end()
    writing.add(b"b")
    batch = writing.end()
    data = b"".join(batch.writes[0].chunks)
    assert crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")


def test_what_a_batch_sealed_is_said() -> None:
    writing = Writing(frames_per_segment=2)
    for _ in range(14):
        writing.add(b"x" * 200)
    batch = writing.end()
    second = sorted(writing.files.journal)[1]
    assert batch.sealed == [FilePosition(Lsn(0), 0), FilePosition(Lsn(0), FRAME), FilePosition(Lsn(second), 0)]
    assert [write.position for write in batch.writes] == [FilePosition(Lsn(0), 0), FilePosition(Lsn(second), 0)]


def test_a_writer_goes_on_where_another_ended() -> None:
    whole, first = Writing(), Writing()
    for number in range(3):
        whole.add(b"%d" % number * 100, database=2)
        first.add(b"%d" % number * 100, database=2)
        whole.end()
        first.end()
    file = bytes(first.files.journal[0])
    state = ShardState(FilePosition(Lsn(0), len(file)), Lsn(3), decode_header(file).ts, crc32c(file), 2, 0)
    second = Writing()
    second.files, second.ts, second.cycle = first.files, first.ts, first.cycle
    second.writer = ShardWriter(first.files.geometry, 1, state)
    for writing in (whole, second):
        for number in range(20):
            writing.add(b"%d" % number * 90, database=2)
        writing.end()
    assert second.files.journal == whole.files.journal


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opcode", "flags"), [(0, TS), (0xF0, TS), (VAL, BLOB), (VAL, NEXT_CONT), (VAL, 0x40)])
def test_only_records_of_operations_are_taken(opcode: int, flags: int) -> None:
    writing = Writing()
    with pytest.raises(InternalError, match="is not a record of an operation"):
        writing.writer.add(FIRST_TS, opcode, flags, b"", None, 0)
    assert not writing.writer.is_dirty


def test_a_payload_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 1000)
    writing = Writing()
    writing.add(b"x" * 1000)
    with pytest.raises(LimitExceeded, match="a payload of 1001 bytes: at most 1000"):
        writing.add(b"x" * 1001)


def test_shards_whose_mark_does_not_fit_a_frame_are_refused() -> None:
    ShardWriter(Geometry(1024, 1), 60, EMPTY)
    with pytest.raises(LimitExceeded, match="the mark of 61 shards does not fit a frame of 1024 bytes"):
        ShardWriter(Geometry(1024, 1), 61, EMPTY)


@pytest.mark.parametrize("shards", [1, 8, 60])
def test_marks_alone_fill_frames_too(shards: int) -> None:
    writing = Writing(shards=shards, frames_per_segment=64)
    writing.add(b"the only record")
    for _ in range(40):
        writing.end()
    assert [each.payload for each in writing.files.records()] == [b"the only record"]


@pytest.mark.parametrize("flags", [0, TS, FINISH, TS | FINISH])
@pytest.mark.parametrize("expire_ms", [None, 0, 1_700_000_000_000, 2**64 - 1])
@pytest.mark.parametrize("size", [0, 1, 127])
def test_a_short_head_is_the_head_of_any_record(flags: int, expire_ms: int | None, size: int) -> None:
    writer = ShardWriter(Geometry(FRAME, 4), 1, ShardState(None, Lsn(0), FIRST_TS, 0, 0, 0))
    ts = Ts(FIRST_TS + 77)
    made = writer._short_head(ts, VAL, flags, size << 1 | 1, expire_ms)
    assert made == record.encode_header(VAL, flags, size, ts_relative=77 if flags & TS else None, expire_ms=expire_ms)
