"""A small journal to damage, and the judgement of what an open made of the damage.

What a later mark names as synced is *vouched for*: damage there must be found. What comes after may be taken for a tail
that a crash tore. So a specimen remembers, of every file, how much of it was vouched for when its last mark was
written, and how many transactions that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Final

from tests.journal.earlier_holders import write_holders
from tests.simulation.ledger import VAL, Ledger, PlainTransaction, fold, plain
from tests.simulation.scenario import Scenario, Workload
from tidelog.errors import Corruption, EnvironmentFault
from tidelog.ids import ShardId
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.operation import encode_pairs
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLDER: Final = "/data"
TINY: Final = Geometry(1024, 2)
LARGER: Final = Geometry(4096, 3)


@dataclass
class Specimen:
    """A data directory at rest, and what is known of it."""

    disk: SimulatedDisk
    settings: Settings
    ledger: Ledger
    vouched_sizes: dict[str, int] = field(default_factory=dict)
    """By path, how many bytes a later mark vouches for."""
    vouched_count: int = 0
    """How many transactions that is."""
    batches: list[tuple[dict[str, int], int]] = field(default_factory=list)
    """After every write: the sizes of all files, and how many transactions they hold."""

    def paths(self, *, part: str = "/shard-") -> list[str]:
        """The files whose path has this in it; `shard.json` is one of the small files."""
        return [path for path in all_paths(self.disk, FOLDER) if part in path and not path.endswith("/shard.json")]


@dataclass
class Outcome:
    """What came of opening a damaged directory."""

    fault: EnvironmentFault | None
    journal: Journal | None = None
    count: int = 0


def all_paths(disk: SimulatedDisk, folder: str) -> list[str]:
    found = []
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            disk.read_file(path)
        except IsADirectoryError:
            found += all_paths(disk, path)
        else:
            found.append(path)
    return found


def journal_bytes(disk: SimulatedDisk) -> int:
    return sum(size for path, size in sizes(disk).items() if "/journal-" in path)


def sizes(disk: SimulatedDisk) -> dict[str, int]:
    paths = [path for path in all_paths(disk, FOLDER) if "/shard-" in path and not path.endswith(".json")]
    return {path: len(disk.read_file(path)) for path in paths}


class _Maker:
    def __init__(self, seed: int, geometry: Geometry, shard_count: int, whales_max: int = 3) -> None:
        retention = RetentionLimits(bytes_max=0, age_max_us=1, snapshots_kept=1)
        settings = Settings(geometry, shard_count, FsyncPolicy.EVERYSEC, 0, retention)
        self.specimen = Specimen(SimulatedDisk(seed), settings, Ledger(shard_count))
        self.clock = SimulatedClock()
        self.workload = Workload(Scenario(settings, 0.0, 2**20, False), Random(seed), whale_bytes_max=300)
        self.journal, _ = open_disk(self.specimen, self.specimen.disk, self.clock)
        self._durable: tuple[dict[str, int], int] = ({}, 0)
        self._whales_left = whales_max

    def append(self) -> None:
        """A transaction; few have whales, of which every bit is to be flipped too."""
        while True:
            records = self.workload.transaction()
            limit = self.specimen.settings.geometry.payload_bytes_max
            whales = sum(len(record.payload) > limit for record in records)
            if whales <= self._whales_left:
                break
        self._whales_left -= whales
        self.clock.advance(7)
        ts = self.journal.hlc.next()
        self.journal.writer.append(ts, records)
        self.specimen.ledger.append(ts, records)

    def write(self) -> None:
        """Write a batch, whose marks vouch for what was fsynced before."""
        specimen = self.specimen
        self.journal.writer.write()
        specimen.vouched_sizes, specimen.vouched_count = self._durable
        specimen.batches.append((sizes(specimen.disk), len(specimen.ledger)))

    def sync(self) -> None:
        self.journal.writer.sync()
        self._durable = (sizes(self.specimen.disk), len(self.specimen.ledger))

    def fill(self, bytes_wanted: int) -> None:
        """Write until the journal has this many bytes."""
        rng = Random(bytes_wanted)
        while journal_bytes(self.specimen.disk) < bytes_wanted:
            for _ in range(rng.randint(1, 3)):
                self.append()
            self.write()
            if rng.random() < 0.6:
                self.sync()

    def snapshot(self) -> None:
        snapshot = self.journal.begin_snapshot()
        assert snapshot is not None
        for (shard, database, key), (value, expire_ms) in fold(self.specimen.ledger.transactions).items():
            snapshot.add(ShardId(shard), VAL, encode_pairs([(key, value)]), expire_ms, database)
        self.journal.finish_snapshot(snapshot)

    def close(self) -> Specimen:
        """Stop in order: closing marks vouch for everything before them."""
        specimen = self.specimen
        self.sync()
        specimen.vouched_sizes, specimen.vouched_count = self._durable
        self.journal.close()
        specimen.batches.append((sizes(specimen.disk), len(specimen.ledger)))
        specimen.disk.crash("keep_all")
        return specimen

    def leave(self) -> Specimen:
        """Stop in the middle, with a tail that no mark vouches for."""
        self.specimen.disk.crash("keep_all")
        return self.specimen


def make_closed(seed: int, geometry: Geometry, shard_count: int, bytes_wanted: int) -> Specimen:
    """A journal that was closed in order."""
    maker = _Maker(seed, geometry, shard_count)
    maker.fill(bytes_wanted)
    return maker.close()


def make_torn(seed: int, geometry: Geometry, shard_count: int, bytes_wanted: int, tail_bytes: int) -> Specimen:
    """A journal that ends with batches that were written and never fsynced."""
    maker = _Maker(seed, geometry, shard_count)
    maker.fill(bytes_wanted)
    maker.sync()
    goal = journal_bytes(maker.specimen.disk) + tail_bytes
    while journal_bytes(maker.specimen.disk) < goal:
        maker.append()
        maker.write()
    return maker.leave()


def make_with_snapshot(seed: int, geometry: Geometry, shard_count: int, bytes_wanted: int) -> Specimen:
    """A journal of which the beginning is erased, behind a snapshot, and a file of holders; closed in order."""
    maker = _Maker(seed, geometry, shard_count)
    maker.fill(bytes_wanted)
    maker.snapshot()
    assert maker.journal.erase()
    write_holders(maker.specimen.disk, FOLDER, Holder("reader", maker.journal.erased_ts, 5))
    maker.append()
    maker.write()
    return maker.close()


def open_disk(
    specimen: Specimen, disk: SimulatedDisk, clock: SimulatedClock | None = None
) -> tuple[Journal, list[PlainTransaction]]:
    """Open a disk that is the specimen's or a damaged clone of it."""
    replayed: list[PlainTransaction] = []
    journal = Journal.open(
        disk,
        FOLDER,
        clock or SimulatedClock(),
        specimen.settings,
        apply=lambda transaction, payload_of: replayed.append(plain(transaction, payload_of)),
        new_epoch_id=lambda: 1,
    )
    return journal, replayed


