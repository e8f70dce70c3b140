"""What is visible of a journal, to those who read it: from a ts, from lsns, or one shard.

Everything here is bounded by what is called visible, and by what retention has erased. Of an open journal the writer
says the former; of a copy in an object store, its newest manifest does (`shipping/copied_journal`).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from tidelog.errors import Corruption, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.control import Epoch
from tidelog.journal.durability import Visible
from tidelog.journal.layout import Meta
from tidelog.journal.merge import JournalReader
from tidelog.journal.places import Places
from tidelog.journal.reader import ShardReader, Wants
from tidelog.journal.ring import Ring
from tidelog.journal.segment import FilePosition, sidecar_name
from tidelog.journal.sidecar import FrameSummary, decode_summaries
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

_AnswerT = TypeVar("_AnswerT")


class HistoryEnd(Protocol):
    """Who says how far may be read."""

    @property
    def visible(self) -> Visible: ...


class ReadableJournal(ABC):
    """The half of `Journal` that readers use."""

    writer: HistoryEnd
    epochs: list[Epoch]
    """Oldest first."""

    def __init__(self, disk: Disk, folder: str, meta: Meta, ring: Ring | None) -> None:
        self._disk = disk
        self._folder = folder
        self._ring = ring
        self.meta = meta

    @property
    @abstractmethod
    def erased_ts(self) -> Ts:
        """Transactions up to this one may be gone from the journal."""

    def find_begin_ts(self, lsns: Sequence[Lsn], behind_ts: Ts) -> Ts:
        """What the files themselves say is gone. `lsns`: where the shards end; a shard that has records and no files
        begins behind a snapshot, of `behind_ts` or before."""
        begin_ts = Ts(0)
        for shard, next_lsn in enumerate(lsns):
            with contextlib.closing(self._source(shard)) as source:
                segments = source.segments()
                if segments and segments[0] > 0:
                    with contextlib.suppress(Corruption):  # a reader of the segment will be told
                        begin_ts = max(begin_ts, source.proved_header(segments[0]).ts)
                elif not segments and next_lsn > 0:  # it begins behind a snapshot
                    begin_ts = max(begin_ts, behind_ts)
        return begin_ts

    def refuse_erased(self, ts: Ts) -> None:
        """`TooOld` if transactions after `ts` may be gone."""
        if ts < self.erased_ts:
            raise TooOld(f"the journal no longer has the transactions after ts {ts}", oldest=self.erased_ts)

    def reader_since(self, ts: Ts) -> JournalReader:
        """Reads every transaction after `ts`, up to what is visible; `TooOld` if some of them are gone."""
        self.refuse_erased(ts)
        return self._placed(lambda reader: reader.seek_ts(ts))

    def reader_from(self, lsns: Sequence[Lsn]) -> JournalReader:
        """Reads the transactions that begin at these lsns, and all after them."""
        return self._placed(lambda reader: reader.seek_lsns(lsns))

    def _placed(self, seek: Callable[[JournalReader], None]) -> JournalReader:
        reader = JournalReader(
            self._disk,
            self._folder,
            self.meta.geometry,
            self.meta.shard_count,
            lambda: self.writer.visible.ends,
            ring=self._ring,
        )
        try:
            seek(reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def shard_reader(
        self,
        shard: ShardId,
        end: Callable[[], FilePosition | None],
        on_read: Callable[[int], None] | None = None,
        wants: Wants | None = None,
    ) -> ShardReader:
        """Reads one shard up to `end`, which is not past what is visible, and large transactions in pieces."""
        folder = layout.shard_folder(self._folder, shard)
        source = ShardSource(self._disk, folder, self.meta.geometry, shard, self._ring, on_read)
        return ShardReader(source, end, wants=wants, in_pieces=True)

    def ts_after(self, ts: Ts, records: int) -> Ts:
        """A ts up to which each shard has about so many records after `ts`, or all that is visible."""
        visible = self.writer.visible
        found = self._ask_all(visible, lambda places: places.ts_after(ts, records))
        return min([visible.ts, *(each for each in found if each is not None)])

    def ask_places(self, visible: Visible, shard: int, ask: Callable[[Places], _AnswerT]) -> _AnswerT:
        """What a shard's frames answer, up to what is visible. Its files are closed when this returns or raises: a
        generator that hands out places would close them only if its caller took all."""
        source = self._source(shard)
        try:
            return ask(Places(source, partial(visible.ends.__getitem__, shard)))
        finally:
            source.close()

    def _ask_all(self, visible: Visible, ask: Callable[[Places], _AnswerT]) -> list[_AnswerT]:
        return [self.ask_places(visible, shard, ask) for shard in range(self.meta.shard_count)]

    def records_after(self, ts: Ts) -> list[int]:
        """Per shard, how many visible records follow `ts`: a few heads of frames are read, and one frame.

        Records of all databases count. One may have the changes of several commands that came together, and a
        transaction over several shards has one more, its start.
        """
        visible = self.writer.visible
        return [self._records_after_in(visible, shard, ts) for shard in range(self.meta.shard_count)]

    def _records_after_in(self, visible: Visible, shard: int, ts: Ts) -> int:
        end = visible.lsns[shard]
        return end - self.ask_places(visible, shard, lambda places: places.lsn_after(ts, end, visible.ts))

    def begin_of(self, ts: Ts) -> Ts:
        """Where what follows `ts` begins: there, or just before the first record that the journal has."""
        found = self._ask_all(self.writer.visible, lambda places: places.first_ts())
        return max(ts, min((Ts(first - 1) for first in found if first is not None), default=ts))

    def summaries(
        self, shard: ShardId, segment: Lsn, on_read: Callable[[int], None] | None = None
    ) -> Sequence[FrameSummary]:
        """What is known of the first sealed frames of a segment, without reading those that nobody summarised yet."""
        path = f"{layout.shard_folder(self._folder, shard)}/{sidecar_name(segment)}"
        try:
            data = layout.read_file(self._disk, path)
        except FileNotFoundError:
            return []
        if on_read is not None:
            on_read(len(data))
        return decode_summaries(data)

    def _sources(self) -> list[ShardSource]:
        return [self._source(shard) for shard in range(self.meta.shard_count)]

    def _source(self, shard: int) -> ShardSource:
        """A shard's files, without the ring: for any thread."""
        return ShardSource(self._disk, layout.shard_folder(self._folder, shard), self.meta.geometry, ShardId(shard))
