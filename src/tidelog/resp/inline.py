"""Inline commands: a line of words, for people with a terminal and for health checks.

Words are separated by white space. A word may be quoted: in double quotes with the escapes `\\n \\r \\t \\b \\a \\xHH`
and `\\` before any other character, in single quotes with `\\'` only. A closing quote must be followed by white space.

As in Redis a vertical tab or a form feed stands between words, but ends none. A zero byte is a space here; Redis would
wait for the end of the line for ever.
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = b" \t\r\n\v\f\0"
_WORD_END: Final = b" \t\r\n\0"
_ESCAPES: Final = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_QUOTE: Final = ord('"')
_APOSTROPHE: Final = ord("'")
_BACKSLASH: Final = ord("\\")


def split_line(line: bytes) -> list[bytes] | None:
    """The words of a line; None if its quotes are not balanced."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _SPACE:
            at += 1
        if at >= len(line):
            return words
        found = _take_word(line, at)
        if found is None:
            return None
        word, at = found
        words.append(word)


def _take_word(line: bytes, at: int) -> tuple[bytes, int] | None:
    word = bytearray()
    while at < len(line) and line[at] not in _WORD_END:
        if line[at] in (_QUOTE, _APOSTROPHE):
            end = _take_quoted(line, at, word)
            if end is None or (end < len(line) and line[end] not in _SPACE):
                return None
            return bytes(word), end
        word.append(line[at])
        at += 1
    return bytes(word), at


def _take_quoted(line: bytes, at: int, word: bytearray) -> int | None:
    """Take what stands in quotes from `at` on; returns where it ends, None if it does not."""
    quote = line[at]
    at += 1
    while at < len(line):
        byte = line[at]
        if byte == quote:
            return at + 1
        if byte == _BACKSLASH and quote == _QUOTE and at + 1 < len(line):
            escaped = line[at + 1]
            digits = line[at + 2 : at + 4]
            if escaped == ord("x") and len(digits) == 2 and _HEX.issuperset(digits):
                word.append(int(digits, 16))
                at += 4
                continue
            word.append(_ESCAPES.get(escaped, escaped))
            at += 2
        elif byte == _BACKSLASH and line[at + 1 : at + 2] == b"'":
            word.append(_APOSTROPHE)
            at += 2
        else:
            word.append(byte)
            at += 1
    return None
