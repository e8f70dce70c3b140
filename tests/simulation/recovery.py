"""Recover a disk, and hold what comes out against what is known.

After any crash the journal must show exactly the first `k` transactions of the ledger, for one `k` over all shards, and

- `k` covers what was promised: everything up to the durable ts after a power cut, everything up to the written ts after
  the death of the process alone, and everything that a reader was shown where readers see only what is durable;
- transactions come back whole, with the lsns that counting gives, from the newest snapshot and the journal behind it;
- no ts is ever given out twice, also not one whose transaction is lost;
- an epoch begins exactly if the stop was not clean;
- what is cut was torn, lies in `cut-tails` byte for byte, and is told;
- what was erased stays refused, and what was not can be read.

`Known` is what the run knows at the moment of the crash; it belongs to no disk, so any number of clones can be held
against it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulation.ledger import Ledger, PlainTransaction, State, apply_record, fold, plain
from tests.simulation.naive_parser import parse_shard
from tests.simulation.scenario import Scenario
from tidelog import limits
from tidelog.errors import TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Journal
from tidelog.journal.layout import CUT_TAILS
from tidelog.journal.merge import JournalReader
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLDER: Final = "/data"


class Violation(AssertionError):
    """The journal broke a promise."""


def require(condition: bool, *what: object) -> None:
    """Raise a `Violation` unless the condition holds. The words are only put together if they are needed."""
    if not condition:
        raise Violation(" ".join(map(str, what)))


@dataclass
class Known:
    """What the run knows and the journal has promised, up to this moment."""

    durable_ts: int = 0
    """Said to survive a power cut."""
    written_ts: int = 0
    """Said to survive the death of the process."""
    shown_ts: int = 0
    """Shown to a reader."""
    given_ts: int = 0
    """The largest that the clock ever gave out."""
    clean: bool | None = False
    """Whether the last stop was clean; None: it was cut short, so either is fine."""
    epochs: list[Epoch] = field(default_factory=list)
    """Of every start that finished."""
    tried_epoch_ids: set[int] = field(default_factory=set)
    """Of starts that did not finish: they may be there or not."""
    erased_ts: int = 0
    snapshot_ts: int = -1
    """The point of the newest snapshot that was finished; -1: none."""
    snapshot_states: dict[int, State] = field(default_factory=dict)
    """The keyspace at each point at which a snapshot was begun."""
    next_epoch_id: int = 1


@dataclass
class Recovered:
    """A journal that is open again."""

    journal: Journal
    count: int
    """How many transactions it has."""
    began_epoch: bool


class Recovery:
    """Opens disks and checks them against one ledger."""

    def __init__(self, scenario: Scenario, ledger: Ledger, known: Known, rng: Random, coverage: Counter[str]) -> None:
        self._scenario = scenario
        self._ledger = ledger
        self._known = known
        self._rng = rng
        self._coverage = coverage

    def open(self, disk: SimulatedDisk, clock: SimulatedClock) -> tuple[Journal, list[PlainTransaction], int | None]:
        """Open a disk without any check: the journal, what it replayed, and the id of an epoch if one began."""
        known = self._known
        replayed: list[PlainTransaction] = []
        epoch_id: int | None = None

        def new_epoch_id() -> int:
            nonlocal epoch_id
            epoch_id = known.next_epoch_id
            known.next_epoch_id += 1
            known.tried_epoch_ids.add(epoch_id)
            return epoch_id

        journal = Journal.open(
            disk,
            FOLDER,
            clock,
            self._scenario.settings,
            apply=lambda transaction, payload_of: replayed.append(plain(transaction, payload_of)),
            new_epoch_id=new_epoch_id,
        )
        return journal, replayed, epoch_id

    def recover(
        self, disk: SimulatedDisk, clock: SimulatedClock, *, was_killed: bool, exactly: int | None = None
    ) -> Recovered:
        """Open a disk after a crash and check everything.

        `exactly`: it was recovered before, to so many transactions; what it was stopped by then no longer counts.
        """
        before = disk.clone(0)
        journal, replayed, epoch_id = self.open(disk, clock)
        count = self._check_prefix(journal, replayed)
        self._check_tail(before, disk, journal)
        if exactly is not None:
            require(count == exactly, "recovering twice gave", exactly, "and then", count, "transactions")
        self._check_promises(count, was_killed)
        self._check_epochs(journal, count, epoch_id, None if exactly is not None else self._known.clean)
        self._check_files(disk, journal)
        self._check_readers(journal, count)
        ts = journal.hlc.next()
        require(ts > self._known.given_ts, "ts", ts, "was given out before: the last was", self._known.given_ts)
        return Recovered(journal, count, epoch_id is not None)

    # --- what was recovered -------------------------------------------------------------------------------------

    def _check_prefix(self, journal: Journal, replayed: list[PlainTransaction]) -> int:
        ledger, known, plan = self._ledger, self._known, journal.recovered
        last_ts = journal.writer.written_ts
        count = ledger.count_up_to(last_ts)
        require((ledger.ts[count - 1] if count else 0) == last_ts, "recovered to a ts that was never written:", last_ts)
        first = 0
        if plan.snapshot is not None:
            self._coverage["recovered_from_snapshot"] += 1
            point_ts = plan.snapshot.point.ts
            first = ledger.count_up_to(point_ts)
            require(first <= count, "the journal ends before the snapshot")
            split = next((i for i, (ts, _) in enumerate(replayed) if ts > point_ts), len(replayed))
            state: State = {}
            for ts, parts in replayed[:split]:
                require(ts == point_ts and len(parts) == 1, "a record of the snapshot has ts", ts)
                for shard, records in parts:
                    for record in records:
                        apply_record(state, shard, record)
            require(state == known.snapshot_states.get(point_ts), "the snapshot of ts", point_ts, "is another state")
            require(tuple(plan.snapshot.point.lsns) == ledger.vectors[first], "the snapshot's lsns")
            replayed = replayed[split:]
        require(
            known.snapshot_ts <= (plan.snapshot.point.ts if plan.snapshot else -1), "a finished snapshot is forgotten"
        )
        if replayed != ledger.transactions[first:count]:
            raise Violation(first_difference(replayed, ledger.transactions[first:count]))
        if plan.snapshot is not None and self._rng.random() < 0.1:
            state = fold(replayed, dict(known.snapshot_states[plan.snapshot.point.ts]))
            require(state == ledger.state_at(count), "snapshot and journal give another state")
        vector = ledger.vectors[count]
        require(tuple(plan.lsns) == vector, "recovered to lsns", plan.lsns, "instead of", vector)
        require(tuple(journal.writer.written.lsns) == vector, "the writer goes on at", journal.writer.written.lsns)
        require(journal.writer.visible == journal.writer.written, "something is written and not visible at the start")
        if count < len(ledger):
            self._coverage["transactions_lost"] += 1
        return count

    def _check_tail(self, before: SimulatedDisk, disk: SimulatedDisk, journal: Journal) -> None:
        """Everything that the files had behind the cuts is kept, and the figures speak of it."""
        tail, cut = journal.recovered.tail, journal.cut_tail
        if not tail.pieces:
            return
        self._coverage["tail_cut"] += 1
        if cut is None:
            raise Violation(f"{tail.journal_bytes} bytes were cut, and nobody is told")
        require(tail.records <= sum(piece.size for piece in tail.pieces), "more records than bytes:", tail.records)
        require(not tail.first_ts or tail.first_ts > journal.writer.written_ts, "the tail begins at", tail.first_ts)
        require(tail.last_ts <= max(self._known.given_ts, self._ledger.last_ts), "the tail ends at", tail.last_ts)
        self._coverage["tail_with_records"] += tail.records > 0
        for shard, name, start, size in tail.pieces:
            cut_off = before.read_file(f"{FOLDER}/shard-{shard}/{name}")[start:]
            require(len(cut_off) == size, "a tail of", len(cut_off), "bytes is said to have", size)
            folder = f"{cut.path}/shard-{shard}"
            kept = [disk.read_file(f"{folder}/{each}") for each in disk.list(folder) if each.startswith(name)]
            require(cut_off in kept, "the tail of", name, "from", start, "is gone")
        count = len(disk.list(f"{FOLDER}/{CUT_TAILS}"))
        require(count <= limits.CUT_TAILS_KEPT, count, "tails are kept")

    def _check_promises(self, count: int, was_killed: bool) -> None:
        known, ledger = self._known, self._ledger
        promised = [("durable", known.durable_ts), ("in a snapshot", known.snapshot_ts)]
        if was_killed:
            promised.append(("written", known.written_ts))
        if was_killed or self._scenario.settings.policy is FsyncPolicy.ALWAYS:
            promised.append(("shown to a reader", known.shown_ts))
        for promise, ts in promised:
            needed = ledger.count_up_to(ts)
            require(count >= needed, "of", needed, "transactions that were", promise, "only", count, "are left")

    def _check_epochs(self, journal: Journal, count: int, epoch_id: int | None, was_clean: bool | None) -> None:
        known, ledger = self._known, self._ledger
        if was_clean is not None:
            require(was_clean == (epoch_id is None), "clean stop:", was_clean, "new epoch:", epoch_id)
        confirmed = {epoch.id for epoch in known.epochs}
        older = journal.epochs if epoch_id is None else journal.epochs[:-1]
        found = [epoch for epoch in older if epoch.id in confirmed or epoch.id not in known.tried_epoch_ids]
        require(found == known.epochs, "epochs", found, "instead of", known.epochs)
        for epoch in journal.epochs:
            before = ledger.count_up_to(epoch.last_ts)
            require(
                (ledger.ts[before - 1] if before else 0) == epoch.last_ts and epoch.lsns == ledger.vectors[before],
                "an epoch that begins where nothing does:",
                epoch,
            )
        if epoch_id is not None:
            last = journal.epochs[-1]
            written = epoch_id, ledger.vectors[count], journal.writer.written_ts
            require((last.id, last.lsns, last.last_ts) == written, "new epoch", last)
            require(last.last_ts < last.first_ts <= journal.hlc.last, "first ts of a new epoch", last)

    def _check_files(self, disk: SimulatedDisk, journal: Journal) -> None:
        known = self._known
        partial = [name for name in disk.list(f"{FOLDER}/snapshots") if name.endswith(".partial")]
        require(not partial, "half-written snapshots are left:", partial)
        require(journal.erased_ts >= known.erased_ts, "erased up to", known.erased_ts, "not", journal.erased_ts)

    # --- readers ------------------------------------------------------------------------------------------------

    def _check_readers(self, journal: Journal, count: int) -> None:
        """What the journal still has can be read from any ts and from any lsns; what it has not is refused."""
        rng, ledger = self._rng, self._ledger
        if rng.random() < (0.6 if journal.recovered.snapshot is None else 0.3):
            return
        erased = ledger.count_up_to(journal.erased_ts)
        start = min(erased, count) if rng.random() < 0.5 else rng.randint(min(erased, count), count)
        since = Ts(max(ledger.ts[start - 1] if start else 0, journal.erased_ts))
        self.check_reader(journal.reader_since(since), start, count)
        if erased and rng.random() < 0.5:
            with_old = ledger.ts[rng.randrange(erased)]
            if with_old < journal.erased_ts:
                try:
                    journal.reader_since(Ts(with_old))
                except TooOld:
                    self._coverage["too_old"] += 1
                else:
                    raise Violation(f"ts {with_old} is served although {journal.erased_ts} is erased")
        start = rng.randint(0, count)
        try:
            reader = journal.reader_from([Lsn(lsn) for lsn in ledger.vectors[start]])
            self.check_reader(reader, start, count)
        except TooOld:
            require(start <= erased, "lsns", ledger.vectors[start], "are too old, but only", erased, "are erased")

    def check_reader(self, reader: JournalReader, start: int, end: int) -> None:
        """A reader that begins after `start` transactions shows exactly those up to `end`, and is closed."""
        try:
            self.check_pass(reader, start, end)
        finally:
            reader.close()

    def check_pass(self, reader: JournalReader, start: int, end: int) -> None:
        """One pass of a reader shows exactly the transactions from `start` up to `end`."""
        shown = [plain(transaction, reader.payload_of) for transaction in reader.read()]
        if shown != self._ledger.transactions[start:end]:
            difference = first_difference(shown, self._ledger.transactions[start:end])
            raise Violation(f"a reader of transactions {start} to {end}: {difference}")

    # --- the second opinion -------------------------------------------------------------------------------------

    def check_naively(self, disk: SimulatedDisk, count: int) -> None:
        """Parse the files with the naive parser: they hold the same."""
        ledger, shard_count = self._ledger, self._scenario.shard_count
        for shard in range(shard_count):
            folder = f"{FOLDER}/shard-{shard}"
            files = {name: disk.read_file(f"{folder}/{name}") for name in disk.list(folder)}
            parsed = parse_shard(files, self._scenario.frame_bytes, shard, shard_count)
            require(parsed.next_lsn == ledger.vectors[count][shard], "the files end at lsn", parsed.next_lsn)
            expected = [(ts, records) for ts, records in ledger.shard_parts(shard) if ts <= ledger.ts[count - 1]]
            expected = [part for part in expected if part[1][0][0] >= parsed.first_lsn]
            require(parsed.transactions == expected, "the naive parser reads something else in shard", shard)
            for _, last_ts, ends in parsed.vectors:
                at = ledger.count_up_to(last_ts)
                require(ends == ledger.vectors[at], "a mark of ts", last_ts, "has ends", ends)
            self._coverage["naive_split"] += parsed.split_count
            self._coverage["naive_blob"] += parsed.blob_count
        self._coverage["naive"] += 1


def first_difference(found: list[PlainTransaction], expected: list[PlainTransaction]) -> str:
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"transaction {index} is {_short(one)} instead of {_short(other)}"
    return f"{len(found)} transactions were replayed instead of {len(expected)}"


def _short(transaction: PlainTransaction) -> str:
    ts, parts = transaction
    shown = [
        (shard, [(lsn, hex(opcode), database, expire, len(payload)) for lsn, opcode, database, expire, payload in part])
        for shard, part in parts
    ]
    return f"ts {ts}: {shown}"
