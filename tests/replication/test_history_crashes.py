"""A follower over kills, power cuts and erasures of its leader: it always has a prefix of one history, and catches up.

The follower is a list of transactions and epochs: what came out of a link, whole. When its leader comes back it asks
where it stands. It goes on, goes back to where it has diverged, or, if the journal has moved past it, begins anew with
what the leader has: nothing else may happen.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.journal.machine import Machine
from tests.replication.receiving import Kept, Receiver, journaled
from tests.replication.test_history import small_pieces, work
from tidelog.errors import TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.retention import RetentionLimits
from tidelog.replication.history import epochs_at
from tidelog.replication.message import EpochBegins, HistoryPosition, Reached, ShardEnd
from tidelog.replication.shared_history import Diverged, Erased, Shared, compare
from tidelog.testing.disk import CRASH_STYLES


class Follower:
    """What a follower has, and the link that it has now."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._shards = machine.settings.shard_count
        self.transactions: list[Kept] = []
        self.epochs: list[Epoch] = []
        self._begin = HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),) * self._shards)
        """What lies before its transactions."""
        self._link: Receiver | None = None
        self.outcomes: list[type] = []

    @property
    def position(self) -> HistoryPosition:
        ts, ends = self._begin.ts, list(self._begin.shards)
        for ts, records in self.transactions:
            for sent in records:
                ends[sent.shard] = ShardEnd(Lsn(sent.lsn + 1), ts)
        return HistoryPosition(Ts(ts), tuple(ends))

    def lose_link(self) -> None:
        """Keep what was whole."""
        if self._link is None:
            return
        link, self._link = self._link, None
        link.history.close()
        self.transactions += link.transactions
        known = {epoch.id for epoch in self.epochs}
        came = [found.epoch for found in link.whole if isinstance(found, EpochBegins)]
        self.epochs += [epoch for epoch in came if epoch.id not in known]

    def connect(self) -> None:
        """Ask where it stands, until it may go on."""
        journal = self._machine.journal
        for _ in range(3):
            found = compare(journal, self.epochs, self.position)
            self.outcomes.append(type(found))
            if isinstance(found, Shared):
                self._link = Receiver(journal, self.position, found.next_epoch)
                return
            if isinstance(found, Diverged):
                self._go_back(found)
            else:
                assert isinstance(found, Erased), found
                self._begin_anew()
                return
        raise AssertionError("it goes back again and again")

    def _go_back(self, found: Diverged) -> None:
        lost = [ts for ts, _ in self.transactions if ts > found.since]
        assert lost == sorted(lost)
        self.transactions = [each for each in self.transactions if each[0] <= found.since]
        ids = [epoch.id for epoch in self.epochs]
        del self.epochs[ids.index(found.epoch) + 1 :]
        assert self.position.ts == found.since, "it had all before that"

    def _begin_anew(self) -> None:
        """With a snapshot of the leader's: its effect, its moment and its epochs."""
        journal = self._machine.journal
        snapshot = journal.newest_snapshot
        assert snapshot is not None
        self.epochs, self.transactions = [], []
        snapshot.read(self._machine.disk, lambda _, __: None, self.epochs.append)
        self._begin = HistoryPosition(snapshot.point.ts, tuple(ShardEnd(lsn, None) for lsn in snapshot.point.lsns))
        begin = Reached(self._begin.ts, self._begin.lsns)
        self._link = Receiver(journal, self._begin, epochs_at(journal.epochs, begin))

    def take(self, steps: int) -> None:
        for _ in range(steps):
            if self._link is None:
                self.connect()
            assert self._link is not None
            try:
                if not self._link.step():
                    return
            except TooOld:
                self.lose_link()

    def check(self) -> None:
        """It has caught up: all that the leader still has is here."""
        self.take(10**9)
        self.lose_link()
        journal = self._machine.journal
        since = max(journal.erased_ts, self._begin.ts)
        assert [each for each in self.transactions if each[0] > since] == journaled(journal, since)
        assert self.epochs == journal.epochs[-len(self.epochs) :]
        assert self.position.lsns == journal.writer.visible.lsns


def run(seed: int) -> list[type]:
    rng = Random(seed)
    policy = rng.choice(list(FsyncPolicy))
    machine = Machine(
        seed=seed,
        shards=rng.choice([1, 2, 3]),
        ring_bytes_max=rng.choice([0, 3000, 10**6]),
        frames_per_segment=rng.choice([2, 4, 8]),
        policy=policy,
        retention=RetentionLimits(bytes_max=0, snapshots_kept=1),
    )
    follower = Follower(machine)
    for _ in range(rng.randrange(2, 12)):
        work(machine, rng, rng.randrange(1, 12), syncs=policy is FsyncPolicy.ALWAYS or rng.random() < 0.3)
        follower.take(rng.choice([0, 1, 3, 1000]))
        what = rng.random()
        if what < 0.15:
            follower.lose_link()
        elif what < 0.3:
            machine.snapshot({})
            machine.journal.erase()
        elif what < 0.6:
            follower.lose_link()
            if rng.random() < 0.3:
                machine.disk.kill()
            else:
                machine.disk.crash(rng.choice(CRASH_STYLES))
            machine.open()
    follower.check()
    return follower.outcomes


@pytest.mark.parametrize("part", range(4))
def test_a_follower_catches_up_whatever_happens_to_its_leader(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    outcomes: list[type] = []
    for number in range(60):
        seed = 1000 * part + number
        try:
            outcomes += run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert set(outcomes) == {Shared, Diverged, Erased}, "each of them happens"
