"""The wire: messages to pieces and back, without a socket.

    piece    | length 4 | kind 1 | body | crc32c 4 |

    length   of kind and body: at most `REPLICATION_PIECE_BYTES_MAX`
    kind     what the body is (`kinds`)
    crc32c   of everything before it, the length among it

A message is one piece. What may be larger goes as several messages (`message`), so between any two pieces others can
pass, and neither side holds more of the other's bytes than one piece before they are proved. A peer that breaks the
protocol, or bytes that were changed on the way, end the link: pieces are never searched for again in a stream that has
lost its place, as whoever connects again gets everything that it does not have.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import InternalError, LinkDamaged, LinkMisused, ReplicationError
from tidelog.replication.fields import FieldReader
from tidelog.replication.kinds import BY_NUMBER, BY_TYPE, LinkSide, MessageKind, Opening
from tidelog.replication.message import (
    LinkMessage,
    LongPublication,
    LongRecord,
    PayloadPiece,
    TransactionParts,
)
from tidelog.replication.parts import decode_long_record, decode_parts

_HEAD: Final = struct.Struct("<IB")
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = _HEAD.size
_CRC_BYTES: Final = 4
PIECE_OVERHEAD_BYTES: Final = _HEAD_BYTES + _CRC_BYTES


def encode(message: LinkMessage) -> bytes:
    """The piece of a message. The same on every link, so it may be made once for several. Hot."""
    row = BY_TYPE[type(message)]
    chunks = row.encode(message)
    size = 1
    for chunk in chunks:
        size += len(chunk)
    if size > limits.REPLICATION_PIECE_BYTES_MAX:
        raise InternalError(f"{row.name} of {size} bytes: a piece has at most {limits.REPLICATION_PIECE_BYTES_MAX}")
    chunks.insert(0, _HEAD.pack(size, row.number))
    data = b"".join(chunks)
    return data + crc32c(data).to_bytes(_CRC_BYTES, "little")


class PieceDecoder:
    """What one side of a link is sent: fed bytes, asked for messages.

    `next` returns a message, or None if it needs more bytes, or raises: then the link has to be closed.
    """

    def __init__(self, sender: LinkSide) -> None:
        self._sender = sender
        """Who sends what is decoded here."""
        self._data = b""
        self._at = 0
        """Where in it the next piece begins ..."""
        self._more: list[bytes] = []
        """... and what came after it: joined once there is enough, as it may come byte by byte."""
        self._more_bytes = 0
        self._wanted = _HEAD_BYTES
        """With so many bytes there is something to do."""
        self._has_begun = False
        self._last: MessageKind | None = None
        """After this, nothing may follow."""
        self._owed = 0
        """Bytes of a payload that are still to come."""
        self._error: ReplicationError | None = None

    @property
    def unread_bytes(self) -> int:
        """What it holds: less than a piece, once `next` has returned None."""
        return len(self._data) - self._at + self._more_bytes

    @property
    def owed_bytes(self) -> int:
        """Of the payload that is under way, so many have not come."""
        return self._owed

    def feed(self, data: bytes) -> None:
        """Bytes that came."""
        if data:
            self._more.append(data)
            self._more_bytes += len(data)

    def feed_end(self) -> None:
        """Nothing more will come; `LinkDamaged` if a piece is cut, or a payload not whole."""
        if self.unread_bytes or self._owed:
            raise LinkDamaged(
                f"the link ended after {self.unread_bytes} bytes of a piece, when {self._owed} bytes of a payload were "
                f"still to come"
            )

    def next(self) -> LinkMessage | None:
        """The next message; None: it is not whole yet. Hot."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            return self._next()
        except ReplicationError as error:
            self._error = error
            raise

    def _next(self) -> LinkMessage | None:
        if not self._gather():
            return None
        data, at = self._data, self._at
        length, kind = _HEAD.unpack_from(data, at)
        if not 0 < length <= limits.REPLICATION_PIECE_BYTES_MAX:
            raise LinkMisused(
                f"the peer begins a piece of {length} bytes: it has 1 to {limits.REPLICATION_PIECE_BYTES_MAX}. Is it a "
                f"Tidelog server?"
            )
        self._wanted = _LENGTH_BYTES + length + _CRC_BYTES
        if not self._gather():
            return None
        data, at = self._data, self._at
        end = at + _LENGTH_BYTES + length
        if crc32c(memoryview(data)[at:end]) != int.from_bytes(data[end : end + _CRC_BYTES], "little"):
            raise LinkDamaged(f"the checksum of a piece of {length} bytes is wrong")
        self._at = end + _CRC_BYTES
        self._wanted = _HEAD_BYTES
        if self._at == len(data):
            self._data, self._at = b"", 0
        return self._decode(self._row(kind), data, at + _HEAD_BYTES, end)

    def _gather(self) -> bool:
        """Have as many bytes as are wanted in one place; false: they have not come."""
        held = len(self._data) - self._at
        if held < self._wanted:
            if held + self._more_bytes < self._wanted:
                return False
            rest = self._data[self._at :]
            self._data = b"".join([rest, *self._more]) if rest or len(self._more) > 1 else self._more[0]
            self._at = 0
            self._more.clear()
            self._more_bytes = 0
        return True

    def _row(self, kind: int) -> MessageKind:
        """What the kind of a piece is, if it may come now."""
        row = BY_NUMBER.get(kind)
        if row is None:
            raise LinkMisused(f"a piece of kind 0x{kind:02x}, which this version does not know")
        if row.sender is not None and row.sender is not self._sender:
            raise LinkMisused(f"{row.name} came from the {self._sender.value}, which never sends one")
        if self._last is not None:
            raise LinkMisused(f"{row.name} came after {self._last.name}, which nothing follows")
        if not self._has_begun:
            if row.opening is Opening.NEVER:
                raise LinkMisused(f"the link begins with {row.name} instead of a hello")
            self._has_begun = True
        elif row.opening is Opening.ALWAYS:
            raise LinkMisused(f"{row.name} came a second time")
        if row.is_ordered and self._owed:
            raise LinkMisused(f"{row.name} came while {self._owed} bytes of a payload were still to come")
        if row.is_last:
            self._last = row
        return row

    def _decode(self, row: MessageKind, data: bytes, at: int, end: int) -> LinkMessage:
        message: LinkMessage
        if row.decode is not None:
            body = FieldReader(row.name, data, at, end)
            message = row.decode(body)
            body.finish()
            if isinstance(message, LongPublication):
                self._owed = message.channel_size + message.payload_size
        elif row.type is TransactionParts:
            message = TransactionParts(decode_parts(data, at, end))
        elif row.type is LongRecord:
            part, self._owed = decode_long_record(data, at, end)
            message = LongRecord(part, self._owed)
        else:
            size = end - at
            if not 0 < size <= self._owed:
                raise LinkMisused(f"a payload of which {self._owed} bytes were to come goes on with {size}")
            self._owed -= size
            message = PayloadPiece(data[at:end])
        return message
