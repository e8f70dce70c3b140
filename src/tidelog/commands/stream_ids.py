"""Ids of entries as X commands are given them: `ms-seq`, `ms`, `-`, `+`, and `(` before one that is not included.

Redis reads the two numbers as C's `strtoull` does: spaces and a sign may stand before them, zeros too. What it reads
here is one number, `ms << 64 | seq`.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from tidelog.errors import CommandError
from tidelog.streams.node import SEQ_MAX, pack_id, unpack_id

LARGEST_ID: Final = pack_id(SEQ_MAX, SEQ_MAX)
INVALID_ID: Final = "ERR Invalid stream ID specified as stream command argument"

_DIGITS_MAX: Final[i64] = 18
"""A number with as many is far from overflow."""
_DASH: Final[i64] = ord("-")
_ZERO: Final[i64] = ord("0")
_NUMBER: Final = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_NEGATIVE: Final = re.compile(rb"-[1-9][0-9]{0,18}")
"""What Redis sees to be negative; spelled in another way, it wraps around as an unsigned number does."""
_ID_BYTES_MAX: Final = 127


def id_text(number: int) -> bytes:
    """An id as it is shown."""
    return b"%d-%d" % unpack_id(number)


def strict_id(word: bytes, missing_seq: int = 0) -> int:
    """The number of an id that is spelled out; `CommandError` if it is none."""
    number = parse_id(word, missing_seq)
    if number is None:
        raise CommandError(INVALID_ID)
    return number


def any_id(word: bytes, missing_seq: int = 0) -> int:
    """The same; `-` is the smallest and `+` the largest."""
    if word == b"-":
        return 0
    return LARGEST_ID if word == b"+" else strict_id(word, missing_seq)


def first_of_interval(word: bytes) -> int:
    """The smallest id of an interval that begins with this."""
    if word[:1] != b"(" or len(word) < 2:
        return any_id(word)
    number = strict_id(word[1:]) + 1
    if number > LARGEST_ID:
        raise CommandError("ERR invalid start ID for the interval")
    return number


def last_of_interval(word: bytes) -> int:
    """The largest id of an interval that ends with this."""
    if word[:1] != b"(" or len(word) < 2:
        return any_id(word, SEQ_MAX)
    number = strict_id(word[1:], SEQ_MAX) - 1
    if number < 0:
        raise CommandError("ERR invalid end ID for the interval")
    return number


def parse_id(word: bytes, missing_seq: int = 0) -> int | None:
    """The number of an id; None: it is none. Hot."""
    number = plain_id(word)
    if number >= 0:
        return number
    if len(word) > _ID_BYTES_MAX:
        return None
    text, dash, seq_text = word.partition(b"\0")[0].partition(b"-")
    ms, seq = _unsigned(text), _unsigned(seq_text) if dash else missing_seq
    return None if ms is None or seq is None else pack_id(ms, seq)


def plain_id(word: bytes) -> int:
    """The number of an id that is spelled in the common way, `ms-seq`; -1: it is not. Hot."""
    size: i64 = len(word)
    at: i64 = 0
    ms: i64 = 0
    while at < size and at <= _DIGITS_MAX:
        digit: i64 = word[at] - _ZERO
        if not 0 <= digit <= 9:
            break
        ms = ms * 10 + digit
        at += 1
    if at == 0 or at > _DIGITS_MAX or at == size or word[at] != _DASH:
        return -1
    at += 1
    left: i64 = size - at
    if left == 0 or left > _DIGITS_MAX:
        return -1
    seq: i64 = 0
    while at < size:
        digit = word[at] - _ZERO
        if not 0 <= digit <= 9:
            return -1
        seq = seq * 10 + digit
        at += 1
    return pack_id(ms, seq)


def parse_open_id(word: bytes) -> int | None:
    """The `ms` of `ms-*`; None: it is another form, or none."""
    if not word.endswith(b"-*") or len(word) > _ID_BYTES_MAX or word.count(b"-") > 1:
        return None
    return _unsigned(word[:-2])


def _unsigned(text: bytes) -> int | None:
    found = _NUMBER.fullmatch(text)
    if found is None or int(found[2]) > SEQ_MAX or _NEGATIVE.fullmatch(text):
        return None
    number = int(found[2])
    return (SEQ_MAX + 1 - number) & SEQ_MAX if found[1] == b"-" else number
