"""Reading one shard: from anywhere, while it is written, and never what is not proved or not visible."""

from __future__ import annotations

import pytest

from tests.journal.machine import FOLDER, FRAME_BYTES, Machine
from tidelog import limits
from tidelog.errors import ClientError, Corruption, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.operation import VAL, pair_keys
from tidelog.journal.reader import Part, ShardReader
from tidelog.journal.record import FINISH, NEXT_CONT
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.ring import Ring
from tidelog.journal.segment import FilePosition
from tidelog.journal.source import ShardSource

NO_RING = 0
ERASE_ALL = RetentionLimits(bytes_max=0, snapshots_kept=1)


def on_disk(machine: Machine, shard: int = 0, *, ring: Ring | None = None) -> ShardReader:
    """A reader of the files alone, up to what is visible."""
    source = ShardSource(machine.disk, f"{FOLDER}/shard-{shard}", machine.settings.geometry, ShardId(shard), ring)
    return ShardReader(source, lambda: machine.journal.writer.visible.ends[shard])


def read_all(reader: ShardReader) -> list[Part]:
    parts = []
    while (some := reader.read()) is not None:
        parts += some
    return parts


def first_lsns(parts: list[Part]) -> list[int]:
    return [part.records[0].lsn for part in parts]


@pytest.fixture(scope="module")
def long_journal() -> Machine:
    """300 transactions in about 75 frames and 19 segments, all of them behind the ring."""
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(300)
    return machine


# --- where to begin ---------------------------------------------------------------------------------------------


def test_reading_from_the_start_gives_everything_in_order(long_journal: Machine) -> None:
    reader = on_disk(long_journal)
    reader.seek_start()
    parts = read_all(reader)
    assert first_lsns(parts) == list(range(300))
    assert [part.ts for part in parts] == sorted({part.ts for part in parts})
    assert reader.read() is None


@pytest.mark.parametrize("lsn", [0, 1, 2, 3, 4, 5, 99, 150, 298, 299, 300])
def test_reading_from_an_lsn_begins_exactly_there(long_journal: Machine, lsn: int) -> None:
    reader = on_disk(long_journal)
    reader.seek_lsn(Lsn(lsn))
    assert first_lsns(read_all(reader)) == list(range(lsn, 300))


@pytest.mark.parametrize("lsn", [0, 1, 2, 3, 4, 5, 99, 150, 298, 299])
@pytest.mark.parametrize("before", [0, 1])
def test_reading_from_a_ts_begins_right_after_it(long_journal: Machine, lsn: int, before: int) -> None:
    reader = on_disk(long_journal)
    reader.seek_start()
    ts = read_all(reader)[lsn].ts
    reader.seek_ts(Ts(ts - before))
    assert first_lsns(read_all(reader)) == list(range(lsn + 1 - before, 300))


@pytest.mark.parametrize("by", ["lsn", "ts"])
@pytest.mark.parametrize("lsn", [5, 150, 295])
def test_the_journal_is_not_parsed_from_its_beginning(long_journal: Machine, by: str, lsn: int) -> None:
    everything = on_disk(long_journal)
    everything.seek_start()
    ts = read_all(everything)[lsn].ts
    before = long_journal.disk.bytes_read
    reader = on_disk(long_journal)
    if by == "lsn":
        reader.seek_lsn(Lsn(lsn))
    else:
        reader.seek_ts(ts)
    assert long_journal.disk.bytes_read - before < 500, "only some heads of frames"
    while not reader.read():
        pass
    assert long_journal.disk.bytes_read - before < 500 + 2 * FRAME_BYTES


def test_a_ts_before_everything_begins_at_the_first_transaction(long_journal: Machine) -> None:
    reader = on_disk(long_journal)
    reader.seek_ts(Ts(0))
    assert len(read_all(reader)) == 300


