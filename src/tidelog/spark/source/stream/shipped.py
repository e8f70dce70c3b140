"""Entries of streams out of a copy or a data directory, as they were at a moment: `stream:KEY` with the option `from`.

    nodes      what lay in node files when the snapshot was made: a part is some of them, read as they are
    the rest   what the journal after the snapshot appended: a part replays the stream and reads from that

The driver replays the records of the streams that are wanted, so it knows which entries were there at the moment and
where they lie; it reads no node, except one at each end of a range of ids. Nodes outside of the range are left out, by
the offsets and ids that the snapshot has of them. What was evicted, deleted or trimmed by then is not shown, as a
server at that moment would not have shown it.

A node goes from its file into Arrow and from there to Spark. No entry of it is ever a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError, DataDirectoryError, NodeLost
from tidelog.flight.nodes import Opened, joined, opened_rows
from tidelog.ids import ShardId
from tidelog.journal.node_files import NodeFile, NodePlace
from tidelog.journal.node_format import node_room
from tidelog.ports import Disk
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.spark.copies.address import take_address
from tidelog.spark.copies.moment import find_moment
from tidelog.spark.copies.past_shard import PastShard, past_shard
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.spark.options import Options
from tidelog.spark.source.batch_reader import BatchReader
from tidelog.spark.source.entry_range import NUMBER_MAX, EntryRange, range_of_filters
from tidelog.spark.source.key_names import NameFilter, is_pattern, name_of
from tidelog.spark.source.loss import raise_or_log, take_fail_on_loss
from tidelog.spark.source.pieces import take_pieces_min
from tidelog.spark.source.stream.columns import EntryColumns, from_flight
from tidelog.spark.source.stream.planning import take_range
from tidelog.store.slots import slot_of
from tidelog.streams.node import Node
from tidelog.streams.sealed_node import NodeReference, SealedNode
from tidelog.streams.stream import Stream

_REPLAYS_MAX: Final = 8
"""Tasks that replay one stream: each reads the journal again."""


class TakenNode(NamedTuple):
    """Entries of one node in a node file."""

    shard: ShardId
    path: str
    reference: NodeReference
    start: int
    stop: int


class ShippedStreamPart(InputPartition):
    """What one task reads of one stream: nodes, or offsets that it replays (both ends included)."""

    def __init__(self, stream: str, shard: int, nodes: Sequence[TakenNode], first: int = 0, last: int = -1) -> None:
        self.stream = stream
        self.shard = shard
        self.nodes = nodes
        self.first = first
        self.last = last

    @property
    def rows(self) -> int:
        """Entries that can be divided among more tasks: those in several nodes."""
        return sum(node.stop - node.start for node in self.nodes) if len(self.nodes) > 1 else 0


class ShippedStreamReader(BatchReader[ShippedStreamPart]):
    """Reads the entries that streams had at a moment."""

    def __init__(self, target: str, url: str, options: Options, schema: StructType) -> None:
        self._target = target
        self._range = take_range(options)
        self._rows = options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS
        self._pieces_min = take_pieces_min(options) or 1
        self._fail_on_loss = take_fail_on_loss(options)
        self._database = options.number("database", 0, limits.DATABASES - 1) or 0
        self._names = NameFilter()
        self._pushed = EntryRange()
        at = options.moment_us("at")
        self._columns = EntryColumns(schema)
        address = take_address(options, url)
        options.end("a stream that is read from a copy")
        self._moment = find_moment(address, at)

    def narrow(self, filters: Sequence[Filter]) -> None:
        self._pushed = range_of_filters(filters)
        for each in filters:
            if getattr(each, "attribute", ()) == ("stream",):
                self._names = self._names.narrowed(each)

    # --- on the driver ------------------------------------------------------------------------------------------

    def partitions(self) -> list[InputPartition]:
        has_pattern = is_pattern(self._target)
        wanted = self._range.narrowed(self._pushed)
        if (not has_pattern and not self._names.has(self._target)) or wanted.is_empty:
            return []
        found: list[ShippedStreamPart] = []
        for shard, (first, last) in enumerate(self._moment.slots):
            if has_pattern or first <= slot_of(self._target.encode()) <= last:
                with past_shard(self._moment, shard, self._wanted_keys()) as past:
                    found += self._plan_shard(past, shard, wanted, is_one=not has_pattern)
        return [*_halved(found, self._pieces_min)]

    def _wanted_keys(self, stream: str | None = None) -> WantedKeys:
        if stream is None and is_pattern(self._target):
            prefix = self._names.prefix.encode()
            among = self._names.among
            names = None if among is None else frozenset(name.encode() for name in among)
            return WantedKeys(self._database, prefix, names, self._target.encode())
        return WantedKeys(self._database, among=frozenset([(stream or self._target).encode()]))

    def _plan_shard(
        self, past: PastShard, shard: int, wanted: EntryRange, *, is_one: bool
    ) -> Iterator[ShippedStreamPart]:
        count = 0
        for key, value, _ in past.values():
            if not isinstance(value, Stream):
                if is_one:
                    raise ClientError(f"{self._target!r} is no stream at ts {self._moment.at}, but another type")
                continue
            count += 1
            if count > limits.SPARK_STREAMS_MAX:
                raise ClientError(f"{self._target!r} names more than {limits.SPARK_STREAMS_MAX} streams: name fewer")
            yield from self._plan_stream(past, name_of(key), shard, value, wanted)
        if is_one and not count:
            raise ClientError(
                f"there is no stream {self._target!r} in database {self._database} at ts {self._moment.at}"
            )

    def _plan_stream(
        self, past: PastShard, name: str, shard: int, stream: Stream, wanted: EntryRange
    ) -> Iterator[ShippedStreamPart]:
        first, last = max(stream.first, wanted.first_offset), min(stream.last, wanted.last_offset)
        if wanted.first_number:
            first = max(first, stream.offset_at_or_after(wanted.first_number))
        if wanted.last_number < NUMBER_MAX:
            last = min(last, stream.offset_at_or_after(wanted.last_number + 1) - 1)
        taken: list[TakenNode] = []
        rows = 0
        rest: list[tuple[int, int, int]] = []
        for node in stream.nodes_from(first) if first <= last else ():
            if node.first_offset > last:
                break
            start, stop = node.index_of(first), node.index_of(last + 1)
            if start >= stop:
                continue
            if not past.lies_in_history(node):
                rest.append((max(first, node.first_offset), min(last, node.last_offset), stop - start))
                continue
            assert isinstance(node, SealedNode)
            assert node.place is not None
            taken.append(TakenNode(node.place.file.shard, node.place.file.path, node.reference, start, stop))
            rows += stop - start
            if rows >= self._rows:
                yield ShippedStreamPart(name, shard, taken)
                taken, rows = [], 0
        if taken:
            yield ShippedStreamPart(name, shard, taken)
        for begins, ends in _divided(rest, self._rows):
            yield ShippedStreamPart(name, shard, (), begins, ends)

    # --- on an executor -----------------------------------------------------------------------------------------

    def read_part(self, part: ShippedStreamPart) -> Iterator[Any]:
        if part.nodes:
            disk, _ = self._moment.address.open_folder(self._moment.lineage)
            yield from self._batches(part.stream, self._opened(disk, part.nodes))
            return
        with past_shard(self._moment, part.shard, self._wanted_keys(part.stream)) as past:
            stream = past.find(part.stream.encode())
            if not isinstance(stream, Stream):
                raise DataDirectoryError(f"stream {part.stream!r} is not what it was when the query was planned")
            yield from self._batches(part.stream, self._replayed(past, stream, part.first, part.last))

    def _opened(self, disk: Disk, nodes: Iterable[TakenNode]) -> Iterator[Opened]:
        file: NodeFile | None = None
        for taken in _fetched(disk, nodes):
            reference = taken.reference
            if file is None or file.path != taken.path:
                file = known_file(disk, taken)
            place = NodePlace(file, reference.position, reference.size, reference.crc)
            try:
                yield Opened(SealedNode.of_reference(reference, place).read(), taken.start, taken.stop)
            except NodeLost as error:
                raise_or_log(error, fail_on_loss=self._fail_on_loss)

    def _replayed(self, past: PastShard, stream: Stream, first: int, last: int) -> Iterator[Opened]:
        for node in stream.nodes_from(first):
            if node.first_offset > last:
                return
            start, stop = node.index_of(first), node.index_of(last + 1)
            if start < stop and not past.lies_in_history(node):
                yield _opened_node(node, start, stop)

    def _batches(self, stream: str, opened: Iterable[Opened]) -> Iterator[Any]:
        return _batches(self._columns, stream, opened)


def entries_between(stream: Stream, first: int, last: int, columns: EntryColumns) -> Iterator[Any]:
    """The entries of a stream that was replayed, from an offset up to and including another, some at a time."""
    return _batches(columns, "", _opened_between(stream, first, last))


def _opened_between(stream: Stream, first: int, last: int) -> Iterator[Opened]:
    for node in stream.nodes_from(first) if first <= last else ():
        if node.first_offset > last:
            return
        start, stop = node.index_of(first), node.index_of(last + 1)
        if start < stop:
            yield _opened_node(node, start, stop)


def _batches(columns: EntryColumns, stream: str, opened: Iterable[Opened]) -> Iterator[Any]:
    gathered: list[Opened] = []
    rows = size = 0
    for each in opened:
        gathered.append(each)
        rows += each.stop - each.start
        size += each.node.nbytes
        if rows >= limits.SPARK_BATCH_ROWS or size >= limits.SPARK_BATCH_BYTES:
            yield columns.batch(stream, from_flight(joined(gathered)))
            gathered, rows, size = [], 0, 0
    if gathered:
        yield columns.batch(stream, from_flight(joined(gathered)))


def _fetched(disk: Disk, nodes: Iterable[TakenNode]) -> Iterator[TakenNode]:
    """The nodes; of a copy, some at a time are fetched side by side."""
    if not isinstance(disk, ShippedDisk):
        yield from nodes
        return
    left, size = list[TakenNode](), 0
    for taken in nodes:
        left.append(taken)
        size += taken.reference.size
        if size >= limits.SPARK_FETCHED_BYTES:
            yield from _told(disk, left)
            left, size = [], 0
    yield from _told(disk, left)


def _told(disk: ShippedDisk, nodes: list[TakenNode]) -> list[TakenNode]:
    disk.will_read((each.path, each.reference.position, node_room(each.reference.size)) for each in nodes)
    return nodes


def known_file(disk: Disk, taken: TakenNode) -> NodeFile:
    """The file of a node, to be read only."""
    return NodeFile(disk, taken.shard, taken.reference.file_id, taken.path, 0)


def _opened_node(node: Node, start: int, stop: int) -> Opened:
    if isinstance(node, SealedNode):
        return Opened(node.read(), start, stop)
    return opened_rows(node.rows(start, stop))


def _halved(parts: list[ShippedStreamPart], pieces_min: int) -> list[ShippedStreamPart]:
    """Parts with nodes are halved, those with the most entries first, until there are so many or none has two nodes.

    Parts that replay stay whole: each of them reads the journal once more.
    """
    found = list(parts)
    while len(found) < pieces_min:
        index = max(range(len(found)), key=lambda each: found[each].rows, default=-1)
        if index < 0 or found[index].rows == 0:
            break
        part = found[index]
        middle = len(part.nodes) // 2
        found[index : index + 1] = [
            ShippedStreamPart(part.stream, part.shard, nodes) for nodes in (part.nodes[:middle], part.nodes[middle:])
        ]
    return found


def _divided(runs: Sequence[tuple[int, int, int]], rows: int) -> Iterator[tuple[int, int]]:
    """First and last offsets of tasks that replay: about so many rows each, but only a few tasks."""
    total = sum(count for _, _, count in runs)
    most = max(rows, -(-total // _REPLAYS_MAX))
    begins, count = -1, 0
    for first, last, its in runs:
        begins = first if begins < 0 else begins
        count += its
        if count >= most:
            yield begins, last
            begins, count = -1, 0
    if begins >= 0:
        yield begins, runs[-1][1]
