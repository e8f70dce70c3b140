"""All shards as one history: in order of ts, whole, and never a torn transaction."""

from __future__ import annotations

import errno
import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.machine import FOLDER, Machine, Put, Seen, seen
from tidelog.errors import Corruption, TransactionTorn
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.merge import JournalReader
from tidelog.journal.operation import START, VAL, Start, encode_pairs, encode_start
from tidelog.journal.record import FINISH, TS
from tidelog.journal.segment import FilePosition, journal_name
from tidelog.journal.shard_writer import ShardState, ShardWriter
from tidelog.testing.disk import SimulatedDisk

PUTS = st.lists(
    st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=3), st.binary(max_size=400)), min_size=1, max_size=6
)


@given(st.lists(PUTS, max_size=25), st.data())
@settings(max_examples=60)
def test_transactions_come_back_whole_and_in_order_from_any_place(
    transactions: list[list[tuple[int, bytes, bytes]]], data: st.DataObject
) -> None:
    machine = Machine(shards=3, ring_bytes_max=data.draw(st.sampled_from([0, 2000, 10**6])))
    written: list[tuple[Ts, list[tuple[int, bytes, bytes, int]]]] = []
    for puts in transactions:
        ts = machine.append(*puts)
        written.append((ts, [(*put, 0) for put in sorted(puts, key=lambda put: put[0])]))
        if data.draw(st.booleans()):
            machine.journal.writer.write()
    machine.journal.writer.write()
    machine.journal.writer.sync()
    place = data.draw(st.integers(0, len(written)))
    since = written[place - 1][0] if place else 0
    found = [(seen.ts, sorted(seen.puts, key=lambda put: put[0])) for seen in machine.read(since)]
    assert found == written[place:]


def test_shards_are_merged_by_ts() -> None:
    machine = Machine(shards=4)
    rng = random.Random(7)
    written = [machine.commit((rng.randrange(4), b"k", bytes(rng.randrange(300)))) for _ in range(200)]
    assert [seen.ts for seen in machine.read()] == written


def test_a_reader_goes_on_from_lsns() -> None:
    machine = Machine(shards=3)
    machine.commit((0, b"a", b""), (1, b"b", b""))
    lsns = machine.journal.writer.visible.lsns
    later = [machine.commit((shard, b"k", b"")) for shard in (2, 0, 1)]
    reader = machine.journal.reader_from(lsns)
    assert [transaction.ts for transaction in reader.read()] == later


@pytest.mark.parametrize("shards", [1, 2])
def test_a_pass_may_be_left_in_the_middle_and_the_next_goes_on_behind_it(shards: int) -> None:
    machine = Machine(shards=shards)
    written = [machine.commit((number % shards, b"k", bytes(100))) for number in range(60)]
    reader = machine.journal.reader_since(Ts(0))
    found: list[Ts] = []
    while some := [transaction.ts for transaction in islice(reader.read(), 7)]:
        found += some
    assert found == written


@pytest.mark.parametrize("shards", [1, 2])
def test_a_pass_ends_at_what_was_visible_when_it_began(shards: int) -> None:
    machine = Machine(shards=shards)
    first = machine.commit((0, b"k", b""))
    reader = machine.journal.reader_since(Ts(0))
    later: list[Ts] = []
    for transaction in reader.read():
        assert transaction.ts == first
        later.append(machine.commit((shards - 1, b"k", b"")))
    assert [transaction.ts for transaction in reader.read()] == later
    assert len(later) == 1


def test_a_reader_over_several_shards_never_sees_half_a_transaction() -> None:
    machine = Machine(shards=2)
    reader = machine.journal.reader_since(Ts(0))
    puts: tuple[Put, ...] = ((0, b"a", b""), (1, b"b", b""))
    machine.append(*puts)
    assert list(reader.read()) == []
    machine.journal.writer.write()
    assert list(reader.read()) == [], "written, and not yet durable"
    machine.journal.writer.sync()
    (transaction,) = reader.read()
    assert [part.shard for part in transaction.parts] == [0, 1]
    assert [record.opcode for record in transaction.parts[0].records] == [START, VAL]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_read_that_fails_for_once_loses_nothing(shards: int) -> None:
    machine = Machine(shards=shards, frames_per_segment=2, ring_bytes_max=0)
    for number in range(40):
        puts: list[Put] = [(number % shards, b"k%d" % number, bytes(300 if number % 9 == 0 else 60))]
        if number % 4 == 0:
            puts += [(shard, b"all", b"%d" % number) for shard in range(shards) if shard != number % shards]
        machine.commit(*puts)
    expected = machine.read()
    assert len(expected) == 40
    failures = 0
    for after in range(1, 200):
        reader = machine.journal.reader_since(Ts(0))
        machine.disk.fail("read", errno.EIO, after=after, path_contains="journal-")
        found: list[Seen] = []
        try:
            for transaction in reader.read():
                found.append(seen(transaction, reader.payload_of))  # noqa: PERF401
            break
        except OSError:
            failures += 1
            found += machine.read_on(reader)
        finally:
            reader.close()
        assert found == expected, after
    assert failures > 4