@pytest.mark.parametrize("place", ["start", "lsn", "ts"])
def test_a_reader_of_an_empty_shard_sees_what_comes_later(place: str) -> None:
    machine = Machine(shards=1)
    ends: list[FilePosition | None] = [None]
    folder = f"{FOLDER}/elsewhere"
    machine.disk.make_folder(folder)
    reader = ShardReader(ShardSource(machine.disk, folder, Geometry(1024, 4), ShardId(0)), lambda: ends[0])
    if place == "start":
        reader.seek_start()
    elif place == "lsn":
        reader.seek_lsn(Lsn(0))
    else:
        reader.seek_ts(Ts(0))
    assert reader.read() is None
    machine.fill(3)
    machine.disk.write_file(f"{folder}/journal-{0:016x}.dj0", machine.disk.read_file(machine.path()))
    ends[0] = machine.journal.writer.visible.ends[0]
    assert first_lsns(read_all(reader)) == [0, 1, 2]


def test_frames_without_records_do_not_lead_a_seek_astray() -> None:
    machine = Machine(shards=2, ring_bytes_max=NO_RING)
    machine.fill(2, shard=0)
    machine.fill(2, shard=1)
    for _ in range(30):  # clean stops, each with a closing mark and nothing else
        machine.journal.close()
        machine.open()
    machine.fill(2, shard=0)
    reader = on_disk(machine)
    for lsn in range(5):
        reader.seek_lsn(Lsn(lsn))
        assert first_lsns(read_all(reader)) == list(range(lsn, 4))


# --- transactions -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_transactions() -> Machine:
    """Transactions of 20 records, each over several frames; some over two segments."""
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    for number in range(6):
        machine.commit(*[(0, b"%d-%d" % (number, index), bytes(150)) for index in range(20)])
    return machine


def test_transactions_come_whole_however_frames_fell(large_transactions: Machine) -> None:
    reader = on_disk(large_transactions)
    reader.seek_start()
    parts = read_all(reader)
    assert [[each.lsn for each in part.records] for part in parts] == [
        list(range(first, first + 20)) for first in range(0, 120, 20)
    ]
    assert all({each.ts for each in part.records} == {part.ts} for part in parts)
    assert [bool(each.flags & FINISH) for each in parts[0].records] == [False] * 19 + [True]
    assert not any(each.flags & NEXT_CONT for part in parts for each in part.records), "split records are joined"


@pytest.mark.parametrize("lsn", range(120))
def test_an_lsn_inside_a_transaction_is_the_clients_error_and_its_first_is_not(
    large_transactions: Machine, lsn: int
) -> None:
    reader = on_disk(large_transactions)
    reader.seek_lsn(Lsn(lsn))
    if lsn % 20 == 0:
        assert first_lsns(read_all(reader)) == list(range(lsn, 120, 20))
    else:
        with pytest.raises(ClientError, match=f"lsn {lsn} of shard 0 lies inside the transaction of ts"):
            read_all(reader)


@pytest.mark.parametrize("number", range(6))
def test_a_ts_leads_past_the_whole_transaction(large_transactions: Machine, number: int) -> None:
    reader = on_disk(large_transactions)
    reader.seek_start()
    ts = read_all(reader)[number].ts
    reader.seek_ts(ts)
    assert first_lsns(read_all(reader)) == list(range(20 * number + 20, 120, 20))


