"""A history whose every step is known, for the tests of going back in it.

`Past` writes it, and keeps beside the journal a plain list of what happened (`steps`) and of where cycles ended. From
that list alone it says what must be found after a rewind: nothing of the journal's own code decides it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.journal.machine import FOLDER, TABLE, Machine, Put, Seen, State
from tests.journal.test_repair import files
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import EPOCHS, Epoch, decode_epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.inspection import ShardInspection, locate
from tidelog.journal.layout import REWINDING, SNAPSHOTS
from tidelog.journal.operation import START, decode_pairs
from tidelog.journal.record_inspection import RecordInfo, Selection, select_records
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.rewind import Rewound
from tidelog.journal.snapshot import list_snapshot_paths, snapshot_path
from tidelog.journal.verify import verify
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

NEVER_USED: Final = 10_000
"""Epochs that are begun after a rewind count from here."""

Step = Seen | int
"""A transaction, or the id of an epoch that begins."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rewind must lead to."""

    steps: int
    """So many of the first steps stay."""
    ends_ts: Ts
    is_possible: bool


class Past:
    """A machine and what has happened on it."""

    def __init__(
        self,
        *,
        seed: int = 0,
        shards: int = 2,
        frames_per_segment: int = 2,
        policy: FsyncPolicy = FsyncPolicy.ALWAYS,
        retention: RetentionLimits | None = None,
    ) -> None:
        self.machine = Machine(
            seed=seed, shards=shards, frames_per_segment=frames_per_segment, policy=policy, retention=retention
        )
        self.shards = shards
        self.steps: list[Step] = []
        self.cycles: list[int] = [0]
        """After how many steps a cycle ended."""
        self.snapshots: dict[str, int] = {}
        """Path -> after how many steps it was made."""
        self._note_epoch()
        self.cycles.append(len(self.steps))

    # --- what happens -------------------------------------------------------------------------------------------

    def append(self, *puts: Put) -> Ts:
        """A transaction that the next cycle has."""
        ts = self.machine.append(*puts)
        order = sorted(puts, key=lambda put: put[0])
        self.steps.append(Seen(ts, tuple((put[0], put[1], put[2], put[3] if len(put) == 4 else 0) for put in order)))
        return ts

    def write(self, *, syncs: bool = True) -> None:
        """End a cycle."""
        self.machine.journal.writer.write()
        if syncs:
            self.machine.journal.writer.sync()
        self.cycles.append(len(self.steps))

    def commit(self, *puts: Put) -> Ts:
        ts = self.append(*puts)
        self.write()
        return ts

    def receive_epoch(self) -> int:
        """An epoch that came from a leader, and that the next cycle has."""
        writer = self.machine.journal.writer
        epoch_id = self.machine._new_epoch_id()
        first_ts = self.machine.journal.hlc.next()
        self.machine.journal.append_received_epoch(Epoch(epoch_id, writer.next_lsns, writer.last_ts, first_ts))
        self.steps.append(epoch_id)
        return epoch_id

    def restart(self, *, is_clean: bool) -> None:
        """A start that leads: after a kill it begins an epoch."""
        if is_clean:
            self.machine.journal.close()
        else:
            self.machine.disk.kill()
        known = len(self.epochs())
        self.machine.open()
        if len(self.machine.journal.epochs) > known:
            self._note_epoch()
        self.cycles.append(len(self.steps))

    def _note_epoch(self) -> None:
        self.steps.append(self.machine.journal.epochs[-1].id)

    def snapshot(self) -> None:
        made = self.machine.snapshot(self.state(len(self.steps)))
        self.snapshots[made.path] = len(self.steps)

    def erase(self) -> None:
        self.machine.journal.erase()

    # --- what must be found -------------------------------------------------------------------------------------

    def epochs(self, steps: int | None = None) -> list[int]:
        return [step for step in self.steps[:steps] if isinstance(step, int)]

    def transactions(self, steps: int | None = None) -> list[Seen]:
        return [step for step in self.steps[:steps] if not isinstance(step, int)]

    def state(self, steps: int) -> State:
        return {
            (shard, database, key): value
            for seen in self.transactions(steps)
            for shard, key, value, database in seen.puts
        }

    def last_ts(self, steps: int) -> Ts:
        return max((seen.ts for seen in self.transactions(steps)), default=Ts(0))

    def expect(self, since: int, epoch: int, disk: SimulatedDisk | None = None) -> Expected:
        """Where a rewind must end: by the list of steps alone, and by which files are there."""
        disk = disk or self.machine.disk
        known = self.epochs()
        shared = set(known[: known.index(epoch) + 1]) if epoch else set()
        steps = max(end for end in self.cycles if self.last_ts(end) <= since and shared.issuperset(self.epochs(end)))
        kept = [self.snapshots[path] for path in list_snapshot_paths(disk, FOLDER)]
        # A snapshot has the epochs that had begun: one that is made at the same ts may have one too many.
        has_snapshot = any(
            made <= steps or (self.last_ts(made) <= since and shared.issuperset(self.epochs(made))) for made in kept
        )
        begins = all(disk.exists(f"{FOLDER}/shard-{shard}/journal-{0:016x}.dj0") for shard in range(self.shards))
        return Expected(steps, self.last_ts(steps), has_snapshot or begins)

    def check(self, disk: SimulatedDisk, expected: Expected) -> Machine:
        """The directory opens with exactly what is expected, and can be gone on with."""
        machine = self.on(disk)
        journal = machine.open(leads=False)
        assert machine.state == self.state(expected.steps)
        assert [epoch.id for epoch in journal.epochs] == self.epochs(expected.steps)
        assert journal.writer.last_ts == expected.ends_ts
        assert journal.recovered.tail_bytes == 0
        assert journal.needs_epoch, "whoever leads from here begins one"
        read = machine.read(journal.erased_ts)
        assert read == [seen for seen in self.transactions(expected.steps) if seen.ts > journal.erased_ts]
        return machine

    def check_goes_on(self, machine: Machine, expected: Expected) -> None:
        """What is written from here on is there after a start, and nothing is wrong with the files."""
        highest = max(seen.ts for seen in self.transactions())
        began = machine.journal.begin_epoch(NEVER_USED)
        assert began.first_ts > highest, "no ts is ever given out twice"
        assert began.last_ts == expected.ends_ts
        later = [machine.commit((shard, b"later", bytes(400))) for shard in range(self.shards)]
        machine.journal.close()
        assert verify(machine.disk, FOLDER, TABLE).problems == []
        machine.open()
        after = {(shard, 0, b"later"): bytes(400) for shard in range(self.shards)}
        assert machine.state == {**self.state(expected.steps), **after}
        assert [epoch.id for epoch in machine.journal.epochs] == [*self.epochs(expected.steps), NEVER_USED]
        assert [seen.ts for seen in machine.read(max(expected.ends_ts, machine.journal.erased_ts))] == later[
            -len(later) if machine.journal.erased_ts <= expected.ends_ts else len(later) :
        ]

    def on(self, disk: SimulatedDisk) -> Machine:
        """A machine that has this disk; not opened yet."""
        machine = copy(self.machine)
        machine.disk, machine.clock, machine._epoch_id = disk, SimulatedClock(), NEVER_USED
        machine.clock.set_wall(self.machine.clock.wall_us() + 1000)
        return machine