def judge(specimen: Specimen, disk: SimulatedDisk) -> Outcome:
    """Open a damaged clone: it is refused, or it comes back as a prefix. Anything else is a failure."""
    try:
        journal, replayed = open_disk(specimen, disk)
    except EnvironmentFault as fault:
        return Outcome(fault)
    ledger = specimen.ledger
    last_ts = journal.writer.written_ts
    count = ledger.count_up_to(last_ts)
    assert (ledger.ts[count - 1] if count else 0) == last_ts, "recovered to a ts that was never written"
    snapshot = journal.recovered.snapshot
    if snapshot is None:
        assert replayed == ledger.transactions[:count], "recovered something that is no prefix"
    else:
        assert fold(replayed) == ledger.state_at(count), "recovered a state that never was"
    assert journal.hlc.next() > ledger.last_ts or count < len(ledger), "a ts comes twice"
    return Outcome(None, journal, count)


# --- damage ---------------------------------------------------------------------------------------------------------


def flipped(specimen: Specimen, path: str, bit: int) -> SimulatedDisk:
    disk = specimen.disk.clone(0)
    disk.flip_bit(path, bit)
    return disk


def check(specimen: Specimen, outcome: Outcome, path: str, position: int) -> str:
    """Hold an outcome against what is vouched for; returns which of the two it was."""
    is_vouched_for = position < specimen.vouched_sizes.get(path, 0)
    if outcome.fault is None:
        assert not is_vouched_for, "damage of what was fsynced was not found"
        assert outcome.count >= specimen.vouched_count, "less came back than was fsynced"
        return "recovered"
    assert isinstance(outcome.fault, Corruption)
    segment = path[-20:-4]
    assert segment in outcome.fault.path, f"it names {outcome.fault.path}"
    assert outcome.fault.frame is not None
    assert outcome.fault.position is not None
    return "found"


def check_as_cut(specimen: Specimen, outcome: Outcome, path: str, at: int) -> None:
    """Damage that may have taken the marks which vouched for it: if it is not found, the journal ends before it."""
    if outcome.fault is not None:
        assert isinstance(outcome.fault, Corruption)
    elif specimen.settings.shard_count > 1:
        assert outcome.count >= specimen.vouched_count, (path, at)
    else:
        assert path[-20:-4] == max(specimen.paths(part="/journal-"))[-20:-4], "damage inside the journal was not found"
        whole = [count for sizes_then, count in specimen.batches if sizes_then.get(path, 0) <= at]
        assert outcome.count == max(whole, default=0), (path, at)


def flip_each(specimen: Specimen, bits: list[tuple[str, int]]) -> dict[str, int]:
    outcomes = {"found": 0, "recovered": 0}
    for path, bit in bits:
        disk = flipped(specimen, path, bit)
        try:
            outcomes[check(specimen, judge(specimen, disk), path, bit // 8)] += 1
        except Exception as error:
            raise AssertionError(f"bit {bit} of {path} (byte {bit // 8}): {type(error).__name__}: {error}") from error
    return outcomes


def every_bit(specimen: Specimen) -> list[tuple[str, int]]:
    return [(path, bit) for path in specimen.paths() for bit in range(8 * len(specimen.disk.read_file(path)))]


# --- the specimens that tests damage, each made once ------------------------------------------------------------------


@cache
def closed() -> Specimen:
    return make_closed(6, TINY, 1, 4200)


@cache
def torn() -> Specimen:
    return make_torn(27, TINY, 1, 1900, 700)


@cache
def shards() -> Specimen:
    return make_torn(4, TINY, 3, 6000, 2500)


@cache
def larger() -> Specimen:
    return make_torn(5, LARGER, 2, 60_000, 8000)


@cache
def with_snapshot() -> Specimen:
    return make_with_snapshot(6, TINY, 2, 16_000)
