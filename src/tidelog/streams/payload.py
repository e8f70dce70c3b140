"""Payloads of operations on streams: functions that encode their parts, and a reader that decodes them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.ids import U64_MAX
from tidelog.journal import flit
from tidelog.journal.large_bytes import cut

WIDTHS: Final = {1: "B", 2: "H", 4: "I"}
"""Of sizes in an append -> their type in `array`."""
_LARGE: Final = limits.STAGED_BYTES_MIN
_pack_head: Final = struct.Struct("<QQQBBI").pack


def text(data: bytes) -> bytes:
    """`| length flit | bytes |`"""
    return flit.encode(len(data)) + data


def numbers(*values: int) -> bytes:
    """8 bytes each."""
    return struct.pack(f"<{len(values)}Q", *values)


def packed_id(number: int) -> bytes:
    """16 bytes."""
    return number.to_bytes(16, "little")


def runs(offsets: Sequence[int]) -> bytes:
    """`| runs flit | first offset flit, how many flit ... |` in the order given."""
    if offsets and type(offsets) is range and offsets.step == 1:
        return flit.encode(1) + flit.encode(offsets[0]) + flit.encode(len(offsets))
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][0] + found[-1][1] == offset:
            found[-1][1] += 1
        else:
            found.append([offset, 1])
    return b"".join([flit.encode(number) for number in (len(found), *(each for run in found for each in run))])


def encode_append(key: bytes, place: tuple[int, int, int], kind: int, tags: list[bytes], entries: list[bytes]) -> bytes:
    """The payload of an append without a producer; `place` is offset, ms and seq. Hot."""
    if len(entries) == 1:
        tag, entry = tags[0], entries[0]
        if len(key) < 128 and len(tag) < 256 and len(entry) < 256:
            head = _pack_head(place[0], place[1], place[2], kind, 1, 1)
            return b"%c%b%b\1%c%c%b%b" % (len(key) << 1 | 1, key, head, len(tag), len(entry), tag, entry)
    return b"".join(append_parts(key, place, kind, tags, entries))


def append_parts(
    key: bytes,
    place: tuple[int, int, int],
    kind: int,
    tags: list[bytes],
    entries: list[bytes],
    producer: bytes = b"",
    producer_seq: int = 0,
) -> list[bytes]:
    """The payload of any append, in parts."""
    sizes: list[int] = []
    largest = 0
    for tag in tags:
        sizes.append(len(tag))
        largest = max(largest, len(tag))
    for entry in entries:
        sizes.append(len(entry))
        largest = max(largest, len(entry))
    width = 1 if largest < 256 else 2 if largest < 65536 else 4
    head = _pack_head(place[0], place[1], place[2], kind, width, len(entries))
    parts = [text(key), head, text(producer)]
    if producer:
        parts.append(numbers(producer_seq))
    parts.append(bytes(sizes) if width == 1 else array(WIDTHS[width], sizes).tobytes())
    parts += tags
    parts += entries
    return parts


class PayloadReader:
    """Takes a payload apart; `FormatError` if it ends too early."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._payload):
            raise FormatError(f"a payload of {len(self._payload)} bytes should have {end}")
        found = self._payload[self._at : end]
        self._at = end
        return found

    def flit(self) -> int:
        try:
            number, self._at = flit.decode(self._payload, self._at)
        except IndexError:
            raise FormatError("a payload ends inside a number") from None
        return number

    def text(self) -> bytes:
        return self.take(self.flit())

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.take(8 * count))

    def id(self) -> int:
        return int.from_bytes(self.take(16), "little")

    def flag(self) -> bool:
        byte = self.take(1)
        if byte not in (b"\0", b"\1"):
            raise FormatError("a payload has a flag that is neither set nor unset")
        return byte == b"\1"

    def count(self, size: int) -> int:
        """How many items of a size follow."""
        (count,) = self.numbers(1)
        if count * size > len(self._payload) - self._at:
            raise FormatError(f"a payload of {len(self._payload)} bytes claims {count} items")
        return int(count)

    def runs(self) -> Sequence[int]:
        """What `runs` was given; no more offsets than a record may name, however large a damaged number is."""
        offsets: list[int] = []
        for _ in range(self.flit()):
            first, size = self.flit(), self.flit()
            if size > limits.RECORD_OFFSETS_MAX - len(offsets) or first + size > U64_MAX:
                raise FormatError(f"a payload names {size} offsets from {first} on")
            offsets += range(first, first + size)
        return offsets

    def items(self, sizes: Iterable[int]) -> list[bytes]:
        """As many pieces of these sizes. Hot while loading."""
        payload, at = self._payload, self._at
        found = []
        for size in sizes:
            found.append(payload[at : at + size] if size < _LARGE else cut(payload, at, at + size))
            at += size
        if at > len(payload):
            raise FormatError(f"a payload of {len(payload)} bytes should have {at}")
        self._at = at
        return found

    def rest(self) -> bytes:
        return self.take(len(self._payload) - self._at)

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._payload):
            raise FormatError(f"a payload of {len(self._payload)} bytes has {len(self._payload) - self._at} too many")
