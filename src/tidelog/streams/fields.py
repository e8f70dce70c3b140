"""The fields that payloads of operations on streams consist of: how each kind of them is encoded and decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.journal import flit
from tidelog.streams.node import SealedNode
from tidelog.streams.operations import PendingItem
from tidelog.streams.payload import PayloadReader, id_runs, numbers, packed_id, runs, text
from tidelog.streams.rows import unpack_id

ENCODE: Final[dict[str, Callable[[Any], bytes]]] = {
    "text": text,
    "flit": flit.encode,
    "u64": numbers,
    "i64": lambda number: number.to_bytes(8, "little", signed=True),
    "id": packed_id,
    "id or end": lambda number: packed_id(number) if number else b"",
    "flag": lambda flag: b"\1" if flag else b"\0",
    "runs": runs,
    "ids or end": lambda ids: id_runs(*zip(*map(unpack_id, ids), strict=True)) if ids else b"",
    "items": lambda items: numbers(len(items)) + b"".join([_encode_item(item) for item in items]),
    "calls": lambda calls: numbers(len(calls), *[number for call in calls for number in call]),
    "node": lambda node: node.ipc(),
}


def _encode_item(item: PendingItem) -> bytes:
    return numbers(item[0]) + packed_id(item[1]) + numbers(*item[2:])


def _decode_items(reader: PayloadReader) -> list[PendingItem]:
    found = []
    for _ in range(reader.count(56)):
        (offset,) = reader.numbers(1)
        number = reader.id()
        delivered_ms, deliveries, retry_after_ms, expire_ms = reader.numbers(4)
        found.append((offset, number, delivered_ms, deliveries, retry_after_ms, expire_ms))
    return found


def _decode_calls(reader: PayloadReader) -> list[tuple[int, int]]:
    flat = reader.numbers(2 * reader.count(16))
    return list(zip(flat[::2], flat[1::2], strict=True))


DECODE: Final[dict[str, Callable[[PayloadReader], Any]]] = {
    "text": PayloadReader.text,
    "flit": PayloadReader.flit,
    "u64": lambda reader: reader.numbers(1)[0],
    "i64": lambda reader: int.from_bytes(reader.take(8), "little", signed=True),
    "id": PayloadReader.id,
    "id or end": lambda reader: 0 if reader.is_at_end else reader.id(),
    "flag": PayloadReader.flag,
    "runs": PayloadReader.runs,
    "ids or end": lambda reader: () if reader.is_at_end else reader.id_runs(),
    "items": _decode_items,
    "calls": _decode_calls,
    "node": lambda reader: SealedNode.of_ipc(reader.rest()),
}
