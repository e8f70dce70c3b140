"""Payloads of operations on streams: functions that encode their parts, and a reader that decodes them."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import ge
from typing import Final

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.ids import U32_MAX, U64_MAX
from tidelog.journal import flit
from tidelog.journal.large_bytes import cut
from tidelog.streams.rows import SEQ_MAX, pack_id, pack_ids
from tidelog.streams.sealed_node import NodeReference

WIDTHS: Final = {1: "B", 2: "H", 4: "I"}
"""Of sizes in an append -> their type in `array`."""
_LARGE: Final = limits.STAGED_BYTES_MIN
_pack_head: Final = struct.Struct("<QQQBBI").pack
_pack_id: Final = struct.Struct("<QQ").pack
_RUN_IDS_MIN: Final = 8
"""Ids go as runs if a run has so many on average; otherwise finding the runs costs more than the bytes."""
_REFERENCE: Final = struct.Struct("<QQIIIIQQ16s16sB")
_IS_WHOLE: Final = 1
_HAS_HOLES: Final = 2


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


def id_runs(ms: Sequence[int], seqs: Sequence[int]) -> bytes:
    """Ids in order, of which there is at least one, from their two columns. Hot.

    `| runs flit | count flit, ms 8, seq 8 ... |` if they are few runs that count up within a millisecond, as batches of
    writes make them; otherwise `| 0 flit | count flit | every ms 8 | every seq 8 |`.
    """
    count, first_ms, first_seq = len(ms), ms[0], seqs[0]
    span_ms = ms[-1] - first_ms
    if not span_ms and seqs[-1] - first_seq == count - 1:
        return b"\x03%b%b" % (flit.encode(count), _pack_id(first_ms, first_seq))
    found = _few_runs(ms, seqs) if span_ms < count // _RUN_IDS_MIN else None
    if found is not None:
        return found
    return b"\x01%b%b%b" % (flit.encode(count), array("Q", ms).tobytes(), array("Q", seqs).tobytes())


def _few_runs(ms: Sequence[int], seqs: Sequence[int]) -> bytes | None:
    """Ids of few milliseconds as runs; None: the ids of one of them do not just count up."""
    runs_of_ids = []
    start, count = 0, len(ms)
    while start < count:
        end = bisect_right(ms, ms[start], start)
        if seqs[end - 1] - seqs[start] != end - 1 - start:
            return None
        runs_of_ids.append(flit.encode(end - start) + _pack_id(ms[start], seqs[start]))
        start = end
    return flit.encode(len(runs_of_ids)) + b"".join(runs_of_ids)


def node_references(references: Sequence[NodeReference]) -> bytes:
    """Cold nodes, how many of them first. Of each:

    | file id 8 | position 8 | size 4 | crc32c 4 | opened size 4 | entries 4 | first 8 | last 8 |
    | first id 16 | last id 16 | flags 1 | [offsets runs] |     flags: 1 it is whole, 2 it has holes: offsets are there
    """
    parts = [flit.encode(len(references))]
    for each in references:
        flags = (_IS_WHOLE if each.is_whole else 0) | (_HAS_HOLES if each.offsets is not None else 0)
        ids = packed_id(each.first_id), packed_id(each.last_id)
        sizes = each.size, each.crc, min(each.opened_bytes, U32_MAX), each.entry_count
        parts.append(_REFERENCE.pack(each.file_id, each.position, *sizes, each.first, each.last, *ids, flags))
        if each.offsets is not None:
            parts.append(runs(each.offsets))
    return b"".join(parts)


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

    def id_runs(self) -> list[int]:
        """What `id_runs` was given, as ids."""
        ids: list[int] = []
        runs_count = self.flit()
        if not runs_count:
            count = self.flit()
            if count > limits.RECORD_OFFSETS_MAX:
                raise FormatError(f"a payload names {count} ids")
            ms, seqs = array("Q", self.take(8 * count)), array("Q", self.take(8 * count))
            ids = pack_ids(ms, seqs)
        for _ in range(runs_count):
            count = self.flit()
            ms_of_run, seq = self.numbers(2)
            if not 0 < count <= limits.RECORD_OFFSETS_MAX - len(ids) or seq > SEQ_MAX - count + 1:
                raise FormatError(f"a payload names {count} ids from {ms_of_run}-{seq} on")
            first = pack_id(ms_of_run, seq)
            ids += range(first, first + count)
        if not ids or any(map(ge, ids, islice(ids, 1, None))):
            raise FormatError("a payload names no ids, or ids that are out of order")
        return ids

    @property
    def is_at_end(self) -> bool:
        """Nothing follows: older records end here."""
        return self._at == len(self._payload)

    def node_references(self) -> list[NodeReference]:
        found = []
        for _ in range(self.flit()):
            read = _REFERENCE.unpack(self.take(_REFERENCE.size))
            file_id, position, size, crc, opened_bytes, count, first, last, first_id, last_id, flags = read
            offsets = self.runs() if flags & _HAS_HOLES else None
            if flags & ~(_IS_WHOLE | _HAS_HOLES) or not 0 < first <= last < U64_MAX:
                raise FormatError("a reference to a node makes no sense")
            if count != (last - first + 1 if offsets is None else len(offsets)) or not count:
                raise FormatError(f"a reference to a node from {first} to {last} claims {count} entries")
            if offsets is not None and (offsets[0] != first or offsets[-1] != last):
                raise FormatError(f"the holes of a node from {first} to {last} are not its own")
            ids = int.from_bytes(first_id, "little"), int.from_bytes(last_id, "little")
            is_whole = bool(flags & _IS_WHOLE)
            found.append(
                NodeReference(file_id, position, size, crc, opened_bytes, first, last, count, *ids, is_whole, offsets)
            )
        return found

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