def test_a_read_that_fails_again_and_again_goes_on_each_time() -> None:
    machine = Machine(shards=2, frames_per_segment=1, ring_bytes_max=0)
    for number in range(40):
        machine.commit((number % 2, b"k%d" % number, bytes(60)), (1 - number % 2, b"both", b""))
    expected = machine.read()
    reader = machine.journal.reader_since(Ts(0))
    found: list[Seen] = []
    failures = 0
    for _ in range(100):
        machine.disk.clear_faults()
        machine.disk.fail("read", errno.EIO, after=2, path_contains="journal-")
        try:
            for transaction in reader.read():
                found.append(seen(transaction, reader.payload_of))  # noqa: PERF401
            break
        except OSError:
            failures += 1
    assert found == expected
    assert failures > 3


def test_seeking_again_forgets_what_was_read_ahead() -> None:
    machine = Machine(shards=2)
    written = [machine.commit((number % 2, b"k", b"")) for number in range(10)]
    reader = machine.journal.reader_since(Ts(0))
    next(reader.read())
    reader.seek_ts(written[6])
    assert [transaction.ts for transaction in reader.read()] == written[7:]


# --- torn -------------------------------------------------------------------------------------------------------

GEOMETRY = Geometry(1024, 4)


class Shards:
    """Two shards written by hand, with whatever one likes in them."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_folder(FOLDER)
        self.ends: list[FilePosition | None] = []
        for shard in (0, 1):
            self.disk.make_folder(f"{FOLDER}/shard-{shard}")
        self.writers = [ShardWriter(GEOMETRY, 2, ShardState(None, Lsn(0), Ts(0), 0, 0, 0)) for _ in (0, 1)]

    def put(self, shard: int, ts: int, flags: int = TS | FINISH) -> None:
        self.writers[shard].add(Ts(ts), VAL, flags, encode_pairs([(b"k", b"v")]), None, 0)

    def start(self, shard: int, ts: int, shards: list[int], *, says: int | None = None) -> None:
        start = Start(Ts(ts if says is None else says), [ShardId(each) for each in shards])
        self.writers[shard].add(Ts(ts), START, TS, encode_start(start), None, 0)

    def read(self) -> list[Ts]:
        for shard, writer in enumerate(self.writers):
            batch = writer.end_batch(Cycle(1), Ts(100), Cycle(0), [each.next_lsn for each in self.writers])
            data = b"".join(chunk for write in batch.writes for chunk in write.chunks)
            self.disk.write_file(f"{FOLDER}/shard-{shard}/{journal_name(Lsn(0))}", data)
            self.ends.append(batch.end)
        reader = JournalReader(self.disk, FOLDER, GEOMETRY, 2, lambda: self.ends)
        reader.seek_ts(Ts(0))
        found = []
        for transaction in reader.read():
            found.append(transaction.ts)
            assert transaction.ts < 50, "what is torn is never handed out"
        return found


def test_a_whole_transaction_of_two_shards_is_read() -> None:
    shards = Shards()
    shards.put(0, 9)
    shards.start(0, 10, [0, 1])
    shards.put(0, 10, FINISH)
    shards.put(1, 10)
    assert shards.read() == [9, 10]


def test_a_part_that_is_missing_is_torn() -> None:
    shards = Shards()
    shards.start(0, 50, [0, 1])
    shards.put(0, 50, FINISH)
    with pytest.raises(
        TransactionTorn, match=r"transaction 50 is announced for shards \[0, 1\] and has parts of \[0\]"
    ):
        shards.read()


def test_a_part_that_was_not_announced_is_torn() -> None:
    shards = Shards()
    shards.put(0, 50)
    shards.put(1, 50)
    with pytest.raises(TransactionTorn, match=r"has parts of shards \[0, 1\] and 0 start records"):
        shards.read()


def test_a_shard_too_many_is_torn() -> None:
    shards = Shards()
    shards.start(0, 50, [0])
    shards.put(0, 50, FINISH)
    shards.put(1, 50)
    with pytest.raises(TransactionTorn, match="announced"):
        shards.read()


def test_two_starts_are_torn() -> None:
    shards = Shards()
    for shard in (0, 1):
        shards.start(shard, 50, [0, 1])
        shards.put(shard, 50, FINISH)
    with pytest.raises(TransactionTorn, match="2 start records"):
        shards.read()


def test_a_start_of_another_ts_is_torn() -> None:
    shards = Shards()
    shards.start(0, 50, [0], says=49)
    shards.put(0, 50, FINISH)
    with pytest.raises(TransactionTorn, match="announced"):
        shards.read()


def test_a_transaction_that_begins_inside_another_is_corruption() -> None:
    shards = Shards()
    shards.put(0, 50, TS)
    shards.put(0, 51)
    with pytest.raises(Corruption, match="a transaction begins inside that of ts 50") as caught:
        shards.read()
    assert caught.value.path.endswith("shard-0/journal-0000000000000000.dj0")
    assert caught.value.frame == 0
    assert caught.value.position == 20 + 7 + 5
