"""Following the history of some shards while it is written: pass by pass, large transactions in pieces.

A pass goes up to one `visible`, which is the end of a cycle over all shards: each transaction that has begun by then
has ended on every shard. So a pass hands out transactions in order of `ts`, and at its end nothing is half-way. Then
the next pass goes up to what has become visible meanwhile. Bytes come from the ring or from the files, as each reader's
source finds them, so falling behind and catching up are no events here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from tidelog.errors import TooOld
from tidelog.ids import ShardId, Ts
from tidelog.journal.blob import BlobPieces
from tidelog.journal.durability import Visible
from tidelog.journal.merge import PartReader, ShardMerge
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.reader import Part, Record
from tidelog.journal.segment import FilePosition


class PassReader(PartReader, Protocol):
    """Reads one shard in pieces, up to an end that moves."""

    @property
    def next_lsn(self) -> int:
        """Of the next record, or about that."""

    @property
    def reached_ts(self) -> int:
        """Everything of the shard at or below it has been read or passed over."""

    def blob_of(self, record: Record) -> BlobPieces: ...

    def close(self) -> None: ...


PassReaderT = TypeVar("PassReaderT", bound=PassReader)


class ShardPasses(Generic[PassReaderT]):
    """A place in the history of some shards, usually all."""

    def __init__(
        self,
        journal: ReadableJournal,
        shards: Sequence[ShardId],
        open_reader: Callable[[ShardId, Callable[[], FilePosition | None]], PassReaderT],
    ) -> None:
        self._journal = journal
        self._visible = journal.writer.visible
        """How far the pass that is under way goes."""
        self._ends: list[FilePosition | None] = list(self._visible.ends)
        self._readers: dict[ShardId, PassReaderT] = {}
        try:
            for shard in shards:
                self._readers[shard] = open_reader(shard, partial(self._ends.__getitem__, shard))
        except BaseException:
            self.close()
            raise
        self._merge = ShardMerge(self._readers)

    @property
    def visible_ts(self) -> Ts:
        """The end of the pass that is under way."""
        return self._visible.ts

    @property
    def reached_ts(self) -> Ts:
        """Everything at or below it has been handed out, if somebody wants it."""
        merge = self._merge
        places = [reader.reached_ts for shard, reader in self._readers.items() if shard in merge.missing]
        return Ts(min([*places, self._visible.ts if merge.next_ts is None else merge.next_ts - 1]))

    def records_behind(self, visible: Visible) -> int:
        """How many records are still to be read, those among them that will be passed over."""
        return sum(max(0, visible.lsns[shard] - reader.next_lsn) for shard, reader in self._readers.items())

    def begin_pass(self) -> Visible:
        """Go on to what is visible now; returns it. Only after the pass before has ended."""
        self._visible = self._journal.writer.visible
        self._ends[:] = self._visible.ends
        self._merge.begin_pass()
        return self._visible

    def read(self) -> list[Part] | None:
        """Some more of the transactions; None: the pass has ended. An empty list is no end."""
        try:
            return self._merge.read()
        except TooOld as error:
            raise self.too_old(error) from error

    def too_old(self, error: TooOld) -> TooOld:
        """What to raise if a file has been erased meanwhile: readers of files know no ts."""
        return TooOld(str(error), oldest=self._journal.erased_ts)

    def blob_of(self, part: Part, record: Record) -> BlobPieces:
        """The payload of a record with the flag BLOB."""
        return self._readers[part.shard].blob_of(record)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
