"""Which keys a cycle changes that could not be written yet, for lack of space.

What a client is told must not depend on these while they may still be lost. The records are read back from the bytes
that wait: that costs nothing as long as there is space, and is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.blob import decode_reference
from tidelog.journal.frame import CRC_BYTES, decode_header
from tidelog.journal.operation import OperationTable
from tidelog.journal.record import BLOB, CONTROL, NEXT_CONT, skim
from tidelog.journal.segment import FilePosition
from tidelog.journal.shard_writer import Batch, FileWrite


def changed_keys(
    batches: Sequence[tuple[ShardId, Batch]], frame_bytes: int, table: OperationTable
) -> frozenset[bytes] | None:
    """The keys that these change, in whatever database; None: they may change any, or are too many to look at."""
    if sum(len(chunk) for _, batch in batches for write in batch.writes for chunk in write.chunks) > (
        limits.UNWRITTEN_LOOKED_AT_BYTES
    ):
        return None
    found: set[bytes] = set()
    for _, batch in batches:
        blobs = {whale.position: whale.payload for whale in batch.blobs}
        for opcode, flags, written in _records(batch.writes, frame_bytes):
            payload: bytes | None = written
            if flags & BLOB:
                reference = decode_reference(written)
                payload = blobs.get(FilePosition(reference.segment, reference.position))
                if payload is not None and len(payload) != reference.length:
                    payload = None
            keys = None if payload is None else table.keys(opcode, payload)
            if keys is None:
                return None
            found.update(keys)
    return frozenset(found)


def _records(writes: Sequence[FileWrite], frame_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Opcode, flags and payload of each, joined if it was split over two frames."""
    begun = b""
    for write in writes:
        data = b"".join(write.chunks)
        at = 0
        while at < len(data):
            in_frame = (write.position.at + at) % frame_bytes
            frame_end = at - in_frame + frame_bytes
            start = at if in_frame else at + decode_header(data, at).size
            for opcode, flags, _, _, _, first, end, _ in skim(data, start, min(len(data), frame_end - CRC_BYTES)):
                if opcode >= CONTROL:
                    continue
                if flags & NEXT_CONT:
                    begun = data[first:end]
                    continue
                yield opcode, flags, begun + data[first:end]
                begun = b""
            at = frame_end
