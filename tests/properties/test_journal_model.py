"""The journal against a naive model: a list of transactions, and how many of them are written and durable.

Hypothesis writes, syncs, snapshots, erases, stops, kills and cuts the power in any order, with readers that come and
go in between. What must hold after every step:

- readers see exactly the visible prefix, each transaction once, whole and in order, from wherever they began;
- a clean stop keeps everything, a kill everything that was written, a power cut everything that was durable, and each
  of them a prefix; the state that is replayed is that of a naive store after this prefix;
- who asks for what was erased is told so, and nobody else is.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.journal.machine import FOLDER, TABLE, Machine, Put, Seen, State, seen
from tidelog.errors import TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.merge import JournalReader
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.sidecar import Sidecars
from tidelog.testing.disk import CRASH_STYLES, CrashStyle

SHARDS = 2
READERS_MAX = 3
KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 100])
SIZES = st.sampled_from([0, 1, 60, 120, 250, 700])
PUTS = st.lists(
    st.tuples(st.integers(0, SHARDS - 1), KEYS, SIZES, st.sampled_from([0, 0, 0, 1])), min_size=1, max_size=5
)


def state_after(history: list[Seen]) -> State:
    state: State = {}
    for transaction in history:
        for shard, key, value, database in transaction.puts:
            state[shard, database, key] = value
    return state


def in_order_of_parts(puts: list[Put]) -> tuple[tuple[int, bytes, bytes, int], ...]:
    """As a reader hands them out: shard by shard."""
    full = [(put[0], put[1], put[2], put[3] if len(put) == 4 else 0) for put in puts]
    return tuple(sorted(full, key=lambda put: put[0]))


class Follower:
    """A reader, and how much of the history it has seen."""

    def __init__(self, reader: JournalReader, seen_count: int) -> None:
        self.reader = reader
        self.seen_count = seen_count


class JournalModel(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        policy=st.sampled_from(list(FsyncPolicy)),
        frames_per_segment=st.sampled_from([4, 8]),
        ring_bytes_max=st.sampled_from([0, 3000, 10**6]),
        seed=st.integers(0, 2**16),
    )
    def begin(self, policy: FsyncPolicy, frames_per_segment: int, ring_bytes_max: int, seed: int) -> None:
        self.machine = Machine(
            seed=seed,
            shards=SHARDS,
            frames_per_segment=frames_per_segment,
            policy=policy,
            ring_bytes_max=ring_bytes_max,
            retention=RetentionLimits(bytes_max=0, snapshots_kept=1),
        )
        self.is_always = policy is FsyncPolicy.ALWAYS
        self.history: list[Seen] = []
        self.written_count = self.durable_count = 0
        self.followers: list[Follower] = []
        self.is_open = True

    @property
    def visible_count(self) -> int:
        return self.durable_count if self.is_always else self.written_count

    # --- writing ------------------------------------------------------------------------------------------------

    @rule(rows=PUTS)
    def append(self, rows: list[tuple[int, bytes, int, int]]) -> None:
        fill = bytes([len(self.history) % 256])
        puts: list[Put] = [(shard, key, fill * size, database) for shard, key, size, database in rows]
        ts = self.machine.append(*puts)
        assert not self.history or ts > self.history[-1].ts
        self.history.append(Seen(ts, in_order_of_parts(puts)))

    @rule()
    def write(self) -> None:
        self.machine.journal.writer.write()
        self.written_count = len(self.history)

    @rule()
    def sync(self) -> None:
        self.machine.journal.writer.sync()
        self.durable_count = self.written_count

    @rule(rows=PUTS, count=st.integers(1, 12))
    def commit_many(self, rows: list[tuple[int, bytes, int, int]], count: int) -> None:
        for _ in range(count):
            self.append(rows)
            self.write()
        self.sync()

    # --- keeping it small ---------------------------------------------------------------------------------------

    @rule()
    def snapshot(self) -> None:
        writer = self.machine.journal.begin_snapshot()
        self.written_count = len(self.history)
        if writer is not None:
            writer.abandon()
            self.machine.snapshot(state_after(self.history))
            self.durable_count = self.written_count

    @rule()
    def erase(self) -> None:
        before = self.machine.journal.erased_ts
        going = self.machine.journal.erase()
        assert self.machine.journal.erased_ts == max([before, *(segment.last_ts for segment in going)])

    @rule()
    def make_sidecars(self) -> None:
        self.machine.journal.make_sidecars(TABLE, 3)

    # --- readers ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.followers) < READERS_MAX)
    @rule(data=st.data())
    def begin_to_read(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, self.visible_count), label="place")
        since = self.history[place - 1].ts if place else Ts(0)
        if since < self.machine.journal.erased_ts:
            with pytest.raises(TooOld):
                self.machine.journal.reader_since(since)
        else:
            self.followers.append(Follower(self.machine.journal.reader_since(since), place))

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), at_most=st.sampled_from([1, 3, 1000]))
    def read(self, data: st.DataObject, at_most: int) -> None:
        follower = data.draw(st.sampled_from(self.followers), label="follower")
        found = []
        try:
            for transaction in follower.reader.read():
                found.append(seen(transaction, follower.reader.payload_of))
                if len(found) == at_most:
                    break
        except TooOld:
            place = follower.seen_count + len(found)
            assert (self.history[place - 1].ts if place else 0) < self.machine.journal.erased_ts
            self.followers.remove(follower)
            return
        expected = self.history[follower.seen_count : self.visible_count][:at_most]
        assert found == expected
        follower.seen_count += len(found)

    # --- the end of a process -----------------------------------------------------------------------------------

    @rule()
    def stop(self) -> None:
        self.machine.journal.close()
        self.written_count = self.durable_count = len(self.history)
        self._open(self.written_count, self.written_count)
        assert self.machine.journal.hlc.was_clean

    @rule()
    def kill(self) -> None:
        self.machine.disk.kill()
        self._open(self.written_count, self.written_count)

    @rule(style=st.sampled_from(CRASH_STYLES))
    def cut_power(self, style: CrashStyle) -> None:
        self.machine.disk.crash(style)
        self._open(self.durable_count, self.written_count)

    def _open(self, at_least: int, at_most: int) -> None:
        self.is_open = False
        journal = self.machine.open()
        self.is_open = True
        kept = sum(each.ts <= journal.recovered.last_ts for each in self.history)
        assert at_least <= kept <= at_most
        del self.history[kept:]
        self.written_count = self.durable_count = kept
        assert self.machine.state == state_after(self.history)
        assert (journal.recovered.last_ts or 0) == (self.history[-1].ts if self.history else 0)
        self.followers.clear()

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def positions_are_those_of_the_model(self) -> None:
        writer = self.machine.journal.writer

        def last(count: int) -> int:
            return self.history[count - 1].ts if count else 0

        assert writer.written_ts == last(self.written_count)
        assert writer.durable_ts == last(self.durable_count)
        assert writer.visible.ts == last(self.visible_count)

    def teardown(self) -> None:
        """At the end, everything that the journal still has is read, and every sidecar agrees with its frames."""
        if not getattr(self, "is_open", False):
            return
        self.write()
        self.sync()
        oldest = self.machine.journal.erased_ts
        assert self.machine.read(oldest) == [each for each in self.history if each.ts > oldest]
        self.machine.journal.make_sidecars(TABLE, 1000)
        for shard in range(SHARDS):
            self._check_sidecars(shard)

    def _check_sidecars(self, shard: int) -> None:
        source = self.machine.source(shard)
        by_lsn = self._keys_by_lsn(shard)
        for segment in source.segments()[:-1]:
            frames = self.machine.settings.geometry.frames_per_segment
            path = f"{FOLDER}/shard-{shard}"
            for summary in Sidecars(self.machine.disk, source, TABLE).summaries(segment, frames):
                for lsn in range(summary.first_lsn, summary.end_lsn):
                    assert all(summary.may_hold_key(key) for key in by_lsn.get(Lsn(lsn), ())), path

    def _keys_by_lsn(self, shard: int) -> dict[Lsn, list[bytes]]:
        reader = self.machine.journal.reader_since(self.machine.journal.erased_ts)
        found = {}
        for transaction in reader.read():
            for part in transaction.parts:
                for record in part.records:
                    if part.shard == shard:
                        found[record.lsn] = list(TABLE.keys(record.opcode, reader.payload_of(part, record)) or ())
        return found


JournalModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestJournalModel = JournalModel.TestCase