def test_databases_and_expiries_are_those_that_were_written() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    databases = [number // 3 % 3 for number in range(60)]
    for database in databases:
        machine.commit((0, b"k", bytes(100), database))
    reader = on_disk(machine)
    for lsn in (0, 7, 23, 59):
        reader.seek_lsn(Lsn(lsn))
        assert [part.records[0].database for part in read_all(reader)] == databases[lsn:]


def test_the_payload_of_a_whale_is_followed_to_the_blob_file() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    whales = [bytes([number]) * (2000 + number) for number in range(10)]
    for whale in whales:
        machine.commit((0, b"w", whale))
    reader = on_disk(machine)
    reader.seek_start()
    found = [reader.payload_of(part.records[0]) for part in read_all(reader)]
    assert [payload[-len(whale) :] for payload, whale in zip(found, whales, strict=True)] == whales


def test_epochs_are_told_on_the_way() -> None:
    machine = Machine(shards=1)
    machine.fill(2)
    machine.disk.kill()
    machine.open()
    found: list[Epoch] = []
    source = machine.source()
    reader = ShardReader(source, lambda: machine.journal.writer.visible.ends[0], found.append)
    reader.seek_start()
    read_all(reader)
    assert found == machine.journal.epochs
    assert [epoch.lsns for epoch in found] == [(0,), (2,)]


# --- while it is written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring_bytes_max", [NO_RING, 3000, limits.RING_BYTES_MAX])
@pytest.mark.parametrize("policy", [FsyncPolicy.ALWAYS, FsyncPolicy.EVERYSEC])
def test_a_reader_follows_the_writer_and_never_sees_past_visible(policy: FsyncPolicy, ring_bytes_max: int) -> None:
    machine = Machine(shards=1, policy=policy, ring_bytes_max=ring_bytes_max)
    reader = machine.journal.reader_since(Ts(0))
    written: list[Ts] = []
    found: list[Ts] = []
    for number in range(150):
        written.append(machine.append((0, b"k", bytes(number * 7 % 400))))
        if number % 3 == 0:
            machine.journal.writer.write()
        if number % 7 == 0:
            machine.journal.writer.sync()
        if number % 5 == 0:
            found += [transaction.ts for transaction in reader.read()]
            visible = machine.journal.writer.visible.ts
            assert found == [ts for ts in written if ts <= visible]
    machine.journal.writer.write()
    machine.journal.writer.sync()
    found += [transaction.ts for transaction in reader.read()]
    assert found == written


def test_who_keeps_up_reads_nothing_from_the_disk() -> None:
    machine = Machine(shards=1)
    reader = machine.journal.reader_since(Ts(0))
    list(reader.read())
    before = machine.disk.bytes_read
    for _ in range(50):
        machine.commit((0, b"k", bytes(100)))
        assert len(list(reader.read())) == 1
    assert machine.disk.bytes_read == before


def test_no_byte_is_read_twice() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    reader = on_disk(machine)
    reader.seek_start()
    for _ in range(60):
        machine.commit((0, b"k", bytes(100)))
        read_all(reader)
    paths = [machine.path(0, segment) for segment in machine.segments()]
    size = sum(len(machine.disk.read_file(path)) for path in paths)
    assert sum(machine.disk.bytes_read_by_path[path] for path in paths) == size


# --- what is gone -----------------------------------------------------------------------------------------------


def erased(machine: Machine) -> Lsn:
    """Let the oldest segments be erased; returns the first that is left."""
    machine.snapshot({})
    assert machine.journal.erase()
    return machine.segments()[0]


def test_an_erased_prefix_is_too_old_and_the_rest_is_read() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING, retention=ERASE_ALL)
    machine.fill(100)
    oldest = erased(machine)
    assert oldest > 0
    reader = on_disk(machine)
    with pytest.raises(TooOld, match=f"lsn {oldest - 1} of shard 0 is no longer in the journal") as caught:
        reader.seek_lsn(Lsn(oldest - 1))
    assert caught.value.oldest == oldest
    reader.seek_lsn(oldest)
    assert first_lsns(read_all(reader)) == list(range(oldest, 100))
    reader.seek_start()
    assert first_lsns(read_all(reader)) == list(range(oldest, 100))


def test_what_begins_in_the_middle_of_a_transaction_begins_with_the_next() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING, retention=ERASE_ALL)
    for number in range(20):
        machine.commit(*[(0, b"%d-%d" % (number, index), bytes(190)) for index in range(7)])
    oldest = erased(machine)
    assert oldest % 7, "the first segment that is left begins inside a transaction"
    reader = on_disk(machine)
    reader.seek_start()
    expected = [first for first in range(0, 140, 7) if first >= oldest]
    assert expected
    assert first_lsns(read_all(reader)) == expected