# --- what is set aside --------------------------------------------------------------------------------------------


def show(disk: SimulatedDisk, path: str) -> list[RecordInfo]:
    """What `tidelog journal show --payload` prints; nothing in it may be damaged."""
    place = locate(disk, path)
    assert place.kind == "data"
    found: list[RecordInfo] = []
    for shard in place.shards:
        inspection = ShardInspection(disk, place, shard)
        found += select_records(inspection, TABLE, Selection(payloads=True))
        assert inspection.damage == []
        assert inspection.tail is None
        inspection.close()
    assert all(record.is_proved and record.problem is None for record in found)
    return found


def steps_of(disk: SimulatedDisk, path: str) -> list[Step]:
    """The same as steps: transactions in order, epochs between them."""
    records = show(disk, path)
    puts: dict[Ts, list[tuple[int, bytes, bytes, int]]] = {}
    for record in records:
        if record.lsn is not None and record.opcode != START:
            assert record.payload is not None
            for key, value in decode_pairs(record.payload):
                puts.setdefault(record.ts, []).append((record.shard, key, value, record.database))
    steps: list[tuple[float, Step]] = [(ts, Seen(ts, tuple(found))) for ts, found in puts.items()]
    for index, record in enumerate(records):
        if record.opcode in EPOCHS:
            assert record.payload is not None
            epoch = decode_epoch(record.opcode, record.payload)
            lsns = [each.lsn for each in records[:index] if each.shard == record.shard and each.lsn is not None]
            assert lsns[-1:] in ([], [epoch.lsns[record.shard] - 1]), "it lies where it began, on every shard"
            lsns = [each.lsn for each in records[index:] if each.shard == record.shard and each.lsn is not None]
            assert lsns[:1] in ([], [epoch.lsns[record.shard]])
            if record.shard == 0:
                steps.append((epoch.last_ts + 0.5 + index / 2**20, epoch.id))
    return [step for _, step in sorted(steps, key=lambda each: each[0])]


