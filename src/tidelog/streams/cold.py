"""Cold nodes that are read: the newest of them stay open, within a bound of bytes.

Whoever may not wait for a disk sets `OPENED.fetches`. A cold node that is not open then raises `NodesAway` instead of
being read: the caller has the nodes fetched on a thread, puts them here, and tries again. Until it has, they are
pinned, so that they are all there at once.

A node that cannot be read is never served: whoever needs it gets an error that names the file and the position, and
the last entry of the node, after which there is more to read. The place is logged once, however often it is asked for.

A node that becomes cold stays open for a second or two: what was just written is what most readers ask for. If nobody
has read it by then, it is closed: history costs no memory. Of the others, those that were not read since the cache last
came by go first, in the order in which they were opened. So a read leaves no more than a mark, and costs as much as
that of a hot node.

One cache for the process: it holds copies of what lies on disk, so nothing depends on what is in it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from tidelog import limits
from tidelog.errors import CommandError, EnvironmentFault, HistoryAway
from tidelog.streams.columns import Columns
from tidelog.streams.rows import unpack_id

if TYPE_CHECKING:
    from tidelog.streams.compaction import Compaction
    from tidelog.streams.sealed_node import SealedNode

_Result = TypeVar("_Result")
_LOG: Final = logging.getLogger("tidelog")


class NodesAway(Exception):
    """These nodes have to be open, all at once, before the command can run, and some of them lie on disk."""

    def __init__(
        self, nodes: Sequence[SealedNode], compaction: Compaction | None = None, operations: Sequence[Any] = ()
    ) -> None:
        super().__init__(f"{len(nodes)} nodes are needed, and not all of them are open")
        self.nodes = nodes
        self.compaction = compaction
        """Of a command that needs one portion of a stream after the other: these nodes are the next. It gets this back
        when it is run again."""
        self.operations = operations
        """What it has decided of the portion before."""


class OpenedNode:
    """What the cache has of a cold node. The node refers to it and not the other way round: a node that its stream
    drops lets go of its place on disk at once."""

    __slots__ = ("batch", "columns", "is_gone", "pin_count", "size_bytes", "was_read")

    def __init__(self) -> None:
        self.batch: pa.RecordBatch | None = None
        """None: it is not open, and perhaps will be."""
        self.columns: Columns | None = None
        """Of the batch, made when they are first read: most nodes that are written never are."""
        self.size_bytes = 0
        """Of the batch."""
        self.pin_count = 0
        """How many need it: it stays."""
        self.is_gone = False
        """The node is: nobody will read it."""
        self.was_read = False
        """Since it was opened, or last spared."""

    def read(self) -> Columns | None:
        """Its columns, for somebody who reads them; None: it is not open. Hot."""
        columns = self.columns
        if columns is None:
            if self.batch is None:
                return None
            columns = self.columns = Columns(self.batch)
        self.was_read = True
        return columns

    def go(self) -> None:
        """The node is dropped. On any thread."""
        self.is_gone = True
        DROPPED.count += 1


class DroppedNodes:
    """How many nodes that the cache knows were dropped, roughly: several threads may count at once."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


DROPPED: Final = DroppedNodes()


