"""The fields of a message, one after the other, with bounds on all that a peer can claim.

number   1, 2, 4 or 8 bytes, little-endian
text     | length 2 | UTF-8 |
end      | lsn 8 | ts 8 |                                     ts all ones: not known
position | ts 8 | shards 2 | end ... |
reached  | ts 8 | shards 2 | lsn 8 ... |
epoch    | id 8 | last_ts 8 | first_ts 8 | shards 2 | lsn 8 ... |
epochs   | count 2 | epoch ... |
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeVar

from tidelog import limits
from tidelog.errors import InternalError, LinkMisused
from tidelog.ids import U64_MAX, Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.replication.message import HistoryPosition, Reached, ShardEnd

_U16: Final = struct.Struct("<H")
_NUMBER_BYTES_MAX: Final = 8
_WORD: Final = re.compile(r"[^\s,]*")

_EnumT = TypeVar("_EnumT", bound=IntEnum)


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def text(value: str) -> bytes:
    """Cut where it is too long: a reason is for people."""
    data = value.encode(errors="replace")
    if len(data) > limits.REPLICATION_TEXT_BYTES_MAX:
        data = data[: limits.REPLICATION_TEXT_BYTES_MAX].decode(errors="ignore").encode()
    return _U16.pack(len(data)) + data


def name(value: str) -> bytes:
    """A text that must not be cut."""
    if len(value.encode()) > limits.REPLICATION_TEXT_BYTES_MAX:
        raise InternalError(f"a name of {len(value)} characters is too long for a link")
    return text(value)


def lsns(values: Sequence[Lsn]) -> bytes:
    return struct.pack(f"<H{len(values)}Q", len(values), *values)


def position(value: HistoryPosition) -> bytes:
    flat = [field for end in value.shards for field in (end.lsn, U64_MAX if end.ts is None else end.ts)]
    return struct.pack(f"<QH{len(flat)}Q", value.ts, len(value.shards), *flat)


def reached(value: Reached) -> bytes:
    return number(value.ts, 8) + lsns(value.lsns)


def epoch(value: Epoch) -> bytes:
    return number(value.id, 8) + number(value.last_ts, 8) + number(value.first_ts, 8) + lsns(value.lsns)


def epochs(values: Sequence[Epoch]) -> bytes:
    return _U16.pack(len(values)) + b"".join(map(epoch, values))


class FieldReader:
    """Reads the fields of one message. Nothing is made because of a length alone: the bytes must be there."""

    def __init__(self, what: str, data: bytes, at: int, end: int) -> None:
        self._what = what
        """What is read, for errors."""
        self._data = data
        self._at = at
        self._end = end

    def _take(self, size: int) -> int:
        """The position of the next bytes, which are there."""
        at = self._at
        if self._end - at < size:
            raise LinkMisused(f"{self._what} is cut short: it lacks {size - (self._end - at)} bytes")
        self._at = at + size
        return at

    @property
    def has_more(self) -> bool:
        return self._at < self._end

    def number(self, size: int) -> int:
        at = self._take(size)
        return int.from_bytes(self._data[at : at + size], "little")

    def ts(self) -> Ts:
        return Ts(self.number(_NUMBER_BYTES_MAX))

    def flag(self) -> bool:
        value = self.number(1)
        if value > 1:
            raise LinkMisused(f"{self._what} has {value} where 0 or 1 belongs")
        return bool(value)

    def choice(self, kind: type[_EnumT]) -> _EnumT:
        value = self.number(1)
        try:
            return kind(value)
        except ValueError:
            raise LinkMisused(f"{self._what} has {value}, which is no {kind.__name__} that is known here") from None

    def text(self) -> str:
        size = self.number(2)
        if size > limits.REPLICATION_TEXT_BYTES_MAX:
            raise LinkMisused(f"{self._what} has a text of {size} bytes: at most {limits.REPLICATION_TEXT_BYTES_MAX}")
        at = self._take(size)
        try:
            return self._data[at : at + size].decode()
        except UnicodeDecodeError:
            raise LinkMisused(f"{self._what} has a text that is not UTF-8") from None

    def word(self) -> str:
        """A text that fits into a line of INFO: no spaces, no control characters, no commas."""
        found = self.text()
        if not found.isprintable() or not _WORD.fullmatch(found):
            raise LinkMisused(f"{self._what} has {found[:100]!r} where one word belongs")
        return found

    def bytes_of(self, size: int) -> bytes:
        at = self._take(size)
        return self._data[at : at + size]

    def rest(self) -> bytes:
        return self.bytes_of(self._end - self._at)

    def count(self, most: int, of_what: str) -> int:
        found = self.number(2)
        if found > most:
            raise LinkMisused(f"{self._what} has {found} {of_what}: at most {most}")
        return found

    def lsns(self) -> tuple[Lsn, ...]:
        return self._numbers(self.count(limits.SHARDS_MAX, "shards"))

    def _numbers(self, count: int) -> tuple[Lsn, ...]:
        at = self._take(_NUMBER_BYTES_MAX * count)
        return tuple(map(Lsn, struct.unpack_from(f"<{count}Q", self._data, at)))

    def position(self) -> HistoryPosition:
        ts = self.ts()
        flat = self._numbers(2 * self.count(limits.SHARDS_MAX, "shards"))
        ends = zip(flat[::2], flat[1::2], strict=True)
        return HistoryPosition(
            ts, tuple(ShardEnd(lsn, None if before == U64_MAX else Ts(before)) for lsn, before in ends)
        )

    def reached(self) -> Reached:
        ts = self.ts()
        return Reached(ts, self.lsns())

    def epoch(self) -> Epoch:
        found = self.number(_NUMBER_BYTES_MAX)
        last_ts, first_ts = self.ts(), self.ts()
        return Epoch(found, self.lsns(), last_ts, first_ts)

    def epochs(self) -> tuple[Epoch, ...]:
        return tuple(self.epoch() for _ in range(self.count(limits.EPOCHS_KEPT_MAX, "epochs")))

    def finish(self) -> None:
        """Everything must have been read."""
        if self._at != self._end:
            raise LinkMisused(f"{self._what} has {self._end - self._at} bytes too many")
