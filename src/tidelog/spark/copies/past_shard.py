"""One shard as it was at a moment, for the keys that are wanted: its snapshot and its journal, replayed.

The records are applied by the code of a recovery, so whatever a server makes of them is what is here: lists, effects of
scripts, removed ranges, renamed keys, parts of transactions over several shards (each shard has its own records of
them). Records about other keys are passed over before they are decoded, and frames whose sidecar says that they hold no
wanted key are not read.

Nodes of streams that a snapshot refers to stay where they lie. Nodes that the journal fills are written to a folder of
this process while it replays, so memory holds the values of wanted keys and the ends of their streams.

A key that has expired at the moment is not there, as a server at that moment would say, whether or not it had removed
the key by then.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tidelog.errors import Corruption, UnreadableRecord
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.layout import Meta, make_shard_folders, read_file, read_meta, shard_folder
from tidelog.journal.loader import Apply
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import VAL
from tidelog.journal.reader import Part, Record, ShardReader
from tidelog.journal.record import BLOB
from tidelog.journal.scan import find_marks
from tidelog.journal.segment import FilePosition, sidecar_name
from tidelog.journal.sidecar import FrameSummary, decode_summaries
from tidelog.journal.snapshot import LAST_CYCLE, Snapshot
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk
from tidelog.spark.copies.moment import PastMoment
from tidelog.spark.copies.snapshot_slots import SlotEnd, first_lsn
from tidelog.spark.copies.wanted_keys import RecordFilter, WantedKeys
from tidelog.store.restored_nodes import RestoredNodes
from tidelog.store.slots import shards_by_slot
from tidelog.store.store import Store
from tidelog.streams.node import Node
from tidelog.streams.operations import StreamCopy
from tidelog.streams.sealed_node import SealedNode
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.system.scratch import ScratchFile

_COPY: Final = "copy"


class PastValue(NamedTuple):
    """A key as it was."""

    key: bytes
    value: Any
    expire_ms: int | None


class PastShard:
    """One shard at one moment, with the values of the keys that were wanted."""

    def __init__(self, moment: PastMoment, shard: int, store: Store, wanted: WantedKeys, spilled: str) -> None:
        """`spilled`: the folder of nodes that the journal filled."""
        self._spilled = f"{spilled}/"
        self._moment = moment
        self._slots = moment.slots[shard]
        self._wanted = wanted
        self.store = store

    def lies_in_history(self, node: Node) -> bool:
        """Whether a node of a stream lies in a node file that the snapshot refers to; others are only here."""
        if not isinstance(node, SealedNode) or node.place is None:
            return False
        return not node.place.file.path.startswith(self._spilled)

    def find(self, key: bytes) -> Any:
        """The value of a wanted key; None: it is not there."""
        database = self.store.database(self._wanted.database)
        expire_ms = database.expiries.get(key)
        return database.find(key) if expire_ms is None or expire_ms > self._moment.now_ms else None

    def values(self) -> Iterator[PastValue]:
        """The keys that are there, in the order of their slots."""
        database = self.store.database(self._wanted.database)
        test, now_ms = self._wanted.test(), self._moment.now_ms
        wanted = self._wanted.within(self._slots)
        for slot in range(wanted.first_slot, wanted.last_slot + 1):
            for bucket in database.buckets(slot):
                for key, value in bucket.items():
                    expire_ms = database.expiries.get(key)
                    if test(key) and (expire_ms is None or expire_ms > now_ms):
                        yield PastValue(key, value, expire_ms)


@contextmanager
def past_shard(moment: PastMoment, shard: int, wanted: WantedKeys) -> Iterator[PastShard]:
    """Replay a shard; the nodes of its streams can be read as long as this is open."""
    with past_moments(moment, shard, wanted) as at:
        yield at(moment.at)


@contextmanager
def past_moments(moment: PastMoment, shard: int, wanted: WantedKeys) -> Iterator[Callable[[Ts], PastShard]]:
    """Replay a shard step by step: a call takes it to a later moment, up to the one that is given, and shows that."""
    store = Store(SystemClock(), random.Random())
    store.slots, store.owners = moment.slots, shards_by_slot(moment.slots)
    with ExitStack() as opened:
        spilled = opened.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-past-"))
        # The journal is read twice. It is not closed here: threads may still be fetching ahead.
        scratch = ScratchFile(spilled) if moment.address.is_copy else None
        disk, folder, snapshot = moment.open(scratch)
        own = SystemDisk()
        nodes = RestoredNodes(
            own, disk, store, spilled, store.owners, lambda: _make_folders(own, spilled, len(moment.slots))
        )
        opened.callback(nodes.close)
        replaying = _Replaying(moment, shard, store, nodes.spilling(store.replay))
        wanted = replaying.with_others(wanted, disk, folder)
        if snapshot is not None:
            nodes.read_from(snapshot)
            replaying.read_snapshot(disk, snapshot, wanted)
        steps = replaying.journal_steps(disk, folder, wanted)
        opened.callback(steps.close)
        following = next(steps, None)

        def at(ts: Ts) -> PastShard:
            nonlocal following
            while following is not None and following <= ts:
                following = next(steps, None)
            return PastShard(replace(moment, at=ts), shard, store, wanted, spilled)

        yield at


def _make_folders(disk: Disk, folder: str, count: int) -> None:
    if not disk.exists(shard_folder(folder, 0)):
        make_shard_folders(disk, folder, count)


class _Replaying:
    """Reads one shard, and applies what is wanted."""

    def __init__(self, moment: PastMoment, shard: int, store: Store, apply: Apply) -> None:
        self._moment = moment
        self._shard = ShardId(shard)
        self._table = store.types.operations
        self._apply = apply

    def read_snapshot(self, disk: Disk, snapshot: Snapshot, wanted: WantedKeys) -> None:
        source = ShardSource(disk, shard_folder(snapshot.path, self._shard), snapshot.meta.geometry, self._shard)
        end = _end_of_snapshot(source, snapshot)
        first, last = wanted.slots()
        own_first, own_last = self._moment.slots[self._shard]
        if wanted.others or (first <= own_first and last >= own_last):
            steps = self._steps(source, Lsn(0), end, wanted, None)
        else:
            begin = first_lsn(source, end, self._table, (wanted.database, first))
            behind = SlotEnd(RecordFilter(wanted, self._table), (wanted.database, last))
            steps = self._steps(source, begin, end, wanted, None, behind)
        for _ in steps:
            pass

    def journal_steps(self, disk: Disk, folder: str, wanted: WantedKeys) -> Generator[Ts]:
        """Hands out the ts of what is applied when the next is asked for."""
        source, end = self._journal(disk, folder)
        return self._steps(source, self._moment.starts[self._shard], end, wanted, _Summaries(disk, source, wanted))

    def with_others(self, wanted: WantedKeys, disk: Disk, folder: str) -> WantedKeys:
        """With the streams that wanted ones were copied from, and those that these were copied from, and so on."""
        copy = self._table.named(_COPY)
        assert copy is not None
        opcode = copy.opcode
        while True:
            found: set[tuple[int, bytes]] = set()
            source, end = self._journal(disk, folder)
            keeps = RecordFilter(wanted, self._table)

            def is_copy(database: int, code: int, payload: bytes, keeps: RecordFilter = keeps) -> bool:
                return code == opcode and keeps.wants(database, code, payload)

            reader = ShardReader(source, lambda end=end: end, None, is_copy)  # type: ignore[misc]
            summaries = _Summaries(disk, source, wanted)
            try:
                reader.seek_lsn(self._moment.starts[self._shard])
                for part in _parts(reader, summaries, self._moment.until):
                    for record in part.records:
                        if record.opcode == opcode:
                            operation: StreamCopy = copy.decode(reader.payload_of(record), None)
                            found.add((operation.source_database, operation.source))
            finally:
                reader.close()
            if found <= wanted.others:
                return wanted
            wanted = wanted.plus(found)

    def _journal(self, disk: Disk, folder: str) -> tuple[ShardSource, FilePosition | None]:
        meta: Meta = read_meta(disk, folder)
        source = ShardSource(disk, shard_folder(folder, self._shard), meta.geometry, self._shard)
        return source, self._moment.ends[self._shard]

    def _steps(
        self,
        source: ShardSource,
        start: Lsn,
        end: FilePosition | None,
        wanted: WantedKeys,
        summaries: _Summaries | None,
        behind: SlotEnd | None = None,
    ) -> Generator[Ts]:
        keeps = RecordFilter(wanted, self._table)
        reader = ShardReader(source, lambda: end, None, keeps.wants if behind is None else behind.wants)

        def payload_of(_: Part, record: Record) -> bytes:
            return reader.payload_of(record)

        try:
            reader.seek_lsn(start)
            for part in _parts(reader, summaries, self._moment.until, behind):
                records = [kept for record in part.records if (kept := _kept(record, reader, keeps)) is not None]
                if records:
                    yield part.ts
                    self._apply(JournalTransaction(part.ts, [part._replace(records=records)]), payload_of)
        except UnreadableRecord as error:
            raise reader.located(error) from None
        finally:
            reader.close()


def _kept(record: Record, reader: ShardReader, keeps: RecordFilter) -> Record | None:
    """A record without what is not wanted of it; None: nothing is."""
    payload = record.payload
    if record.flags & BLOB:
        payload = reader.payload_of(record)
        if not keeps.wants(record.database, record.opcode, payload):
            return None
        record = record._replace(payload=payload, flags=record.flags & ~BLOB)
    if record.opcode == VAL:
        return record._replace(payload=keeps.cut(record.database, payload))
    return record


def _parts(
    reader: ShardReader, summaries: _Summaries | None, until: int, behind: SlotEnd | None = None
) -> Iterator[Part]:
    """Parts of transactions up to a ts, in order. `behind`: says when no more of them are wanted."""
    while behind is None or not behind.is_reached:
        if summaries is not None:
            summaries.skip(reader)
        parts = reader.read()
        if parts is None:
            return
        for part in parts:
            if part.ts > until:
                return
            yield part


class _Summaries:
    """Lets a reader pass over full frames that hold no wanted key, by the sidecars that are there."""

    def __init__(self, disk: Disk, source: ShardSource, wanted: WantedKeys) -> None:
        self._disk = disk
        self._source = source
        self._wanted = wanted
        self._segment: Lsn | None = None
        self._known: list[FrameSummary] = []

    def skip(self, reader: ShardReader) -> None:
        if not self._wanted.has_spans:
            return
        while (place := reader.next_sealed()) is not None:
            if place.segment != self._segment:
                self._segment, self._known = place.segment, self._read(place.segment)
            frame = place.at // self._source.geometry.frame_bytes
            if frame >= len(self._known):
                return
            summary = self._known[frame]
            if self._wanted.may_be_in(summary) or self._source.frame_header(*place).lsn != summary.first_lsn:
                return
            reader.skip_sealed(summary.end_lsn)

    def _read(self, segment: Lsn) -> list[FrameSummary]:
        path = f"{self._source.folder}/{sidecar_name(segment)}"
        return list(decode_summaries(read_file(self._disk, path))) if self._disk.exists(path) else []


def _end_of_snapshot(source: ShardSource, snapshot: Snapshot) -> FilePosition:
    """Where it ends, which must be its last mark: a snapshot that was cut is damaged, not short."""
    segments = source.segments()
    if not segments:
        raise Corruption("the snapshot has no files of this shard", path=source.folder)
    end = FilePosition(segments[-1], source.size(segments[-1]))
    start = (end.at - 1) // source.geometry.frame_bytes * source.geometry.frame_bytes if end.at else 0
    marks = list(find_marks(source.read(end.segment, start, end.at), snapshot.meta.shard_count))
    if not marks or marks[-1].cycle != LAST_CYCLE:
        raise Corruption("the snapshot ends before its last mark", path=snapshot.path)
    return end
