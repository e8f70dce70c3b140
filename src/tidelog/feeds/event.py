"""Events, as a feed sends them: RESP3 push messages, or arrays in RESP2.

    value        ts, key, type, field | nil, value | nil      nil value: deleted, the key or that field
    deleterange  ts, start, end                               every key of the span is gone
    expire       ts, key, expire_ms | nil                     with EXPIRY: when the key expires; nil: never
    steady       ts                                           what is behind is sent; from here on in order of ts
    checkpoint   ts, start, end, epoch, seen                  nothing at or below ts will follow for the span
    commit       ts                                           the transaction is whole

The items of a value event, by type (each type's module makes its own):

    string      nil, the value
    hash        field, value
    set         member, "1"
    zset        member, score
    list        "lpush", [element ...], and the other operations; nil, [element ...]: the whole list
    stream      nil, [[offset, id, tag, entry] ...]; "evict", offset; "del", [offset ...];
                "setid", [first, last, ...]; "copy", [first, last, ...]; "group", [name, what, ...];
                "config", [max bytes, max age, backlog]
    none        nil, nil                                      deleted, whatever it was
"""

from __future__ import annotations

from typing import Final

from tidelog.feeds.span import Span
from tidelog.ids import Ts
from tidelog.resp.encoder import NULL_3, NULL_BULK_2
from tidelog.types.change import EXPIRY, Change, Pieces, bulk, joined, number, text

FIELDS: Final = {
    b"value": ("ts", "key", "type", "field", "value"),
    b"deleterange": ("ts", "start", "end"),
    b"expire": ("ts", "key", "expire_ms"),
    b"steady": ("ts",),
    b"checkpoint": ("ts", "start", "end", "epoch", "seen"),
    b"commit": ("ts",),
}
"""What the items of an event are called where they have names."""


_BULK_HEADS_MAX: Final = 1024
_BULK_HEADS: Final = [b"$%d\r\n" % size for size in range(_BULK_HEADS_MAX)]


def encode_change(protocol: int, ts: Ts, change: Change) -> bytes | Pieces:
    """A `value` event, or an `expire`. Hot."""
    key, field, value = change.key, change.field, change.value
    nil = NULL_BULK_2 if protocol == 2 else NULL_3
    if change.type == EXPIRY:
        assert value is None or isinstance(value, bytes)
        return _event(protocol, EXPIRY, [number(ts), bulk(key), nil if value is None else value])
    head = b"%b$5\r\nvalue\r\n:%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        b"*6\r\n" if protocol == 2 else b">6\r\n",
        ts,
        len(key),
        key,
        len(change.type),
        change.type,
    )
    shown_field = nil if field is None else text(field)
    shown = nil if value is None else value
    if isinstance(shown_field, bytes) and isinstance(shown, bytes):
        return head + shown_field + shown
    return joined([head, shown_field, shown])


def string_frame(protocol: int, ts: Ts) -> tuple[bytes, bytes]:
    """What stands before and after the key in a `value` event of a string; its value follows. Hot."""
    if protocol == 2:
        return b"*6\r\n$5\r\nvalue\r\n:%d\r\n" % ts, b"\r\n$6\r\nstring\r\n$-1\r\n"
    return b">6\r\n$5\r\nvalue\r\n:%d\r\n" % ts, b"\r\n$6\r\nstring\r\n_\r\n"


def bulk_head(size: int) -> bytes:
    """What stands before a bulk string of this size. Hot."""
    return _BULK_HEADS[size] if size < _BULK_HEADS_MAX else b"$%d\r\n" % size


def encode_delete_range(protocol: int, ts: Ts, span: Span) -> bytes:
    return _event(protocol, b"deleterange", [number(ts), bulk(span.start), bulk(span.end)])


def encode_steady(protocol: int, ts: Ts) -> bytes:
    return _event(protocol, b"steady", [number(ts)])


def encode_commit(protocol: int, ts: Ts) -> bytes:
    return _event(protocol, b"commit", [number(ts)])


def encode_checkpoint(protocol: int, ts: Ts, span: Span, epoch: int, seen: Ts) -> bytes:
    return _event(protocol, b"checkpoint", [number(ts), bulk(span.start), bulk(span.end), number(epoch), number(seen)])


def _event(protocol: int, name: bytes, items: list[bytes]) -> bytes:
    head = b"*" if protocol == 2 else b">"
    return b"%b%d\r\n%b%b" % (head, len(items) + 1, bulk(name), b"".join(items))