def test_a_segment_that_is_erased_under_a_reader_is_read_to_its_end_and_the_next_is_too_old() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING, retention=ERASE_ALL)
    machine.fill(100)
    reader = on_disk(machine)
    reader.seek_start()
    parts = reader.read()
    assert parts
    second = machine.segments()[1]
    oldest = erased(machine)
    assert oldest > second
    while first_lsns(parts)[-1] < second - 1:
        more = reader.read()
        assert more is not None
        parts += more
    assert first_lsns(parts) == list(range(second))
    with pytest.raises(TooOld, match=f"has been erased; the journal begins at lsn {oldest}") as caught:
        reader.read()
    assert caught.value.oldest == oldest


def test_a_blob_that_was_erased_with_its_segment_is_too_old() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING, retention=ERASE_ALL)
    machine.commit((0, b"whale", bytes(2000)))
    reader = on_disk(machine)
    reader.seek_start()
    (part,) = read_all(reader)
    machine.fill(100)
    erased(machine)
    with pytest.raises(TooOld, match=r"blob-.*\.bin has been erased"):
        reader.payload_of(part.records[0])


def test_a_file_that_is_missing_in_the_middle_is_corruption() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(100)
    second = machine.segments()[1]
    machine.disk.remove(machine.path(0, second))
    reader = on_disk(machine)
    reader.seek_start()
    with pytest.raises(Corruption, match="the file is missing") as caught:
        read_all(reader)
    assert caught.value.path == machine.path(0, second)


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [0, 1, 3])
def test_damage_names_file_frame_and_position_and_nothing_of_the_frame_is_handed_out(frame: int) -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(40)
    path = machine.path()
    machine.disk.flip_bit(path, 8 * (frame * FRAME_BYTES + 700) + 3)
    reader = on_disk(machine)
    reader.seek_start()
    found: list[Part] = []

    def read_on() -> None:
        while (parts := reader.read()) is not None:
            found.extend(parts)

    with pytest.raises(Corruption, match="the checksum of the frame is wrong") as caught:
        read_on()
    assert (caught.value.path, caught.value.frame) == (path, frame)
    assert str(caught.value).startswith(f"{path}, frame {frame}, position {frame * FRAME_BYTES}")
    heads = machine.source().frame_header(Lsn(0), frame * FRAME_BYTES)
    is_split = heads.prev_record_offset is not None
    assert first_lsns(found) == list(range(heads.lsn - is_split)), "all before the frame, and nothing of it"


def test_damage_in_the_open_frame_is_found_by_its_mark() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING, frame_bytes=8192)
    machine.fill(5)
    machine.disk.flip_bit(machine.path(), 8 * 500)
    reader = on_disk(machine)
    reader.seek_start()
    with pytest.raises(Corruption, match="the checksum of a mark is wrong") as caught:
        reader.read()
    assert caught.value.frame == 0
    assert caught.value.position is not None
    assert caught.value.position <= 500 < caught.value.position + 400


def test_a_file_that_is_cut_below_what_was_written_is_corruption() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(40)
    path = machine.path()
    machine.disk.write_file(path, machine.disk.read_file(path)[:1500])
    reader = on_disk(machine)
    reader.seek_start()
    with pytest.raises(Corruption, match="the file ends before what was written") as caught:
        read_all(reader)
    assert (caught.value.frame, caught.value.position) == (1, 1500)


def test_a_damaged_head_is_named_when_a_seek_meets_it() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(40)
    machine.disk.flip_bit(machine.path(), 8 * 2 * FRAME_BYTES)
    reader = on_disk(machine)
    with pytest.raises(Corruption, match="a frame begins with") as caught:
        reader.seek_lsn(Lsn(8))
    assert (caught.value.frame, caught.value.position) == (2, 2 * FRAME_BYTES)


def test_unknown_opcodes_are_handed_out_as_they_are() -> None:
    machine = Machine(shards=1)
    ts = machine.journal.hlc.next()
    machine.journal.writer.append_one(ShardId(0), ts, 0xEE, b"of a newer version")
    machine.journal.writer.write()
    machine.journal.writer.sync()
    last = machine.commit((0, b"k", b"v"))
    reader = on_disk(machine)
    reader.seek_start()
    assert [(part.ts, part.records[0].opcode) for part in read_all(reader)] == [(ts, 0xEE), (last, VAL)]


