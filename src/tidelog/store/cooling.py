"""Cooling: sealed nodes of streams are written to node files, and memory keeps where they lie.

    take     on the owner's thread: the nodes that are next in line, up to some bytes
    run      on any thread: compress, write, fsync
    finish   on the owner's thread: the nodes let go of their bytes, which stay open at first (`streams/cold`)

A node is cold only after its bytes are durable. Nothing is journaled: a cold node has the same entries, and whether a
node is cold does not belong to the state. If the disk is full or fails, the nodes stay in memory, in line.

Nodes get in line by themselves (`streams/cooling_line`). A pass over all streams finds what does not: the last nodes of
streams that nobody writes to, and active nodes that do not grow, which it seals. Under pressure it takes those of all
streams. It also finds nodes in files that are sparse, because most of what was in them is gone: they are written once
more, elsewhere, so that the file can go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption, EnvironmentFault
from tidelog.ids import SLOT_COUNT, U64_MAX, ShardId
from tidelog.journal.journal import Journal
from tidelog.journal.layout import SNAPSHOTS
from tidelog.journal.loader import Apply, PayloadOf
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.node_files import NodeFile, NodeFiles, NodePlace
from tidelog.journal.snapshot import listed_node_files
from tidelog.ports import Disk, Random
from tidelog.store.keyspace import Database
from tidelog.streams.cold import OPENED
from tidelog.streams.cooling_line import BytesInLine, CoolingLine
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream

_LOG: Final = logging.getLogger("tidelog")


class CoolingJob:
    """Nodes of one shard on their way to disk."""

    __slots__ = ("_files", "damage", "error", "last_ids", "line", "nodes", "places", "taken", "unread")

    def __init__(self, files: NodeFiles, line: CoolingLine, nodes: list[SealedNode]) -> None:
        self._files = files
        self.line = line
        self.taken: Sequence[SealedNode] = nodes
        """All that are no longer in line ..."""
        self.nodes = nodes
        """... and, once it has run, those that were to be written."""
        self.places: list[NodePlace] = []
        self.last_ids: list[int] = []
        self.error: OSError | None = None
        """Why nothing came of it."""
        self.damage: list[Corruption] = []
        """Of cold nodes that were to be written once more. They stay where they are, and are tried no more."""
        self.unread: list[tuple[SealedNode, EnvironmentFault | OSError]] = []
        """Such nodes that cannot be read at the moment, and why: the next pass finds them again."""

    def run(self) -> None:
        """On any thread, one job at a time."""
        self.nodes = []
        written: list[tuple[bytes, int]] = []
        for node in self.taken:
            try:
                written.append(node.compressed())
                self.nodes.append(node)
            except Corruption as error:
                self.damage.append(error)
            except (EnvironmentFault, OSError) as error:  # too many open files, or an object store is away
                self.unread.append((node, error))
        if not written:
            return
        self.last_ids = [last_id for _, last_id in written]
        try:
            self.places = self._files.append(self.line.shard, [data for data, _ in written])
        except OSError as error:
            self.error = error


class HotTotals:
    """What streams take in memory."""

    __slots__ = ("node_bytes", "node_count", "other_bytes")

    def __init__(self, node_bytes: int = 0, node_count: int = 0, other_bytes: int = 0) -> None:
        self.node_bytes = node_bytes
        """Of sealed nodes that are hot ..."""
        self.node_count = node_count
        """... and how many those are."""
        self.other_bytes = other_bytes
        """Of everything else: nodes that grow, what is known of those on disk, groups."""


class StoreCooling:
    """What of a store is to become cold. For the owner's thread."""

    def __init__(self, files: NodeFiles, databases: Sequence[Database], owners: Sequence[ShardId]) -> None:
        """`owners`: for every slot, its shard."""
        self.files = files
        self._in_line = BytesInLine()
        self._lines = [CoolingLine(ShardId(shard), self._in_line) for shard in range(max(owners) + 1)]
        self._next_line = 0
        """Whose turn it is: each shard gets one job after the other, however much the others have."""
        self._spilled_from = limits.REPLAY_SPILL_BYTES
        """While history is replayed: with so many bytes in line, they are written."""
        self._databases = databases
        line_of_slot = [self._lines[shard] for shard in owners]
        for database in databases:
            database.node_files = files
            database.cooling_lines = line_of_slot
        self._known = HotTotals()
        """What there was in memory when a pass last saw all of it ..."""
        self._since = HotTotals()
        """... and `_balance` then."""
        self.cooled_count = 0
        """Nodes that became cold ..."""
        self.cooled_bytes = 0
        """... and what they took in memory."""
        self.rewritten_count = 0
        """Cold nodes that were written once more, so that their file could go ..."""
        self.rewritten_bytes = 0
        """... and what they take on disk."""

    @classmethod
    def open(
        cls, disk: Disk, folder: str, random: Random, databases: Sequence[Database], owners: Sequence[ShardId]
    ) -> StoreCooling:
        """For the databases of a data directory that is about to be loaded."""
        files = NodeFiles(disk, folder, lambda: random.randrange(U64_MAX))
        files.find(max(owners) + 1)
        return cls(files, databases, owners)

    def begin(self, journal: Journal) -> None:
        """All is loaded: from now on files go when nobody needs them, those among them that a crash has left."""
        journal.keep_node_files(self.files)
        self.remove_unneeded()

    @property
    def waiting_count(self) -> int:
        return sum(len(line.nodes) for line in self._lines)

    @property
    def waiting_bytes(self) -> int:
        """What those in line take in memory."""
        return self._in_line.total

    @property
    def sealed_bytes(self) -> int:
        """What all nodes that were ever sealed took in memory."""
        return sum(line.sealed_bytes for line in self._lines)

    @property
    def _balance(self) -> HotTotals:
        """What has ever been sealed and is not cold, or gone without becoming so."""
        sealed_count = sum(line.sealed_count for line in self._lines)
        return HotTotals(self.sealed_bytes - self.cooled_bytes, sealed_count - self.cooled_count)

    @property
    def hot_bytes(self) -> int:
        """What sealed nodes take in memory, roughly: those that went with their streams count until the next pass."""
        return self.totals.node_bytes

    @property
    def totals(self) -> HotTotals:
        """What streams take in memory: nodes as `hot_bytes` says, the rest as the last pass saw it."""
        known, since, now = self._known, self._since, self._balance
        return HotTotals(
            max(known.node_bytes + now.node_bytes - since.node_bytes, 0),
            max(known.node_count + now.node_count - since.node_count, 0),
            known.other_bytes,
        )

    def take(self) -> CoolingJob | None:
        """The next nodes, of one shard after the other; None: none are in line."""
        count = len(self._lines)
        for turn in range(self._next_line, self._next_line + count):
            line = self._lines[turn % count]
            nodes: list[SealedNode] = []
            size = 0
            while line.nodes and size < limits.COOLED_AT_ONCE_BYTES:
                node = line.take()
                nodes.append(node)
                size += node.opened_bytes
            if nodes:
                self._next_line = (turn + 1) % count
                return CoolingJob(self.files, line, nodes)
        return None

    def finish(self, job: CoolingJob, *, stay_open: bool = True) -> None:
        """A job has run. `stay_open`: its nodes are kept open a little for readers, while there is room."""
        for node, _ in job.unread:
            node.is_in_line = False
        if job.error is not None:
            job.line.put_back(job.nodes)
            return
        if stay_open:
            OPENED.put_written([node for node in job.nodes if not node.is_cold])
        for node, place, last_id in zip(job.nodes, job.places, job.last_ids, strict=True):
            node.is_in_line = False
            if node.is_cold:
                self.rewritten_bytes += place.size
                self.rewritten_count += 1
            else:
                self.cooled_bytes += node.opened_bytes
                self.cooled_count += 1
            node.chill(place, last_id)
        job.places = []

    def give_up(self, job: CoolingJob) -> None:
        """A job ended with an error that nobody expects: a later pass finds its nodes again."""
        for node in job.taken:
            node.is_in_line = False

    # --- while history is replayed ------------------------------------------------------------------------------

    def spilling(self, apply: Apply, prepare: Callable[[], None] | None = None) -> Apply:
        """The same, and whenever enough is in line, that becomes cold, here and now; `prepare` is called before.

        So a start, or a restore, needs no more memory than running does, however long the history is.
        """
        in_line = self._in_line

        def run(transaction: JournalTransaction, payload_of: PayloadOf) -> None:
            apply(transaction, payload_of)
            if in_line.total >= self._spilled_from:
                if prepare is not None:
                    prepare()
                self.spill()

        return run

    def spill(self) -> None:
        """Let everything in line be cold. If the disk is full or fails, it stays, and the server tries again."""
        self._spilled_from = limits.REPLAY_SPILL_BYTES
        while (job := self.take()) is not None:
            job.run()
            self.finish(job, stay_open=False)
            if job.error is not None:
                self._spilled_from += self._in_line.total
                return

    # --- looking ------------------------------------------------------------------------------------------------

    def look(self, *, is_pressed: bool) -> Iterator[None]:
        """A pass over all streams, a short step at a time: everything may change in between.

        `is_pressed`: there is too much in memory, so that active nodes are sealed whether or not they grow.
        """
        found, began = HotTotals(), self._balance
        sparse = {file for file in self.files if file.is_sparse}
        for database in self._databases:
            if not database.size:
                continue
            for slot in range(SLOT_COUNT):
                for part in database.buckets(slot):
                    for stream in [value for value in part.values() if type(value) is Stream]:
                        yield from _look_at(stream, sparse, found, is_pressed=is_pressed)
                    yield
        self._known, self._since = found, began

    # --- files --------------------------------------------------------------------------------------------------

    def begin_removal(self) -> Callable[[], list[NodeFile]]:
        """What is to be run, on any thread, to remove node files that nobody needs; then `end_removal`.

        Not beside another that makes or drops snapshots.
        """
        unneeded = self.files.unneeded()
        return lambda: self._remove(unneeded) if unneeded else []

    def _remove(self, unneeded: Sequence[NodeFile]) -> list[NodeFile]:
        files, snapshots = self.files, f"{self.files.folder}/{SNAPSHOTS}"
        listed = listed_node_files(files.disk, files.folder)
        if files.disk.exists(snapshots):  # the removal of one whose last fsync failed may not be durable yet
            files.disk.sync_folder(snapshots)
        return files.remove(unneeded, listed)

    def end_removal(self, removed: Sequence[NodeFile]) -> None:
        self.files.forget(removed)

    def remove_unneeded(self) -> None:
        """The same at once, for what the process before has left. If it fails, it is tried again after a snapshot."""
        try:
            self.end_removal(self.begin_removal()())
        except (EnvironmentFault, OSError) as error:  # such as an older snapshot that is damaged
            _LOG.error("node files that nobody needs could not be removed: %s", error)


def _look_at(stream: Stream, sparse: set[NodeFile], found: HotTotals, *, is_pressed: bool) -> Iterator[None]:
    line, active = stream.line, stream.active
    if line is None:
        return
    is_idle = active.seen_count == len(active)
    if (is_idle or is_pressed) and len(active) >= limits.IDLE_SEAL_ENTRIES_MIN:
        stream.seal()
    active.seen_count = len(active)
    found.other_bytes += stream.other_bytes
    kept = 0 if is_idle or is_pressed else limits.HOT_NODES_KEPT
    # Newest first: nodes become cold in the order of their age, nearly always. What is found may be gone by the next
    # step, or come once more.
    for at in range(len(stream.sealed) - 1, -1, -1):
        if at < len(stream.sealed):
            node = stream.sealed[at]
            if not node.is_cold:
                found.node_bytes += node.opened_bytes
                found.node_count += 1
                if at < len(stream.sealed) - kept:
                    line.add(node)
            elif node.place is not None and node.place.file in sparse:
                line.add(node, also_cold=True)
        if at % limits.NODES_LOOKED_AT_ONCE == 0:
            yield
