"""Reading all shards as one history: whole transactions, in order of `ts`.

    ShardMerge        puts the parts that the readers of shards read in one order: for JournalReader, and for feeds
    JournalReader     a place in the history of all shards, for recovery, restoring and verifying

A pass reads every shard up to one `visible`, which is the end of a cycle over all shards, so each transaction that has
begun by then has also ended, on every shard. `start` names the shards of a transaction over several; `JournalReader`
checks that all of them, and no others, have a part, and never hands out a transaction that is not whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

from tidelog.errors import Corruption, FormatError, TidelogError, TransactionTorn, UnreadableRecord
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import shard_folder
from tidelog.journal.operation import DELRANGE, FLUSHDB, START, decode_start
from tidelog.journal.reader import LoadStrings, Part, Record, ShardReader
from tidelog.journal.ring import Ring
from tidelog.journal.segment import FilePosition
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

Ends = Sequence[FilePosition | None]


class JournalTransaction(NamedTuple):
    """A whole transaction as the journal has it."""

    ts: Ts
    parts: list[Part]
    """One per shard that it changed."""


_make_transaction: Final = partial(tuple.__new__, JournalTransaction)  # hot: the call of the class itself is Python


class PartReader(Protocol):
    """Reads the parts of one shard, in order of `ts`."""

    def read(self) -> list[Part] | None:
        """Some more parts; None: the pass has ended. An empty list is no end."""


class ShardMerge:
    """The parts of some shards in one order: by `ts`, and inside a transaction by shard.

    Flushes come between: what any shard did before a flush comes before it, and what any did after it comes after. Each
    shard has a record of every flush, and a reader in pieces hands it out alone; whole parts are never cut for it. A
    range of keys that is deleted counts as one.

    It reads only where it has nothing left of a shard, and only then may reading fail: nothing is lost by that, and the
    next call goes on.
    """

    def __init__(self, readers: Mapping[ShardId, PartReader]) -> None:
        self._readers = readers
        self._queues: dict[ShardId, deque[Part]] = {shard: deque() for shard in readers}
        """Parts that were read and not yet handed out ..."""
        self._heads: list[tuple[Ts, int, ShardId, Part]] = []
        """... and, as a heap, the first of each shard, with how many flushes it comes after, twice (see `_step`)."""
        self._places: dict[ShardId, tuple[Ts, int]] = dict.fromkeys(readers, (Ts(0), 0))
        """The `ts` and the step of the last head of each shard."""
        self._missing: set[ShardId] = set(readers)
        """Shards without a head that may have more in this pass: their next part may be older than the heads."""

    @property
    def missing(self) -> set[ShardId]:
        """Shards of which the next part is not known."""
        return self._missing

    @property
    def next_ts(self) -> Ts | None:
        """The oldest of the parts that were read and not yet handed out; None: there are none."""
        return self._heads[0][0] if self._heads else None

    def begin_pass(self) -> None:
        """Every shard may have more."""
        self._missing |= {shard for shard in self._readers if all(head[2] != shard for head in self._heads)}

    def read(self) -> list[Part] | None:
        """Some more parts, the last of each transaction marked as such; None: the pass has ended. An empty list is no
        end. Hot."""
        if len(self._readers) == 1:  # as is usual: there is nothing to merge
            (reader,) = self._readers.values()
            return reader.read()
        for shard in list(self._missing):
            if not self._fill(shard):
                return []
        found: list[Part] = []
        goes_on = not self._missing
        while self._heads and goes_on:
            ts, _, shard, part = heappop(self._heads)
            self._push(shard)
            is_whole = part.is_last and not (self._heads and self._heads[0][0] == ts)
            found.append(part if part.is_last == is_whole else part._replace(is_last=is_whole))
            # Where all that is missing has given its last piece of a transaction, the others can give theirs.
            goes_on = not self._missing or (part.is_last and not is_whole)
        return found if found or self._missing else None

    def _fill(self, shard: ShardId) -> bool:
        """Get a head of a shard that has none; false: it takes longer."""
        found = self._readers[shard].read()
        if found is None:
            self._missing.discard(shard)  # until the next pass
            return True
        if found:
            self._queues[shard].extend(found)
            self._missing.discard(shard)
            self._push(shard)
        return bool(found)

    def _push(self, shard: ShardId) -> None:
        queue = self._queues[shard]
        if queue:
            part = queue.popleft()
            step = self._step(shard, part)
            self._places[shard] = part.ts, step
            heappush(self._heads, (part.ts, step, shard, part))
        else:
            self._missing.add(shard)

    def _step(self, shard: ShardId, part: Part) -> int:
        """Odd for a flush, even for what comes before, between and after flushes of a transaction."""
        ts, step = self._places[shard]
        if part.ts != ts:
            step = 0
        is_flush = not part.is_last and len(part.records) == 1 and part.records[0].opcode in (FLUSHDB, DELRANGE)
        return step + 1 if is_flush != bool(step & 1) else step + 2 * is_flush


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
                partial(self._pass_end, shard),
                on_epoch if shard == 0 else None,  # every shard has every epoch
            )
            for shard in range(shard_count)
        ]
        self._restart()

    def _pass_end(self, shard: int) -> FilePosition | None:
        return self._pass_ends[shard]

    def seek_lsns(self, lsns: Sequence[Lsn]) -> None:
        """Go to the transactions that begin at these lsns, one per shard."""
        self._pass_ends = self._ends()
        self._restart()
        for reader, lsn in zip(self._shards, lsns, strict=True):
            reader.seek_lsn(lsn)

    def seek_ts(self, ts: Ts) -> None:
        """Go to the first transaction after `ts`."""
        self._pass_ends = self._ends()
        self._restart()
        for reader in self._shards:
            reader.seek_ts(ts)

    def _restart(self) -> None:
        self._merge = ShardMerge({ShardId(shard): reader for shard, reader in enumerate(self._shards)})
        self._ready: deque[Part] = deque()
        """Parts that were read and not yet handed out."""

    def read(self) -> Iterator[JournalTransaction]:
        """The transactions up to what is visible now. Call it again for those that have come since.

        It may be left in the middle: the next call goes on behind the last transaction that was handed out.
        """
        self._pass_ends = self._ends()
        self._merge.begin_pass()
        found: list[Part] | None = []
        while found is not None:
            parts: list[Part] = []
            while self._ready:
                parts.append(self._ready.popleft())
                if parts[-1].is_last:
                    transaction = _make_transaction((parts[0].ts, parts))
                    parts = []
                    check_whole(transaction)
                    yield transaction
            found = self._merge.read()
            self._ready.extend(parts)  # of a transaction that is not whole yet
            self._ready.extend(found or ())

    def load(self, apply: Callable[[JournalTransaction], None], load_strings: LoadStrings) -> None:
        """Hand out everything up to what is visible now; with one shard, runs that only set strings as a whole."""
        if len(self._shards) > 1:
            for transaction in self.read():
                apply(transaction)
            return
        self._pass_ends = self._ends()

        def apply_part(part: Part) -> None:
            transaction = _make_transaction((part.ts, [part]))
            check_whole(transaction)
            apply(transaction)

        self._shards[0].load(apply_part, load_strings)

    def located(self, error: UnreadableRecord) -> UnreadableRecord:
        """The same error with the place of the record in the files."""
        return self._shards[error.shard].located(error)

    def payload_of(self, part: Part, record: Record) -> bytes:
        return self._shards[part.shard].payload_of(record)

    def close(self) -> None:
        for reader in self._shards:
            reader.close()


def unreadable(part: Part, record: Record, error: Exception) -> Exception:
    """What to raise if a record that was read cannot be decoded or applied."""
    if isinstance(error, TidelogError) and not (isinstance(error, Corruption) and not error.path):
        return error  # it says what is wrong with which file
    what = error.problem if isinstance(error, Corruption) else f"{type(error).__name__}: {error}"
    problem = f"record {record.lsn} of shard {part.shard}, opcode 0x{record.opcode:02x}, cannot be used ({what})"
    return UnreadableRecord(problem, shard=part.shard, lsn=record.lsn)


def check_whole(transaction: JournalTransaction) -> None:
    """Raise unless the parts are those that its `start` names. Hot."""
    ts, parts = transaction
    if len(parts) == 1 and parts[0].records[0].opcode != START:
        return
    starts = [part for part in parts if part.records[0].opcode == START]
    present = [part.shard for part in parts]
    if len(starts) == 1:
        try:
            start = decode_start(starts[0].records[0].payload)
        except FormatError as error:
            raise unreadable(starts[0], starts[0].records[0], error) from None
        if start.ts == ts and sorted(start.shards) == sorted(present):
            return
        raise TransactionTorn(f"transaction {ts} is announced for shards {start.shards} and has parts of {present}")
    if starts or len(parts) > 1:
        raise TransactionTorn(f"transaction {ts} has parts of shards {present} and {len(starts)} start records")
