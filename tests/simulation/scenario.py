"""What one seed stands for: the shape of a data directory, and the transactions that are written to it.

Frames are far smaller than in production and sizes are drawn around their edges, so that within a few dozen records a
run crosses everything that takes gigabytes elsewhere: frames fill up, records are split, segments roll over, whales
go to the blob file. Policy and number of shards follow from the seed itself, so that any twelve seeds in a row have
every combination.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, VAL, encode_items, encode_pairs
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.staging import StagedBlob

POLICIES: Final = tuple(FsyncPolicy)
KEY_COUNT: Final = 10
DATABASE_COUNT: Final = 3
WHALE_BYTES_MAX: Final = 6000
HOUR_US: Final = 3_600_000_000

KEYS: Final = [b"k%d" % index for index in range(KEY_COUNT - 1)] + [b"a longer key, with some bytes to it"]


@dataclass(frozen=True)
class Scenario:
    """The shape of a run."""

    settings: Settings
    short_writes: float
    """The chance of each write to be a short one."""
    snapshot_batch_bytes: int
    """Stands in for `limits.SNAPSHOT_BATCH_BYTES`."""
    takes_long_jumps: bool
    """Whether the clock may jump past what a frame's relative ts can hold."""

    @property
    def shard_count(self) -> int:
        return self.settings.shard_count

    @property
    def frame_bytes(self) -> int:
        return self.settings.geometry.frame_bytes


def draw_scenario(seed: int, rng: Random) -> Scenario:
    frame_bytes = rng.choice((1024, 1024, 1024, 1536, 2048, 4096))
    frames = rng.choice((1, 2, 2, 2, 3, 4))
    if frames == 1:
        # A segment is named by its first lsn, so one of a single frame must get a record before its frame is full of
        # epochs and marks, or left for a jump of the clock. Larger segments have room for that.
        frame_bytes = max(frame_bytes, 2048)
    retention = RetentionLimits(
        bytes_max=rng.choice((0, 0, frame_bytes, 4 * frame_bytes)),
        age_max_us=rng.choice((1_000_000, HOUR_US, 100 * HOUR_US)),
        holder_lapse_us=rng.choice((2 * HOUR_US, 1000 * HOUR_US)),
        holder_bytes_max=rng.choice((4 * frame_bytes, 2**40)),
        snapshots_kept=rng.choice((1, 1, 2)),
    )
    settings = Settings(
        Geometry(frame_bytes, frames),
        1 + seed // len(POLICIES) % 4,
        POLICIES[seed % len(POLICIES)],
        rng.choice((0, 1500, 6000, 2**20)),
        retention,
    )
    return Scenario(settings, rng.choice((0.0, 0.0, 0.2)), rng.choice((400, 3000, 2**20)), frames > 1)


class Workload:
    """Draws transactions."""

    def __init__(self, scenario: Scenario, rng: Random, whale_bytes_max: int = WHALE_BYTES_MAX) -> None:
        self._rng = rng
        self._shard_count = scenario.shard_count
        quarter = scenario.frame_bytes // 4
        self._sizes = (
            (0, 24),
            (0, 24),
            (24, 130),
            (120, 140),
            (quarter // 2, quarter),
            (quarter - 30, quarter + 10),
            (quarter + 1, min(4 * scenario.frame_bytes, max(whale_bytes_max, quarter + 1))),
        )
        """Ranges that a value's size is drawn from: tiny, around a longer flit, split often, around a whale, whales."""

    def transaction(self) -> list[NewRecord]:
        """One to five records, mostly one, over any shards."""
        rng = self._rng
        count = rng.choice((1, 1, 1, 1, 2, 2, 3, 5))
        shards = [ShardId(rng.randrange(self._shard_count)) for _ in range(1 if rng.random() < 0.3 else count)]
        return [self._record(shards[index % len(shards)]) for index in range(count)]

    def large_value(self) -> tuple[ShardId, bytes]:
        """A value that is written before its record, and its shard."""
        low, high = self._sizes[-1]
        return ShardId(self._rng.randrange(self._shard_count)), self._rng.randbytes(self._rng.randint(low, high))

    def with_staged(self, staged: StagedBlob) -> list[NewRecord]:
        """A transaction with a record that ends with such a value."""
        rng = self._rng
        records = self.transaction() if rng.random() < 0.5 else []
        key, expire_ms = rng.choice(KEYS), rng.choice((None, 2**40))
        payload = encode_pairs([(key, staged.value)])
        head = payload[: len(payload) - len(staged.value)]
        database = rng.choice((0, 0, 1))
        records.insert(rng.randint(0, len(records)), NewRecord(staged.shard, VAL, head, expire_ms, database, staged))
        return records

    def _record(self, shard: ShardId) -> NewRecord:
        rng = self._rng
        database = rng.choice((0, 0, 0, 1, 2))
        kind = rng.random()
        if kind < 0.02:
            return NewRecord(shard, FLUSHDB, b"", None, database)
        if kind < 0.12:
            return NewRecord(shard, DEL, encode_items(rng.sample(KEYS, rng.randint(1, 3))), None, database)
        pairs = [(rng.choice(KEYS), self._value())]
        if kind < 0.25:
            pairs += [(key, rng.randbytes(rng.randint(0, 12))) for key in rng.sample(KEYS, 2)]
        expire_ms = rng.randrange(1, 2**48) if kind > 0.85 else None
        return NewRecord(shard, VAL, encode_pairs(pairs), expire_ms, database)

    def _value(self) -> bytes:
        low, high = self._rng.choice(self._sizes)
        return self._rng.randbytes(self._rng.randint(low, high))


@contextmanager
def small_limits(snapshot_batch_bytes: int) -> Iterator[None]:
    """Let a snapshot, a value that is staged and a long collection be written in as many pieces as large ones are; and
    let the code of a library take its time, so that a run does not depend on how busy the machine is."""
    small = {
        "SNAPSHOT_BATCH_BYTES": snapshot_batch_bytes,
        "STAGED_HEAD_BYTES_MAX": 64,
        "STAGED_PIECE_BYTES": 700,
        "STAGED_SYNC_BYTES": 1500,
        "STAGED_BYTES_MIN": 1000,
        "RECORD_MEMBERS_MAX": 40,
        "LIBRARY_LOAD_MS_MAX": 60_000,
        "LIBRARIES_LOAD_MS_MAX": 60_000,
    }
    usual = {name: vars(limits)[name] for name in small}
    vars(limits).update(small)
    try:
        yield
    finally:
        vars(limits).update(usual)
