"""Scores and the bounds of ranges as clients write them, and the places in a sorted set that a range covers.

Redis reads a score with `strtod` and is strict about what surrounds the number; the bounds of a range it reads with the
same function and no such care, so that an empty bound is 0 and 1e999 is infinite. Both take hexadecimal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from tidelog.commands.arguments import NOT_A_FLOAT, integer
from tidelog.errors import CommandError
from tidelog.types.zset_value import ZSet

NOT_A_SCORE_RANGE: Final = "ERR min or max is not a float"
NOT_A_LEX_RANGE: Final = "ERR min or max not valid string range item"

_DECIMAL: Final = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(rb"[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE)
_INFINITY: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_SPACE: Final = b" \t\n\v\f\r"

# --- numbers ----------------------------------------------------------------------------------------------------


def _number(text: bytes) -> tuple[float, bool] | None:
    """A number as `strtod` reads it, and whether it lies in the range of a double; None: the text is none, or NaN."""
    if _DECIMAL.fullmatch(text):
        number, exponent_mark = float(text), b"e"
    elif _HEXADECIMAL.fullmatch(text):
        exponent_mark = b"p"
        try:
            number = float.fromhex(text.decode())
        except OverflowError:
            number = -inf if text.startswith(b"-") else inf
    elif _INFINITY.fullmatch(text):
        return float(text), True
    else:
        return None
    if number == 0.0:
        return number, not text.lower().partition(exponent_mark)[0].strip(b"+-0x.")
    return number, number not in (inf, -inf)


_DIGITS_EXACT: Final = 16
"""Every whole number with fewer is a double."""


def score(argument: bytes, error: str = NOT_A_FLOAT) -> float:
    """A score, an increment or a weight."""
    if len(argument) < _DIGITS_EXACT and argument.isdigit():  # hot: no pattern
        return float(argument)
    found = _number(argument)
    if found is None or not found[1]:
        raise CommandError(error)
    return found[0]


def _bound(text: bytes) -> float:
    """A bound of a range; what follows a zero byte is not seen."""
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    found = _number(text.lstrip(_SPACE))
    if found is None:
        raise CommandError(NOT_A_SCORE_RANGE)
    return found[0]


# --- ranges -----------------------------------------------------------------------------------------------------


class RankRange(NamedTuple):
    """From a place to another, both included; negative ones count from the end."""

    first: int
    last: int

    def places(self, zset: ZSet, *, reverse: bool) -> tuple[int, int]:
        size = len(zset)
        start = max(self.first + size, 0) if self.first < 0 else self.first
        stop = min(self.last + size if self.last < 0 else self.last, size - 1) + 1
        if start >= stop:
            return 0, 0
        return (size - stop, size - start) if reverse else (start, stop)


class ScoreRange(NamedTuple):
    """From a score to another."""

    least: float
    most: float
    is_above_least: bool
    """Whether the least itself is left out."""
    is_below_most: bool

    def places(self, zset: ZSet, *, reverse: bool) -> tuple[int, int]:
        del reverse
        start = zset.place_of_score(self.least, after=self.is_above_least)
        return start, max(zset.place_of_score(self.most, after=not self.is_below_most), start)


class LexBound(NamedTuple):
    """One end of a range of members."""

    end: int
    """-1: before all members; 1: after all; 0: at `member`."""
    member: bytes
    is_exclusive: bool

    def is_below(self, member: bytes) -> bool:
        """Whether a member is far enough up for a range that begins here."""
        if self.end:
            return self.end < 0
        return self.member < member if self.is_exclusive else self.member <= member

    def is_above(self, member: bytes) -> bool:
        """Whether a member is far enough down for a range that ends here."""
        if self.end:
            return self.end > 0
        return self.member > member if self.is_exclusive else self.member >= member

    def place(self, zset: ZSet, score: float, *, after: bool) -> int:
        """Its place in a set whose members all have one score."""
        if self.end:
            return 0 if self.end < 0 else len(zset)
        return zset.place_of_entry(score, self.member, after=after)


class LexRange(NamedTuple):
    """From a member to another. It means something if all scores are equal; otherwise it is what a walk would find."""

    least: LexBound
    most: LexBound

    def places(self, zset: ZSet, *, reverse: bool) -> tuple[int, int]:
        (lowest, first), (highest, last) = zset.at(0), zset.at(-1)
        if lowest == highest:
            start = self.least.place(zset, lowest, after=self.least.is_exclusive)
            return start, max(self.most.place(zset, lowest, after=not self.most.is_exclusive), start)
        if not self.least.is_below(last) or not self.most.is_above(first):
            return 0, 0
        members = [member for _, member in zset]
        if not reverse:
            return _walk(members, self.least.is_below, self.most.is_above)
        start, stop = _walk(members[::-1], self.most.is_above, self.least.is_below)
        return len(members) - stop, len(members) - start


def _walk(
    members: list[bytes], has_begun: Callable[[bytes], bool], goes_on: Callable[[bytes], bool]
) -> tuple[int, int]:
    start = next((place for place, member in enumerate(members) if has_begun(member)), len(members))
    stop = start
    while stop < len(members) and goes_on(members[stop]):
        stop += 1
    return start, stop


Range = RankRange | ScoreRange | LexRange
"""`places` gives the first place and the one after the last, in a set that is not empty; equal: none."""


def rank_range(first: bytes, last: bytes) -> RankRange:
    return RankRange(integer(first), integer(last))


def score_range(least: bytes, most: bytes) -> ScoreRange:
    """`(` before a bound leaves it out."""
    is_above, is_below = least.startswith(b"("), most.startswith(b"(")
    return ScoreRange(_bound(least[is_above:]), _bound(most[is_below:]), is_above, is_below)


def lex_range(least: bytes, most: bytes) -> LexRange:
    """`[` before a bound takes it in, `(` leaves it out; `-` and `+` are the ends of all sets."""
    return LexRange(_lex_bound(least), _lex_bound(most))


def _lex_bound(text: bytes) -> LexBound:
    mark = text[:1]
    if mark in (b"[", b"("):
        return LexBound(0, text[1:], mark == b"(")
    if mark in (b"-", b"+") and text[1:2] in (b"", b"\0"):
        return LexBound(-1 if mark == b"-" else 1, b"", True)
    raise CommandError(NOT_A_LEX_RANGE)
