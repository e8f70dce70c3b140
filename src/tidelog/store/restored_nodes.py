"""Nodes of streams on their way from a backup into a new data directory.

    read     cold nodes stay where they lie, in the files of the backup; what history seals becomes cold as it goes, in
             files of the new directory
    bring    what still lies in files of the backup is copied, some nodes at a time, each proved, and to the shard that
             its stream has now

So a restore holds no more of the streams in memory than a server does, and what history has trimmed is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidelog import limits
from tidelog.errors import NodeLost
from tidelog.ids import SLOT_COUNT, U64_MAX, ShardId
from tidelog.journal.loader import Apply
from tidelog.journal.node_files import NodeFiles, NodePlace
from tidelog.journal.node_format import LostNode
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.snapshot_nodes import check_length
from tidelog.ports import Disk
from tidelog.store.cooling import StoreCooling
from tidelog.store.store import Store
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream

WillRead = Callable[[Sequence[tuple[str, int, int]]], None]
"""Told which bytes of files are read next: path, position, length."""


class RestoredNodes:
    """Those of one restore."""

    def __init__(
        self,
        disk: Disk,
        source_disk: Disk,
        store: Store,
        target: str,
        owners: list[ShardId],
        prepare: Callable[[], None],
        will_read: WillRead | None = None,
    ) -> None:
        """`owners`: for every slot, its shard in the new directory; `prepare` makes that, unless it is made.
        `will_read`: the backup is far."""
        self._source_disk = source_disk
        self._store = store
        self._prepare = prepare
        self._will_read = will_read
        self._files = NodeFiles(disk, target, self._new_id)
        self._cooling = StoreCooling(self._files, store.databases, owners)
        self._source = NodeFiles(source_disk, "", self._new_id)
        for database in store.databases:
            database.node_files = self._source  # records refer to files of the backup
        self.lost_count = 0
        """Nodes that were lost in the backup already."""

    def _new_id(self) -> int:
        return self._store.random.randrange(U64_MAX)

    def read_from(self, snapshot: Snapshot) -> None:
        """Its records are about to be read."""
        for listed in snapshot.point.node_files:
            self._source.know(listed, check_length(self._source_disk, snapshot, listed))

    def spilling(self, apply: Apply) -> Apply:
        return self._cooling.spilling(apply, self._prepare)

    def bring(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Copy what still lies in files of the backup; `on_progress` is told of bytes, and how many there are."""
        total = sum(node.place.size for _, node in self._nodes() if node.place is not None) if on_progress else 0
        done = 0
        places: dict[tuple[int, int], NodePlace] = {}
        """By file and position in the backup: streams may share nodes, or parts of one."""
        waiting: dict[tuple[int, int], list[SealedNode]] = {}
        size, shard = 0, ShardId(0)
        for owner, node in self._nodes():
            place = node.place
            if place is None or place.file not in self._source:
                continue
            if owner != shard or size >= limits.COOLED_AT_ONCE_BYTES:
                places |= self._copy(shard, waiting)
                done += size
                if on_progress is not None:
                    on_progress(min(done, total), total)
                waiting, size, shard = {}, 0, owner
            key = place.file.id, place.position
            if key in places:
                node.move(places[key])
            elif key in waiting:
                waiting[key].append(node)
            else:
                waiting[key] = [node]
                size += place.size
        self._copy(shard, waiting)
        self.close()

    def close(self) -> None:
        """Append no more; what was written stays readable."""
        self._files.close()

    def _nodes(self) -> Iterator[tuple[ShardId, SealedNode]]:
        """Of all streams, with the shards that they have now."""
        for database in self._store.databases:
            for slot in range(SLOT_COUNT if database.size else 0):
                for part in database.buckets(slot):
                    for value in part.values():
                        if type(value) is Stream:
                            for node in value.sealed:
                                yield self._store.owners[slot], node

    def _copy(
        self, shard: ShardId, waiting: dict[tuple[int, int], list[SealedNode]]
    ) -> dict[tuple[int, int], NodePlace]:
        """Copy some nodes into a file of a shard, and let those who refer to them know."""
        if not waiting:
            return {}
        if self._will_read is not None:
            wanted = [nodes[0].place for nodes in waiting.values()]
            self._will_read([(each.file.path, each.position, each.end - each.position) for each in wanted if each])
        places = self._files.append(shard, [self._read(nodes[0]) for nodes in waiting.values()])
        for nodes, place in zip(waiting.values(), places, strict=True):
            for node in nodes:
                node.move(place)
        return dict(zip(waiting, places, strict=True))

    def _read(self, node: SealedNode) -> bytes | LostNode:
        assert node.place is not None
        try:
            return node.place.read()
        except NodeLost:  # it is not found again by restoring it: its readers are told here as they were there
            self.lost_count += 1
            return LostNode(node.place.size)
