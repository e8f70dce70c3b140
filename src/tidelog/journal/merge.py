"""Reading all shards as one history: whole transactions, in order of `ts`.

A pass reads every shard up to one `visible`, which is the end of a cycle over all shards, so each transaction that has
begun by then has also ended, on every shard. `start` names the shards of a transaction over several; that all of
them, and no others, have a part is checked, and a transaction that is not whole is never handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from tidelog.errors import TransactionTorn
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import shard_folder
from tidelog.journal.operation import START, decode_start
from tidelog.journal.reader import Part, Record, ShardReader
from tidelog.journal.ring import Ring
from tidelog.journal.segment import Position
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

Ends = Sequence[Position | None]


class Transaction(NamedTuple):
    """A whole transaction."""

    ts: Ts
    parts: list[Part]
    """One per shard that it changed."""


class JournalReader:
    """A place in the history of all shards."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        geometry: Geometry,
        shard_count: int,
        ends: Callable[[], Ends],
        *,
        ring: Ring | None = None,
        on_epoch: Callable[[control.Epoch], None] | None = None,
        on_read: Callable[[int], None] | None = None,
    ) -> None:
        self._ends = ends
        self._pass_ends: Ends = [None] * shard_count
        """How far the pass that is under way goes."""
        self._shards = [
            ShardReader(
                ShardSource(disk, shard_folder(folder, shard), geometry, ShardId(shard), ring, on_read),
                lambda shard=shard: self._pass_ends[shard],  # type: ignore[misc]
                on_epoch if shard == 0 else None,  # every shard has every epoch
            )
            for shard in range(shard_count)
        ]

    def seek_lsns(self, lsns: Sequence[Lsn]) -> None:
        """Go to the transactions that begin at these lsns, one per shard."""
        self._pass_ends = self._ends()
        for reader, lsn in zip(self._shards, lsns, strict=True):
            reader.seek_lsn(lsn)

    def seek_ts(self, ts: Ts) -> None:
        """Go to the first transaction after `ts`."""
        self._pass_ends = self._ends()
        for reader in self._shards:
            reader.seek_ts(ts)

    def read(self) -> Iterator[Transaction]:
        """The transactions up to what is visible now. Call it again for those that have come since."""
        self._pass_ends = self._ends()
        queues = [(reader, _parts(reader)) for reader in self._shards]
        heap = [(part.ts, reader.shard, part, rest) for reader, rest in queues if (part := next(rest, None))]
        heapify(heap)
        while heap:
            ts = heap[0][0]
            parts: list[Part] = []
            while heap and heap[0][0] == ts:
                _, shard, part, rest = heap[0]
                parts.append(part)
                following = next(rest, None)
                if following is None:
                    heappop(heap)
                else:
                    heapreplace(heap, (following.ts, shard, following, rest))
            _check_whole(ts, parts)
            yield Transaction(ts, parts)

    def payload_of(self, part: Part, record: Record) -> bytes:
        return self._shards[part.shard].payload_of(record)

    def close(self) -> None:
        for reader in self._shards:
            reader.close()


def _parts(reader: ShardReader) -> Iterator[Part]:
    while (parts := reader.read()) is not None:
        yield from parts


def _check_whole(ts: Ts, parts: list[Part]) -> None:
    starts = [part.records[0] for part in parts if part.records[0].opcode == START]
    present = [part.shard for part in parts]
    if len(starts) == 1:
        start = decode_start(starts[0].payload)
        if start.ts == ts and sorted(start.shards) == sorted(present):
            return
        raise TransactionTorn(f"transaction {ts} is announced for shards {start.shards} and has parts of {present}")
    if starts or len(parts) > 1:
        raise TransactionTorn(f"transaction {ts} has parts of shards {present} and {len(starts)} start records")
