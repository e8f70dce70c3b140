"""Entries of streams as replies. A reply has thousands of them, so its bytes are made a column at a time.

    T        [offset, tag, entry]
    X        [id, [field, value ...]]

What one family wrote looks to the other as section "Streams" of the design says: a tagged entry has the fields `tag`
and `entry`, an entry of fields is a nested array.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from tidelog.resp.encoder import Wire
from tidelog.streams.node import FIELDS, TAGGED, Rows

_T_TAGGED: Final = b"*3\r\n:%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
_T_FIELDS: Final = b"*3\r\n:%d\r\n$%d\r\n%b\r\n%b"
_X_TAGGED: Final = b"*2\r\n$%d\r\n%b\r\n*4\r\n$3\r\ntag\r\n$%d\r\n%b\r\n$5\r\nentry\r\n$%d\r\n%b\r\n"
_X_FIELDS: Final = b"*2\r\n$%d\r\n%b\r\n%b"


def entries_for_t(rows: Rows) -> list[Wire]:
    """A reply for each entry."""
    kinds = bytes(rows.kinds)
    if not any(kinds):
        columns = zip(rows.offsets, map(len, rows.tags), rows.tags, map(len, rows.entries), rows.entries, strict=True)
        return [Wire(_T_TAGGED % row) for row in columns]
    return [
        Wire(_T_TAGGED % (offset, len(tag), tag, len(entry), entry))
        if kind == TAGGED
        else Wire(_T_FIELDS % (offset, len(tag), tag, entry))
        for offset, kind, tag, entry in zip(rows.offsets, kinds, rows.tags, rows.entries, strict=True)
    ]


def array_for_t(rows: Rows) -> bytes:
    """The replies of all entries, one behind the other. Hot."""
    kinds = bytes(rows.kinds)
    if kinds.count(TAGGED) == len(kinds):
        columns = zip(rows.offsets, map(len, rows.tags), rows.tags, map(len, rows.entries), rows.entries, strict=True)
        return (_T_TAGGED * len(kinds)) % tuple(chain.from_iterable(columns))
    return b"".join(entries_for_t(rows))


def id_text(ms: int, seq: int) -> bytes:
    return b"%d-%d" % (ms, seq)


def array_for_x(rows: Rows) -> bytes:
    """The same for X. Hot."""
    kinds = bytes(rows.kinds)
    texts = [b"%d-%d" % pair for pair in zip(rows.ms, rows.seqs, strict=True)]
    if kinds.count(FIELDS) == len(kinds):
        columns = zip(map(len, texts), texts, rows.entries, strict=True)
        return (_X_FIELDS * len(kinds)) % tuple(chain.from_iterable(columns))
    return b"".join(
        [
            _X_TAGGED % (len(text), text, len(tag), tag, len(entry), entry)
            if kind == TAGGED
            else _X_FIELDS % (len(text), text, entry)
            for text, kind, tag, entry in zip(texts, kinds, rows.tags, rows.entries, strict=True)
        ]
    )


def x_entries(rows: Rows) -> Wire:
    """An array of entries, as XRANGE gives it."""
    return Wire(b"*%d\r\n%b" % (len(rows.entries), array_for_x(rows)))


def tagged_of_fields(words: list[bytes], first: int) -> tuple[int, bytes, bytes]:
    """Kind, tag and bytes of an entry that XADD was given: its fields and values are the words from a place on. Hot."""
    count = len(words)
    if count == first + 4 and words[first] == b"tag" and words[first + 2] == b"entry":
        return TAGGED, words[first + 1], words[first + 3]
    tag: bytes | None = None
    parts = [b"*%d\r\n" % (count - first)]
    for at in range(first, count, 2):
        field, value = words[at], words[at + 1]
        if tag is None and field == b"tag":
            tag = value
        parts.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(field), field, len(value), value))
    return FIELDS, tag or b"", b"".join(parts)
