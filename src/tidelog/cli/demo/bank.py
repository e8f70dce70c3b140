"""The workload of the demo: a bank whose money must never change in sum.

Accounts lie on three shards. A transfer is one transaction: it writes both balances and a receipt with its number, so
it touches one, two or three shards. After any crash and recovery

- the balances must add up to what was there at the start: no transfer is ever there by half;
- the receipts must be 0, 1, 2, ... without a hole: the state is a prefix of what happened.

`Bank.run` is what a server does: some clients, each waiting for its own reply; what they ask for is appended, written
once a turn, and acknowledged when an fsync on another thread has made it durable (group commit).
"""

from __future__ import annotations

import binascii
import random
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.ids import SLOT_COUNT, ShardId, Ts, slot_ranges
from tidelog.journal.durability import FsyncPolicy, SyncJob
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.loader import PayloadOf
from tidelog.journal.merge import Transaction
from tidelog.journal.operation import VAL, Val, core_table, encode_pairs
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.writer import NewRecord
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.system.sync_thread import SyncThread

SHARD_COUNT: Final = 3
ACCOUNTS: Final = 300
MONEY_EACH: Final = 1000
GEOMETRY: Final = Geometry(frame_bytes=64 * limits.KIB, frames_per_segment=4)
"""Far smaller than the default, so that a short run fills segments."""
CLIENTS: Final = 256

_RECEIPT: Final = b"receipt:"
_ACCOUNT: Final = b"account:"


def shard_of(key: bytes) -> ShardId:
    """The shard that owns a key, by its slot."""
    slot = binascii.crc_hqx(key, 0) % SLOT_COUNT
    return ShardId(next(shard for shard, (_, last) in enumerate(slot_ranges(SHARD_COUNT)) if slot <= last))


class Run(NamedTuple):
    """What a run of transfers was measured at."""

    transfers: int
    over_shards: int
    """Of these, transactions over several shards."""
    seconds: float
    fsyncs: int
    latency_p50_ms: float
    latency_p99_ms: float


class Bank:
    """The state, and how to change it through a journal. Opening replays what the journal holds."""

    def __init__(self, folder: str, seed: int = 1) -> None:
        self.state: dict[bytes, bytes] = {}
        self.replayed = 0
        """Transactions that opening it replayed."""
        self._table = core_table()
        self._random = random.Random(seed)
        self._clock = SystemClock()
        self._shards = {key: shard_of(key) for key in (_account(number) for number in range(ACCOUNTS))}
        settings = Settings(
            GEOMETRY, SHARD_COUNT, FsyncPolicy.ALWAYS, retention=RetentionLimits(bytes_max=0, snapshots_kept=1)
        )
        self.journal = Journal.open(
            SystemDisk(),
            folder,
            self._clock,
            settings,
            apply=self._apply,
            new_epoch_id=lambda: secrets.randbits(63),
        )

    def _apply(self, transaction: Transaction, payload_of: PayloadOf) -> None:
        self.replayed += 1
        for part in transaction.parts:
            for record in part.records:
                operation = self._table.decode(record.opcode, payload_of(part, record), None)
                if isinstance(operation, Val):
                    self.state.update(operation.pairs)

    def close(self) -> None:
        self.journal.close()

    # --- what must hold -----------------------------------------------------------------------------------------

    @property
    def receipts(self) -> int:
        """How many transfers there are."""
        return sum(key.startswith(_RECEIPT) for key in self.state)

    def money(self) -> int:
        return sum(int(value) for key, value in self.state.items() if key.startswith(_ACCOUNT))

    def is_whole(self) -> bool:
        """No money was made or lost, and there is no hole in the receipts."""
        money_is_right = self.money() == ACCOUNTS * MONEY_EACH
        return money_is_right and all(_receipt(number) in self.state for number in range(self.receipts))

    # --- changing it --------------------------------------------------------------------------------------------

    def open_accounts(self) -> None:
        """One transaction over all shards: every account, with its money."""
        pairs = [(_account(number), b"%d" % MONEY_EACH) for number in range(ACCOUNTS)]
        self.journal.writer.append(self.journal.hlc.next(), [self.record_of(*pair) for pair in pairs])
        self.state.update(pairs)
        self.journal.writer.write()
        self.journal.writer.sync()

    def record_of(self, key: bytes, value: bytes) -> NewRecord:
        """What sets a key, on the shard that owns it."""
        shard = self._shards.get(key)
        return NewRecord(shard_of(key) if shard is None else shard, VAL, encode_pairs([(key, value)]))

    def transfer(self, number: int) -> tuple[Ts, bool]:
        """Append one; returns its ts, and whether it is over several shards."""
        source, target = map(_account, self._random.sample(range(ACCOUNTS), 2))
        amount = self._random.randint(1, 20)
        pairs = [
            (source, b"%d" % (int(self.state[source]) - amount)),
            (target, b"%d" % (int(self.state[target]) + amount)),
            (_receipt(number), b"%s -> %s: %d" % (source, target, amount)),
        ]
        self.state.update(pairs)
        records = [self.record_of(*pair) for pair in pairs]
        ts = self.journal.hlc.next()
        self.journal.writer.append(ts, records)
        return ts, len({record.shard for record in records}) > 1

    def append_statements(self, count: int, size_bytes: int) -> None:
        """One large transaction over all shards, for whoever wants to be in the middle of writing for a while."""
        pairs = [(b"statement:%d" % number, b"%d" % number * (size_bytes // 4)) for number in range(count)]
        self.journal.writer.append(self.journal.hlc.next(), [self.record_of(*pair) for pair in pairs])
        self.state.update(pairs)

    def run(
        self, transfers: int, *, clients: int = CLIENTS, on_acknowledged: Callable[[int], None] | None = None
    ) -> Run:
        """Make that many transfers; `on_acknowledged` is told how many there are now that are durable."""
        writer, first = self.journal.writer, self.receipts
        thread: SyncThread[SyncJob] = SyncThread()
        waiting: list[tuple[Ts, float]] = []
        latencies: list[float] = []
        begun = over_shards = fsyncs = 0
        started = time.perf_counter()
        while len(latencies) < transfers:
            for _ in range(min(clients // 4, clients - len(waiting), transfers - begun)):
                ts, is_over_shards = self.transfer(first + begun)
                waiting.append((ts, time.perf_counter()))
                begun += 1
                over_shards += is_over_shards
            writer.write()
            if writer.sync_is_due(self._clock.monotonic_us()) and (
                job := writer.begin_sync(self._clock.monotonic_us())
            ):
                thread.start(job)
            # While the disk is busy the next turns are gathered and written; one fsync then serves all of them.
            is_idle = len(waiting) == clients or begun == transfers
            if (done := thread.wait() if is_idle else thread.poll()) is not None:
                writer.finish_sync(done.job, done.error)
                fsyncs += 1
                now = time.perf_counter()
                durable = sum(ts <= writer.durable_ts for ts, _ in waiting)
                latencies += [now - since for _, since in waiting[:durable]]
                del waiting[:durable]
                if on_acknowledged is not None:
                    on_acknowledged(first + len(latencies))
        seconds = time.perf_counter() - started
        thread.close()
        latencies.sort()
        p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
        return Run(transfers, over_shards, seconds, fsyncs, p50, p99)


def _account(number: int) -> bytes:
    return b"%s%d" % (_ACCOUNT, number)


def _receipt(number: int) -> bytes:
    return b"%s%d" % (_RECEIPT, number)