def lsns_of(disk: SimulatedDisk, path: str, shards: int) -> list[list[Lsn]]:
    """Per shard, the lsns that are there."""
    found = show(disk, path)
    return [[each.lsn for each in found if each.shard == shard and each.lsn is not None] for shard in range(shards)]


# --- a rewind ------------------------------------------------------------------------------------------------------


def written(
    *,
    shards: int = 2,
    count: int = 24,
    snapshots: tuple[int, ...] = (),
    frames_per_segment: int = 2,
    snapshots_kept: int = 2,
) -> Past:
    """One cycle a transaction, every third over all shards, some with blobs."""
    retention = RetentionLimits(snapshots_kept=snapshots_kept)
    past = Past(shards=shards, frames_per_segment=frames_per_segment, retention=retention)
    for number in range(count):
        over = range(shards) if number % 3 == 0 else [number % shards]
        past.commit(
            *[(shard, b"k%d" % (number % 5), b"%d" % number + bytes(700 if number % 7 == 3 else 90)) for shard in over]
        )
        if number in snapshots:
            past.snapshot()
    return past


def check_rewound(past: Past, disk: SimulatedDisk, since: int, epoch: int, rewound: Rewound) -> Expected:
    """All that must hold after a rewind, whatever the history was."""
    expected = past.expect(since, epoch, past.machine.disk)
    check_aside(past, disk, since, expected, rewound)
    machine = past.check(disk.clone(1), expected)
    past.check_goes_on(machine, expected)
    return expected


def check_aside(past: Past, disk: SimulatedDisk, since: int, expected: Expected, rewound: Rewound) -> None:
    """Everything that was cut is aside, and it is told how much of that is not shared."""
    cut = past.steps[expected.steps :]
    lost = [seen for seen in past.transactions() if seen.ts > since]
    assert rewound.ends_ts == expected.ends_ts
    assert (rewound.first_ts, rewound.last_ts) == ((lost[0].ts, lost[-1].ts) if lost else (0, 0))
    assert rewound.records == sum(len(seen.puts) + (len({put[0] for put in seen.puts}) > 1) for seen in lost)
    if any(not isinstance(step, int) for step in cut):
        assert steps_of(disk, rewound.path) == cut
    else:
        assert rewound.records == 0
    if rewound.path:
        aside = {path: data for path, data in files(disk, rewound.path).items() if f"/{SNAPSHOTS}/" not in path}
        assert rewound.size_bytes == sum(len(data) for path, data in aside.items() if "/shard-" in path)
    assert not [name for name in disk.list(FOLDER) if name.endswith(".partial")]
    assert not disk.exists(f"{FOLDER}/{REWINDING}")


# --- histories by chance ------------------------------------------------------------------------------------------


def random_past(seed: int, *, length: int = 60) -> Past:
    """1 to 3 shards, transactions over them, blobs, databases, several cycles a segment, epochs of all kinds, snapshots
    and erased beginnings. It is still open."""
    rng = Random(seed)
    past = Past(
        seed=seed,
        shards=rng.choice([1, 2, 3]),
        frames_per_segment=rng.choice([1, 2, 4]),
        retention=RetentionLimits(bytes_max=rng.choice([0, 4000, 1 << 30]), snapshots_kept=rng.choice([1, 2, 3])),
    )
    for _ in range(length):
        chance = rng.random()
        if chance < 0.82:
            shards = rng.sample(range(past.shards), rng.randint(1, past.shards))
            size = rng.choice([1, 20, 150, 240, 700])  # the last is a blob, the one before is split at times
            past.append(
                *[(shard, b"k%d" % rng.randrange(6), rng.randbytes(size), rng.choice([0, 0, 3])) for shard in shards]
            )
            if rng.random() < 0.7:
                past.write()
        elif chance < 0.86:
            past.receive_epoch()
            if rng.random() < 0.4:
                past.write()
        elif chance < 0.92:
            past.write()
            past.restart(is_clean=rng.random() < 0.5)
        elif chance < 0.96:
            past.write()
            path = snapshot_path(FOLDER, past.machine.journal.writer.written.ts)
            if path not in list_snapshot_paths(past.machine.disk, FOLDER):
                past.snapshot()
        else:
            past.erase()
    past.write()
    return past
