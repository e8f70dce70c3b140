"""Regular expressions for names of channels, whose cost is bounded before any name is matched.

Python's `re` tries one way after another, and some expressions have exponentially many: `(a+)+b` would take years for a
name of 63 characters, which anybody may send. So an expression is taken apart once, and the ways are counted in which
it could try to match a name; one that could try too many is refused. The count is an upper bound:

    a sequence            the product of its parts
    a choice              the sum; the largest, if the first character tells which branch it is
    a repeat              one for each number of times; one, if the character after it tells where it ends
    a repeat of repeats   what is inside, to the power of the times

"The character tells" is what makes usual expressions cheap: in `room-(?P<id>[0-9]+)-[a-z]+` each repeat ends where a
character comes that it cannot have. Possessive repeats (`[a-z]++`) of characters never go back, and count as one.

What cannot be counted so is refused: references to groups, looking ahead or back, and flags (names of channels are
letters, digits, `_` and `-`, and upper and lower case differ).
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from tidelog import limits

_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "_-")
"""Of names."""
_END: Final = frozenset({"end"})
"""What follows a name, as if it were a letter."""
_NAME_LENGTH_MAX: Final = 63
_CATEGORIES: Final[dict[Any, frozenset[str]]] = {
    ops.CATEGORY_DIGIT: frozenset(string.digits),
    ops.CATEGORY_NOT_DIGIT: _LETTERS - frozenset(string.digits),
    ops.CATEGORY_SPACE: frozenset(),
    ops.CATEGORY_NOT_SPACE: _LETTERS,
    ops.CATEGORY_WORD: _LETTERS - {"-"},
    ops.CATEGORY_NOT_WORD: frozenset("-"),
}
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


class ChannelPattern:
    """A regular expression for whole names; `ValueError` says what is wrong with it."""

    __slots__ = ("_match", "captures", "text", "ways")

    def __init__(self, text: str) -> None:
        if not 0 < len(text) <= limits.CHANNEL_PATTERN_LENGTH_MAX:
            raise ValueError(f"must have 1 to {limits.CHANNEL_PATTERN_LENGTH_MAX} characters")
        try:
            compiled = re.compile(text, re.ASCII)
            tree = parser.parse(text, re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if tree.state.flags & ~re.ASCII:
            raise ValueError("must have no flags such as (?i): write [Aa] for a letter of either case")
        self.text: Final = text
        self.captures: Final = frozenset(compiled.groupindex)
        """The names of its groups."""
        self.ways: Final = _sequence(tree.data, _END).ways
        """How many it may try for one name, at most."""
        if self.ways > limits.CHANNEL_PATTERN_WAYS_MAX:
            raise ValueError(
                f"could try more than {limits.CHANNEL_PATTERN_WAYS_MAX} ways to match one name: write fewer repeats "
                "that can end in several places, put a character between them that they cannot have, or make them "
                "possessive, as in [a-z]++"
            )
        self._match = compiled.fullmatch

    def match(self, channel: str) -> dict[str, str | None] | None:
        """The named groups, if the whole name matches; one that took no part is None."""
        found = self._match(channel)
        return None if found is None else found.groupdict()


class _Part(NamedTuple):
    """What is known of a part of an expression."""

    ways: int
    """From one place in a name, at most."""
    first: frozenset[str]
    """The characters with which it can begin."""
    is_nullable: bool
    """It can match nothing."""


def _sequence(items: Sequence[tuple[Any, Any]], follow: frozenset[str]) -> _Part:
    """`follow`: the characters that can come after it."""
    ways, first, is_nullable = 1, frozenset[str](), True
    for operation, value in reversed(items):
        part = _item(operation, value, follow)
        ways *= part.ways
        first = part.first | first if part.is_nullable else part.first
        follow = part.first | follow if part.is_nullable else part.first
        is_nullable = is_nullable and part.is_nullable
    return _Part(min(ways, _TOO_MANY), first, is_nullable)


_TOO_MANY: Final = 10**9


def _item(operation: Any, value: Any, follow: frozenset[str]) -> _Part:
    letters = _letters(operation, value)
    if letters is not None:
        return _Part(1, letters, False)
    if operation is ops.SUBPATTERN:
        _, added, removed, inner = value
        if added or removed:
            raise ValueError("must have no flags such as (?i:...): write [Aa] for a letter of either case")
        return _sequence(inner.data, follow)
    if operation is ops.ATOMIC_GROUP:
        return _sequence(value.data, follow)
    if operation is ops.AT:
        return _Part(1, frozenset(), True)
    if operation is ops.BRANCH:
        return _branch([_sequence(each.data, follow) for each in value[1]], follow)
    if operation in _REPEATS:
        low, high, body = value
        return _repeat(operation, low, high, body, follow)
    raise ValueError("must have no references to groups, and nothing that looks ahead or back")


def _letters(operation: Any, value: Any) -> frozenset[str] | None:
    """The characters that an item of one character matches; None: it is something else."""
    if operation is ops.LITERAL:
        return _LETTERS & {chr(value)}
    if operation is ops.NOT_LITERAL:
        return _LETTERS - {chr(value)}
    if operation is ops.ANY:
        return _LETTERS
    if operation is not ops.IN:
        return None
    found: frozenset[str] = frozenset()
    is_negated = False
    for kind, each in value:
        if kind is ops.NEGATE:
            is_negated = True
        elif kind is ops.RANGE:
            found |= {letter for letter in _LETTERS if each[0] <= ord(letter) <= each[1]}
        elif kind is ops.CATEGORY:
            found |= _CATEGORIES[each]
        else:
            found |= _LETTERS & {chr(each)}
    return _LETTERS - found if is_negated else found


def _branch(branches: list[_Part], follow: frozenset[str]) -> _Part:
    begins = [each.first | follow if each.is_nullable else each.first for each in branches]
    first = frozenset[str]().union(*(each.first for each in branches))
    tells = sum(map(len, begins)) == len(frozenset().union(*begins))
    ways = max(each.ways for each in branches) if tells else sum(each.ways for each in branches)
    return _Part(ways, first, any(each.is_nullable for each in branches))


def _repeat(operation: Any, low: int, high: int, body: Any, follow: frozenset[str]) -> _Part:
    is_several = high > 1
    inner = _sequence(body.data, follow | _beginning(body.data)[0] if is_several else follow)
    is_nullable = low == 0 or inner.is_nullable
    if is_several and inner.is_nullable:
        raise ValueError("must not repeat what can be empty, such as (a*)*")
    is_of_characters = len(body.data) == 1 and _letters(*body.data[0]) is not None
    if operation is ops.POSSESSIVE_REPEAT and is_of_characters:
        return _Part(1, inner.first, is_nullable)
    times = min(high, _NAME_LENGTH_MAX)
    tells = not inner.first & follow and not inner.is_nullable
    ends = 1 if low == high or tells else max(1, times - low + 1)
    ways = ends if inner.ways == 1 else ends * min(inner.ways, _TOO_MANY) ** times
    return _Part(min(ways, _TOO_MANY), inner.first, is_nullable)


def _beginning(items: Sequence[tuple[Any, Any]]) -> tuple[frozenset[str], bool]:
    """The characters with which a sequence can begin, and whether it can match nothing."""
    first: frozenset[str] = frozenset()
    for operation, value in items:
        letters = _letters(operation, value)
        if letters is not None:
            return first | letters, False
        if operation is ops.BRANCH:
            begun = [_beginning(each.data) for each in value[1]]
        elif operation is ops.SUBPATTERN:
            begun = [_beginning(value[3].data)]
        elif operation is ops.ATOMIC_GROUP:
            begun = [_beginning(value.data)]
        elif operation in _REPEATS:
            begun = [_beginning(value[2].data)]
            begun += [(frozenset(), True)] if value[0] == 0 else []
        else:
            begun = [(frozenset(), True)]
        first = first.union(*(letters for letters, _ in begun))
        if not any(is_nullable for _, is_nullable in begun):
            return first, False
    return first, True