def test_closing_a_reader_closes_its_files() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.commit((0, b"whale", bytes(3000)))
    before = machine.disk.open_paths
    reader = on_disk(machine)
    reader.seek_start()
    reader.payload_of(read_all(reader)[0].records[0])
    assert len(machine.disk.open_paths) == len(before) + 2
    reader.close()
    assert machine.disk.open_paths == before


# --- what is wanted ---------------------------------------------------------------------------------------------


def wanting(machine: Machine, wanted: set[bytes]) -> ShardReader:
    def wants(database: int, opcode: int, payload: bytes) -> bool:
        return opcode == VAL and not wanted.isdisjoint(pair_keys(payload))

    reader = ShardReader(machine.source(), lambda: machine.journal.writer.visible.ends[0], wants=wants)
    reader.seek_start()
    return reader


def test_only_what_is_wanted_is_handed_out_and_lsns_stay_right(long_journal: Machine) -> None:
    parts = read_all(wanting(long_journal, {b"k0007", b"k0150", b"k0299"}))
    assert first_lsns(parts) == [7, 150, 299]
    reader = wanting(long_journal, set())
    assert read_all(reader) == []
    assert reader.next_lsn == 300


def test_a_transaction_is_handed_out_with_what_is_wanted_of_it() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"a", b"1"), (0, b"b", b"2"), (0, b"c", b"3"))
    machine.commit((0, b"b", b"4"), (0, b"d", b"5"))
    parts = read_all(wanting(machine, {b"a", b"c", b"d"}))
    assert [[record.lsn for record in part.records] for part in parts] == [[0, 2], [4]]


@pytest.mark.parametrize("database", [0, 3])
def test_whether_a_split_record_is_wanted_is_seen_when_it_is_whole(database: int) -> None:
    machine = Machine(shards=1)
    machine.fill(3)
    machine.commit((0, b"long", bytes(FRAME_BYTES // 4 - 20), database))  # over the end of the frame
    asked: list[tuple[int, list[bytes]]] = []

    def wants(database: int, opcode: int, payload: bytes) -> bool:
        asked.append((database, pair_keys(payload)))
        return asked[-1][1] == [b"long"]

    reader = ShardReader(machine.source(), lambda: machine.journal.writer.visible.ends[0], wants=wants)
    reader.seek_start()
    (part,) = read_all(reader)
    (record,) = part.records
    assert (record.database, pair_keys(record.payload)) == (database, [b"long"])
    assert asked[-1] == (database, [b"long"])


def test_a_whale_is_always_handed_out() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"whale", bytes(FRAME_BYTES)))
    assert first_lsns(read_all(wanting(machine, {b"other"}))) == [0]


# --- from memory ------------------------------------------------------------------------------------------------


def in_memory_so_far(machine: Machine) -> ShardReader:
    """A reader that has taken all there is from the ring, which then has nothing more."""
    ring = Ring(1)
    end = machine.journal.writer.visible.ends[0]
    assert end is not None
    ring.add(ShardId(0), FilePosition(end.segment, 0), [machine.disk.read_file(machine.path())[: end.at]])
    reader = on_disk(machine, ring=ring)
    reader.seek_start()
    read_all(reader)
    return reader


@pytest.mark.parametrize("more", [1, 3, 12])
def test_who_began_a_frame_in_memory_goes_on_from_disk(more: int) -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(2)
    reader = in_memory_so_far(machine)
    machine.fill(more)
    assert first_lsns(read_all(reader)) == list(range(2, 2 + more))


def test_a_frame_that_was_begun_in_memory_is_proved_whole_on_disk() -> None:
    machine = Machine(shards=1, ring_bytes_max=NO_RING)
    machine.fill(2)
    reader = in_memory_so_far(machine)
    machine.fill(6)
    data = bytearray(machine.disk.read_file(machine.path()))
    data[FRAME_BYTES - 300] ^= 1
    machine.disk.write_file(machine.path(), bytes(data))
    with pytest.raises(Corruption, match="checksum"):
        read_all(reader)
