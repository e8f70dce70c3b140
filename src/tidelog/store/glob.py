"""Patterns, as Redis's `stringmatchlen` has them.

    *        any bytes, none included              ?        one byte
    [a-c]    one of these; a range may run either way; `^` first: one that is none of these
    \\x       x itself, also inside brackets       other    itself

What is peculiar there is so here: brackets that are not closed end with the pattern; `[a-]` is a range to `]`; bytes of
128 and above are negative, so that they stand before 0 in a range; an empty string is matched by the empty pattern
only, not even by `*`.

After a star, the leftmost place where the pattern goes on is always the best, so a match never goes back behind the
last star. Even so a long part may have to be tried at very many places: then all places are looked at at once
(`bit_search`), and past a bound the match is given up with an error.

    short pattern    is cut at its stars into parts of a fixed length, literals and regular expressions, which C code
                     then looks for. It is read once for many strings
    long pattern     is walked along with the string, as Redis does it: reading all of it would take longer than most
                     strings need, which differ from it after a few bytes
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.store.bit_search import BitSearch

_STAR, _ANY, _OPEN, _CLOSE, _NOT, _ESCAPE, _RANGE = b"*?[]^\\-"
_SHORT_BYTES_MAX: Final = 256
_KEPT_MAX: Final = 128
"""Short patterns that are remembered ..."""
_READ_MAX: Final = 1024
"""... and brackets and runs of stars of a long one."""

Matcher = Callable[[bytes], bool]
_Brackets = tuple[frozenset[int], int]
"""What may stand for brackets, and the position after them."""
_EVERY: Final = frozenset(range(256))
_STARS: Final = re.compile(rb"\*+")
_PLAIN: Final = re.compile(rb"[^*?\[\\]+")
_LOWER: Final = bytes(range(256)).lower()
_TRIED_MAX: Final = 1 << 16
"""Bytes that are compared while a part is tried at one place after the other, beside some for each of the string."""
_SEARCHED_MAX: Final = 1 << 22
"""The same for a regular expression: the product of both sizes."""


class _Part(NamedTuple):
    """What stands between two stars: as many bytes as it has choices."""

    size: int
    literal: bytes | None
    """Its bytes, if there is no choice: faster, and nothing to compile."""
    regex: re.Pattern[bytes] | None
    choices: list[frozenset[int]]

    def is_at(self, string: bytes, at: int) -> bool:
        if self.literal is not None:
            return string.startswith(self.literal, at)
        assert self.regex is not None
        return self.regex.match(string, at) is not None

    def find_end(self, string: bytes, start: int, end: int) -> int:
        """Where its leftmost place ends; -1: it has none."""
        if self.literal is not None:
            at = string.find(self.literal, start, end)
            return -1 if at < 0 else at + self.size
        assert self.regex is not None
        if self.size * (end - start) > _SEARCHED_MAX:
            return BitSearch(string[:end]).find_end(self.choices, start)
        found = self.regex.search(string, start, end)
        return -1 if found is None else found.end()


def matches(pattern: bytes, string: bytes) -> bool:
    """Whether a string matches a pattern. To try many strings, call `matcher` once."""
    return matcher(pattern)(string)


def matcher(pattern: bytes, *, ignores_case: bool = False) -> Matcher:
    """Says of a string whether it matches the pattern."""
    make = _kept_matcher if len(pattern) <= _SHORT_BYTES_MAX else walking_matcher
    return make(pattern, ignores_case)


# --- long patterns ----------------------------------------------------------------------------------------------


def walking_matcher(pattern: bytes, ignores_case: bool) -> Matcher:
    """For a pattern of any length: no more of it is read than a string needs."""
    return _LongPattern(pattern, ignores_case).matches


class _LongPattern:
    """A pattern that is read where a string leads, and remembers what it has read."""

    def __init__(self, pattern: bytes, ignores_case: bool) -> None:
        self._pattern = pattern
        self._ignores_case = ignores_case
        self._brackets: dict[int, _Brackets] = {}
        """By the position of what is in them."""
        self._stars: dict[int, tuple[int, bytes]] = {}
        """Position of a run of stars -> the position after it, and the plain bytes that follow there."""

    def matches(self, string: bytes) -> bool:
        pattern, size = self._pattern, len(self._pattern)
        if not string:
            return not pattern
        at = place = 0
        after_star, literal, star_place = -1, b"", 0
        """What follows the last star, and the place in the string that is tried for it."""
        tries_left = _TRIED_MAX + 4 * len(string)
        while place < len(string):
            if at < size and pattern[at] == _STAR:
                after_star, literal = self._star(at)
                if after_star == size:
                    return True
                star_place = string.find(literal, place)
            else:
                end = self._step(at, string[place]) if at < size else 0
                if end:
                    at = end
                    place += 1
                    continue
                if after_star < 0:
                    return False
                tries_left -= place - star_place + 1
                if tries_left < 0:
                    return self._finds_parts(string, after_star, star_place + 1)
                star_place = string.find(literal, star_place + 1)
            if star_place < 0:
                return False
            at, place = after_star, star_place
        while at < size and pattern[at] == _STAR:
            at = self._star(at)[0]
        return at == size

    def _finds_parts(self, string: bytes, at: int, place: int) -> bool:
        """Whether what follows a star matches the string from a place on, by looking for one part after the other."""
        search, size, end = BitSearch(string), len(self._pattern), len(string)
        while at < size:
            choices, at = self._read_part(at, end - place)
            if len(choices) > end - place:
                return False
            if at == size:  # nothing follows: it has to stand at the end
                return all(byte in choice for byte, choice in zip(string[end - len(choices) :], choices, strict=True))
            place = search.find_end(choices, place)
            if place < 0:
                return False
            at = self._star(at)[0]
        return True

    def _read_part(self, at: int, most: int) -> tuple[list[frozenset[int]], int]:
        """The choices from a position up to the next star, or one more than `most`; the position after them."""
        choices: list[frozenset[int]] = []
        pattern, size = self._pattern, len(self._pattern)
        while at < size and pattern[at] != _STAR and len(choices) <= most:
            byte = pattern[at]
            at += 1
            if byte == _OPEN:
                choice, at = self._read_brackets(at)
            elif byte == _ANY:
                choice = _EVERY
            else:
                if byte == _ESCAPE and at < size:
                    byte = pattern[at]
                    at += 1
                choice = _same(byte, self._ignores_case)
            choices.append(choice)
        return choices, at

    def _read_brackets(self, at: int) -> _Brackets:
        """The brackets that were opened before a position."""
        read = self._brackets.get(at)
        if read is None:
            read = _parse_brackets(self._pattern, at, self._ignores_case)
            if len(self._brackets) < _READ_MAX:
                self._brackets[at] = read
        return read

    def _step(self, at: int, given: int) -> int:
        """The position after what stands at one, if that may be the byte given; 0: it may not."""
        pattern, byte, end = self._pattern, self._pattern[at], at + 1
        if byte == _OPEN:
            read = self._read_brackets(end)
            return read[1] if given in read[0] else 0
        if byte == _ANY:
            return end
        if byte == _ESCAPE and end < len(pattern):
            byte = pattern[end]
            end += 1
        return end if byte == given or (self._ignores_case and _LOWER[byte] == _LOWER[given]) else 0

    def _star(self, at: int) -> tuple[int, bytes]:
        found = self._stars.get(at)
        if found is None:
            stars = _STARS.match(self._pattern, at)
            assert stars is not None
            end = stars.end()
            plain = None if self._ignores_case else _PLAIN.match(self._pattern, end)
            found = end, b"" if plain is None else plain[0]
            if len(self._stars) < _READ_MAX:
                self._stars[at] = found
        return found


# --- short patterns ---------------------------------------------------------------------------------------------


def _matcher(pattern: bytes, ignores_case: bool) -> Matcher:
    parts = [_part(choices) for choices in _parse(pattern, ignores_case)]
    first = parts[0]
    if len(parts) == 1:
        return lambda string: len(string) == first.size and first.is_at(string, 0)
    middle, last = parts[1:-1], parts[-1]

    def is_match(string: bytes) -> bool:
        at, end = first.size, len(string) - last.size
        if end < at or not string or not first.is_at(string, 0) or not last.is_at(string, end):
            return False
        for part in middle:
            at = part.find_end(string, at, end)
            if at < 0:
                return False
        return True

    return is_match


_kept_matcher: Final = lru_cache(_KEPT_MAX)(_matcher)


# --- reading a pattern ------------------------------------------------------------------------------------------


def _parse(pattern: bytes, ignores_case: bool) -> list[list[frozenset[int]]]:
    """The parts between the stars; a part is, for each of its bytes, the ones that may stand there."""
    parts: list[list[frozenset[int]]] = [[]]
    singles = [_same(byte, ignores_case) for byte in range(256)]
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        at += 1
        if byte == _STAR:
            if parts[-1] or len(parts) == 1:  # of several stars in a row, one is enough
                parts.append([])
        elif byte == _ANY:
            parts[-1].append(_EVERY)
        elif byte == _OPEN:
            choices, at = _parse_brackets(pattern, at, ignores_case)
            parts[-1].append(choices)
        else:
            if byte == _ESCAPE and at < len(pattern):
                byte = pattern[at]
                at += 1
            parts[-1].append(singles[byte])
    return parts


def _parse_brackets(pattern: bytes, at: int, ignores_case: bool) -> _Brackets:
    """The brackets that were opened before a position."""
    is_negated = at < len(pattern) and pattern[at] == _NOT
    if is_negated:
        at += 1
    choices: set[int] = set()
    while at < len(pattern):
        byte, left = pattern[at], len(pattern) - at
        if byte == _ESCAPE and left >= 2:
            choices.add(pattern[at + 1])
            at += 2
        elif byte == _CLOSE:
            at += 1
            break
        elif left >= 3 and pattern[at + 1] == _RANGE:
            choices |= _range(byte, pattern[at + 2], ignores_case)
            at += 3
        else:
            choices |= _same(byte, ignores_case)
            at += 1
    return frozenset(_EVERY - choices if is_negated else choices), at


@lru_cache(1024)
def _range(start: int, end: int, ignores_case: bool) -> frozenset[int]:
    first, last = sorted((_signed(start), _signed(end)))
    if ignores_case:
        first, last = _lower(first), _lower(last)
    shown = (lambda byte: _lower(_signed(byte))) if ignores_case else _signed
    return frozenset(byte for byte in _EVERY if first <= shown(byte) <= last)


@lru_cache(512)
def _same(byte: int, ignores_case: bool) -> frozenset[int]:
    return frozenset({byte, *bytes([byte]).lower(), *bytes([byte]).upper()} if ignores_case else {byte})


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _lower(signed: int) -> int:
    return signed + 32 if ord("A") <= signed <= ord("Z") else signed


def _part(choices: list[frozenset[int]]) -> _Part:
    if all(len(each) == 1 for each in choices):
        return _Part(len(choices), bytes(byte for each in choices for byte in each), None, choices)
    return _Part(len(choices), None, re.compile(b"".join(map(_regex, choices)), re.DOTALL), choices)


def _regex(choices: frozenset[int]) -> bytes:
    if choices == _EVERY:
        return b"."
    if not choices:
        return b"(?!)"
    return b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted(choices))
