"""Reading all shards as one history: whole transactions, in order of `ts`.

A pass reads every shard up to one `visible`, which is the end of a cycle over all shards, so each transaction that has
begun by then has also ended, on every shard. `start` names the shards of a transaction over several; that all of
them, and no others, have a part is checked, and a transaction that is not whole is never handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tidelog.errors import TransactionTorn
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import shard_folder
from tidelog.journal.operation import START, decode_start
from tidelog.journal.reader import LoadStrings, Part, Record, ShardReader
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


_make_transaction: Final = partial(tuple.__new__, Transaction)  # hot: the call of the class itself is Python


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
        self._queues: list[Iterator[Part]] = [iter(()) for _ in range(shard_count)]
        """Per shard, parts that were read and not yet handed out ..."""
        self._heads: list[tuple[Ts, int, Part]] = []
        """... and, as a heap, the first of each."""

    def seek_lsns(self, lsns: Sequence[Lsn]) -> None:
        """Go to the transactions that begin at these lsns, one per shard."""
        self._restart()
        for reader, lsn in zip(self._shards, lsns, strict=True):
            reader.seek_lsn(lsn)

    def seek_ts(self, ts: Ts) -> None:
        """Go to the first transaction after `ts`."""
        self._restart()
        for reader in self._shards:
            reader.seek_ts(ts)

    def _restart(self) -> None:
        self._pass_ends = self._ends()
        self._queues = [iter(()) for _ in self._shards]
        self._heads.clear()

    def read(self) -> Iterator[Transaction]:
        """The transactions up to what is visible now. Call it again for those that have come since.

        It may be left in the middle: the next call goes on behind the last transaction that was handed out.
        """
        self._pass_ends = self._ends()
        if len(self._shards) == 1:
            yield from self._read_one_shard()
            return
        heads = self._heads
        for shard in range(len(self._shards)):
            if not any(head[1] == shard for head in heads):
                self._push_next(shard)
        while heads:
            ts = heads[0][0]
            parts = self._take_parts(ts)
            if len(parts) > 1 or parts[0].records[0].opcode == START:
                _check_whole(ts, parts)
            yield _make_transaction((ts, parts))

    def _take_parts(self, ts: Ts) -> list[Part]:
        """All parts of the next transaction. If reading on fails they are put back, and a later call finds them."""
        heads = self._heads
        taken = []
        try:
            while heads and heads[0][0] == ts:
                taken.append(heappop(heads))
                self._push_next(taken[-1][1])
        except BaseException:
            for head in taken:
                heappush(heads, head)
            raise
        return [part for _, _, part in taken]

    def _read_one_shard(self) -> Iterator[Transaction]:
        """Hot: with one shard, as is usual, there is nothing to merge."""
        parts: list[Part] | None = []
        while parts is not None:
            for part in self._queues[0]:
                if part.records[0].opcode == START:
                    _check_whole(part.ts, [part])
                yield _make_transaction((part.ts, [part]))
            parts = self._shards[0].read()
            self._queues[0] = iter(parts or ())

    def load(self, apply: Callable[[Transaction], None], load_strings: LoadStrings) -> None:
        """Hand out everything up to what is visible now; with one shard, runs that only set strings as a whole."""
        if len(self._shards) > 1:
            for transaction in self.read():
                apply(transaction)
            return
        self._pass_ends = self._ends()

        def apply_part(part: Part) -> None:
            if part.records[0].opcode == START:
                _check_whole(part.ts, [part])
            apply(_make_transaction((part.ts, [part])))

        self._shards[0].load(apply_part, load_strings)

    def _push_next(self, shard: int) -> None:
        """Put the next part of a shard among the heads, if there is one."""
        for part in self._queues[shard]:
            heappush(self._heads, (part.ts, shard, part))
            return
        while (parts := self._shards[shard].read()) is not None:
            if parts:
                self._queues[shard] = iter(parts)
                self._push_next(shard)
                return

    def payload_of(self, part: Part, record: Record) -> bytes:
        return self._shards[part.shard].payload_of(record)

    def close(self) -> None:
        for reader in self._shards:
            reader.close()


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