class OpenedNodes:
    """The open nodes, in a circle. One thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._circle: deque[OpenedNode] = deque()
        """Those that are open; the next that may go comes first."""
        self._written: list[OpenedNode] = []
        """Those that were opened because they were just written to disk, and ..."""
        self._written_before: list[OpenedNode] = []
        """... those of the time before the last look at them."""
        self._seen_dropped = 0
        """`DROPPED` when those that are gone were last looked for."""
        self.pinned_count = 0
        """Nodes that stay."""
        self.bytes_held = 0
        self.fetches = False
        """Cold nodes are not read here and now: `NodesAway`."""
        self.fetch_ahead: Callable[[list[SealedNode]], None] | None = None
        """Is told of nodes that will probably be read next; None: nobody fetches."""
        self._ends: dict[tuple[int, int], None] = {}
        """Where reads of streams ended, the oldest first: which stream, and the next offset."""
        self.unreadable_count = 0
        """How often a node could not be read."""
        self._unreadable: dict[tuple[str, int], None] = {}
        """Places that the log names already, up to a number of them: file and position."""

    def __contains__(self, node: SealedNode) -> bool:
        return node.opened is not None and node.opened.batch is not None

    def open(self, node: SealedNode) -> Columns:
        """Read the columns of a cold node that is not open."""
        if self.fetches:
            raise NodesAway([node])
        try:
            columns = Columns(node.read())
        except EnvironmentFault as error:
            raise CommandError(self.explain(node, error)) from None
        self.put(node, columns)
        return columns

    def is_away(self, node: SealedNode) -> bool:
        """Whether reading it would mean to wait for a disk."""
        return node.is_away

    def require(self, nodes: Iterable[SealedNode]) -> None:
        """All of them are about to be read: if one is not here, they are fetched and kept together."""
        if self.fetches:
            cold = [node for node in nodes if node.is_cold]
            if any(node.is_away for node in cold):
                raise NodesAway(cold)  # also those that are here, which could be closed meanwhile

    def run_without_reading(self, work: Callable[[], _Result]) -> _Result:
        """Run something that may not wait for a disk. `NodesAway`: it would have to."""
        self.fetches = True
        try:
            return work()
        finally:
            self.fetches = False

    def goes_on(self, stream: int, offset: int, end: int) -> bool:
        """Whether a read of a stream begins where one has ended; remembers where this one ends."""
        is_next = (stream, offset) in self._ends
        if is_next:
            del self._ends[stream, offset]
        self._ends[stream, end] = None
        if len(self._ends) > limits.SCANS_REMEMBERED_MAX:
            del self._ends[next(iter(self._ends))]
        return is_next

    def explain(self, node: SealedNode, error: EnvironmentFault) -> str:
        """The error reply to a command that needs a node which cannot be read. Counts it, and logs a new place.

        A node that an object store does not give now is not damaged: the reply says so, and to try again."""
        if isinstance(error, HistoryAway):
            return f"TRYAGAIN a part of the stream cannot be read now: {error}"
        self.unreadable_count += 1
        place = node.place
        where, text = ("", 0), str(error)
        if place is not None:
            where = place.file.path, place.position
            if place.file.path not in text:
                text = f"{place.file.path}, position {place.position}: {text}"
        text += f" (offsets {node.first_offset} to {node.last_offset}, ids up to %d-%d)" % unpack_id(node.last_id)
        if where not in self._unreadable and len(self._unreadable) < limits.UNREADABLE_PLACES_LOGGED_MAX:
            self._unreadable[where] = None
            _LOG.error("a part of a stream cannot be read, and reads of it are refused: %s", text)
        return f"ERR a part of the stream cannot be read: {text}"

    def put(self, node: SealedNode, columns: Columns) -> None:
        """What was read of a node."""
        self.put_all([(node, columns)])

    def put_all(self, read: Iterable[tuple[SealedNode, Columns]]) -> None:
        """What was read of several."""
        for node, columns in read:
            opened = opened_of(node)
            self._put(opened, columns.batch, columns.size_bytes)
            opened.columns = columns
        self._shrink()

    def put_written(self, nodes: Sequence[SealedNode]) -> None:
        """Hot nodes that are about to become cold: open for as long as somebody may be about to read them."""
        for node in nodes:
            opened = opened_of(node)
            self._put(opened, node.batch, node.opened_bytes)
            self._written.append(opened)
        self._shrink()

    def _put(self, opened: OpenedNode, batch: pa.RecordBatch, size_bytes: int) -> None:
        if opened.batch is None:
            opened.batch, opened.size_bytes = batch, size_bytes
            opened.was_read = False
            self._circle.append(opened)
            self.bytes_held += size_bytes

    def close_unread(self) -> int:
        """Close what was written before the last call, unless somebody has read it, and all whose nodes are gone.
        Returns how many bytes that gives back."""
        held = self.bytes_held
        for opened in self._written_before:
            if not (opened.was_read or opened.pin_count):
                self._close(opened)
        self._written_before, self._written = self._written, []
        if self._seen_dropped != DROPPED.count:
            self._seen_dropped = DROPPED.count
            for opened in self._circle:
                if opened.is_gone:
                    self._close(opened)
        if self.bytes_held < held:
            self._circle = deque(opened for opened in self._circle if opened.batch is not None)
        return held - self.bytes_held

    def pin(self, nodes: Iterable[SealedNode]) -> None:
        """Keep what is, or will be, here of them until they are unpinned as often."""
        for node in nodes:
            opened = opened_of(node)
            opened.pin_count += 1
            self.pinned_count += opened.pin_count == 1

    def unpin(self, nodes: Iterable[SealedNode]) -> None:
        for node in nodes:
            opened = opened_of(node)
            opened.pin_count -= 1
            self.pinned_count -= not opened.pin_count
        self._shrink()

    def _shrink(self) -> None:
        """Let nodes go while there are too many: not those that are pinned, nor at first those that were read."""
        circle = self._circle
        left = 2 * len(circle)
        while self.bytes_held > self._bytes_max and left:
            left -= 1
            opened = circle.popleft()
            if (opened.pin_count or opened.was_read) and not opened.is_gone:
                opened.was_read = False
                circle.append(opened)
            else:
                self._close(opened)

    def _close(self, opened: OpenedNode) -> None:
        if opened.batch is not None:
            self.bytes_held -= opened.size_bytes
            opened.batch = opened.columns = None

    def clear(self) -> None:
        """Close them, except those that are pinned."""
        for opened in self._circle:
            if not opened.pin_count:
                self._close(opened)
        self._circle = deque(opened for opened in self._circle if opened.pin_count)


def opened_of(node: SealedNode) -> OpenedNode:
    """That of a node, made if there is none."""
    if node.opened is None:
        node.opened = OpenedNode()
    return node.opened


OPENED: Final = OpenedNodes(limits.OPENED_NODES_BYTES_MAX)
