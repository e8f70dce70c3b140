"""Entries of streams as replies.

    T        [offset, tag, entry]
    X        [id, [field, value ...]]

What one family wrote looks to the other as section "Streams" of the design says: a tagged entry has the fields `tag`
and `entry`, an entry of fields is a nested array.

A reply has thousands of entries, so each is a handful of pieces, and all are joined once. Most pieces are those of the
entry before (its tag, the first digits of its offset or id) or come from a table of small numbers: to format an entry
takes several times as long. A piece in front begins with the line end of the entry before it, if that needs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog import limits
from tidelog.resp.encoder import Later, Reply, ReplyPart, Spliced, Wire
from tidelog.store.large import Piece, whole
from tidelog.streams.found import Found, FoundPart
from tidelog.streams.node import FIELDS, TAGGED, Rows
from tidelog.streams.rows import listed

_CRLF: Final = b"\r\n"
_SMALL: Final = 4096
_DIGITS: Final = [b"%d" % number for number in range(_SMALL)]
_LAST_DIGITS: Final = [b"%03d" % number for number in range(1000)]
_LAST_DIGITS_OF_MS: Final = [b"%03d-" % number for number in range(1000)]
_SIZES: Final = [b"\r\n$%d\r\n" % size for size in range(_SMALL)]
"""The line that says the size of what follows, and the end of the line before it."""


def array_for_t(rows: Rows) -> bytes:
    """The replies of all entries, one behind the other."""
    return b"".join(_pieces_for_t(rows, []))


def t_entries(found: Found, head: list[Reply], nulls_before: int = 0, nulls_after: int = 0) -> Wire | Spliced:
    """An array of entries, as TREAD gives it, with whatever goes before them, and nulls for those that are evicted."""
    if head or nulls_before or nulls_after or found.count >= limits.LATER_ENTRIES_MIN:
        return Spliced(head, _body(found, is_for_x=False), found.count, nulls_before, nulls_after)
    rows = found.rows()
    return Wire(b"".join(_pieces_for_t(rows, [b"*%d\r\n" % len(rows.entries)])))


class _EntriesLater(Later):
    """Entries of a node."""

    __slots__ = ("_is_for_x", "_part")

    def __init__(self, part: FoundPart, *, is_for_x: bool) -> None:
        self._part = part
        self._is_for_x = is_for_x

    def away(self) -> list[Any]:
        node = self._part.node_away
        return [] if node is None else [node]

    def encoded(self) -> bytes:
        rows = self._part.rows()
        return array_for_x(rows) if self._is_for_x else array_for_t(rows)


def _body(found: Found, *, is_for_x: bool) -> Sequence[ReplyPart]:
    """The replies of all entries: now, or of many of them, later."""
    if found.count >= limits.LATER_ENTRIES_MIN:
        return [_EntriesLater(part, is_for_x=is_for_x) for part in found.parts()]
    rows = found.rows()
    return [array_for_x(rows) if is_for_x else array_for_t(rows)]


def _pieces_for_t(rows: Rows, pieces: list[bytes]) -> list[bytes]:
    """Hot."""
    offsets, kinds = list(rows.offsets), bytes(rows.kinds)
    tags, entries = listed(rows.tags), listed(rows.entries)
    thousands, head, head_after_text = -1, b"", b""
    last_tag, tag_piece = b"", b"\r\n$0\r\n"
    is_after_text = False
    for index in range(len(entries)):
        offset, tag, entry = offsets[index], tags[index], entries[index]
        if offset // 1000 != thousands:
            thousands = offset // 1000
            head = b"*3\r\n:%d" % thousands if thousands else b"*3\r\n:"
            head_after_text = _CRLF + head
        if tag != last_tag:
            last_tag, tag_piece = tag, b"\r\n$%d\r\n%b" % (len(tag), tag)
        pieces.append(head_after_text if is_after_text else head)
        pieces.append(_LAST_DIGITS[offset % 1000] if thousands else _DIGITS[offset])
        pieces.append(tag_piece)
        is_after_text = kinds[index] == TAGGED
        pieces.append(_size_piece(entry) if is_after_text else _CRLF)
        pieces.append(entry)
    if is_after_text:
        pieces.append(_CRLF)
    return pieces


def array_for_x(rows: Rows) -> bytes:
    """The replies of all entries, one behind the other."""
    return b"".join(_pieces_for_x(rows, []))


def x_entries(found: Found) -> Wire | Spliced:
    """An array of entries, as XRANGE gives it."""
    if found.count >= limits.LATER_ENTRIES_MIN:
        return Spliced([], _body(found, is_for_x=True), found.count)
    return x_rows(found.rows())


def x_rows(rows: Rows) -> Wire:
    """The same of entries that were read already."""
    return Wire(b"".join(_pieces_for_x(rows, [b"*%d\r\n" % len(rows.entries)])))


def _pieces_for_x(rows: Rows, pieces: list[bytes]) -> list[bytes]:
    """Hot."""
    all_ms, seqs, kinds = list(rows.ms), list(rows.seqs), bytes(rows.kinds)
    tags, entries = listed(rows.tags), listed(rows.entries)
    seconds, seq_size, head, head_after_text = -1, 0, b"", b""
    last_tag, tag_piece = b"", _X_TAG % (0, b"")
    is_after_text = False
    for index in range(len(entries)):
        ms, tag, entry = all_ms[index], tags[index], entries[index]
        seq = _digits(seqs[index])
        if ms // 1000 != seconds or len(seq) != seq_size or not seconds:
            seconds, seq_size = ms // 1000, len(seq)
            text = b"%d" % ms
            head = b"*2\r\n$%d\r\n%b" % (len(text) + 1 + seq_size, text[:-3])
            head_after_text = _CRLF + head
        pieces.append(head_after_text if is_after_text else head)
        pieces.append(_LAST_DIGITS_OF_MS[ms % 1000] if seconds else b"%d-" % ms)
        pieces.append(seq)
        is_after_text = kinds[index] == TAGGED
        if is_after_text:
            if tag != last_tag:
                last_tag, tag_piece = tag, _X_TAG % (len(tag), tag)
            pieces.append(tag_piece)
            pieces.append(_size_piece(entry))
        else:
            pieces.append(_CRLF)
        pieces.append(entry)
    if is_after_text:
        pieces.append(_CRLF)
    return pieces


_X_TAG: Final = b"\r\n*4\r\n$3\r\ntag\r\n$%d\r\n%b\r\n$5\r\nentry"


def _digits(number: int) -> bytes:
    return _DIGITS[number] if number < _SMALL else b"%d" % number


def _size_piece(text: bytes) -> bytes:
    size = len(text)
    return _SIZES[size] if size < _SMALL else b"\r\n$%d\r\n" % size


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


def pieces_of_fields(words: Sequence[bytes]) -> tuple[int, bytes, list[Piece]]:
    """What `tagged_of_fields` makes, with the bytes in pieces: for large fields and values."""
    count = len(words)
    if count == 4 and words[0] == b"tag" and words[2] == b"entry":
        return TAGGED, words[1], [whole(words[3])]
    tag: bytes | None = None
    parts = [b"*%d\r\n" % count]
    for at in range(0, count, 2):
        field, value = words[at], words[at + 1]
        if tag is None and field == b"tag":
            tag = value
        parts += (b"$%d\r\n" % len(field), field, b"\r\n$%d\r\n" % len(value), value, b"\r\n")
    return FIELDS, tag or b"", [whole(part) for part in parts]
