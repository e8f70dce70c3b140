"""Records `nodes` of a snapshot, opened: a row for each node that they refer to, as if the node were in the record.

A snapshot refers to cold nodes of streams in node files. Here each of them becomes a record `node` with the bytes that
lie in the file, so that a reader of a snapshot finds all entries in rows of one kind. A node file is read only if the
payload is wanted.

The nodes of a few frames may be many times as large as the frames. So a task takes one piece of several: it reads the
references of its frames, and every n-th node of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.errors import Corruption
from tidelog.journal.inspection import JournalFolder
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.operation import NODES, OperationTable
from tidelog.journal.record_inspection import RecordInfo
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.snapshot_nodes import listed_path
from tidelog.ports import Disk
from tidelog.streams.operations import StreamNode
from tidelog.streams.payload import text
from tidelog.streams.sealed_node import SealedNode

_NODE: Final = 0x54


class OpenedReferences:
    """Opens what one task reads."""

    def __init__(
        self, disk: Disk, place: JournalFolder, table: OperationTable, piece: int, pieces: int, *, has_payload: bool
    ) -> None:
        self._table = table
        self._piece = piece
        self._pieces = pieces
        self._has_payload = has_payload
        self._count = 0
        """References that were seen, also those of other pieces."""
        self._files = NodeFiles(disk, place.folder, lambda: 0)
        self.damage: list[Corruption] = []
        """What could not be opened."""
        if place.meta.point is not None:
            snapshot = Snapshot(place.folder, place.meta, place.meta.point)
            for listed in place.meta.point.node_files:
                self._files.know(listed, listed_path(disk, snapshot, listed))

    def records(self, info: RecordInfo) -> Iterator[RecordInfo]:
        """The records that stand for one: itself, or those of its nodes; only those of this piece."""
        if info.opcode != NODES or info.payload is None:
            if self._piece == 0:
                yield info
            return
        operation = self._table.decode(NODES, info.payload, None)
        for reference in operation.references:
            self._count += 1
            if self._count % self._pieces != self._piece:
                continue
            try:
                place = self._files.place(reference.file_id, reference.position, reference.size, reference.crc)
                node = SealedNode.of_reference(reference, place)
                payload = self._encode(StreamNode(operation.key, node))
            except Corruption as error:
                self.damage.append(error)
                continue
            yield info._replace(opcode=_NODE, payload=payload, payload_bytes=len(payload))

    def _encode(self, operation: StreamNode) -> bytes:
        """Without the node, if nobody looks at it: the key is enough for the other columns."""
        if not self._has_payload:
            return text(operation.key)
        kind = self._table.get(_NODE)
        assert kind is not None
        return kind.encode(operation)
