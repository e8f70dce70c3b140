"""Sorted sets: union, intersection and difference, to read and to store.

Inputs may be plain sets, whose members all have the score 1. Smaller inputs come first, as in Redis, so that sums of
doubles are taken in the same order and end in the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Final, NamedTuple

from tidelog.commands.arguments import count_of, integer, syntax_error
from tidelog.commands.sorted_set_bounds import score as read_score
from tidelog.commands.sorted_sets import replace, with_scores
from tidelog.engine.table import SORTED_SET, Arguments, Command, Decision, Keys, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.transaction import WRONG_TYPE, Transaction
from tidelog.types.set_value import Set
from tidelog.types.sorted_members import ScoredMember
from tidelog.types.zset_value import ZSet

CombineScores = Callable[[float, float], float]


def _sum(target: float, value: float) -> float:
    """Infinities of both signs make a zero."""
    total = target + value
    return 0.0 if isnan(total) else total


# A value that is NaN (an infinity of weight 0) compares as neither less nor greater, and leaves the target as it is.
_AGGREGATES: Final[dict[bytes, CombineScores]] = {
    b"SUM": _sum,
    b"MIN": min,
    b"MAX": max,
}


class Input(NamedTuple):
    """One of the sets, and what its scores are multiplied by."""

    value: ZSet | Set
    weight: float

    def entries(self) -> Iterable[ScoredMember]:
        return self.value if isinstance(self.value, ZSet) else [(1.0, member) for member in self.value.members()]

    def score(self, member: bytes) -> float | None:
        if isinstance(self.value, ZSet):
            return self.value.score(member)
        return 1.0 if member in self.value else None

    def weighted(self, score: float) -> float:
        """An infinity of weight 0 is a zero."""
        weighted = self.weight * score
        return 0.0 if isnan(weighted) else weighted


class AlgebraRequest(NamedTuple):
    """What such a command was asked for."""

    inputs: list[Input]
    """In the order of the arguments; a key that is not there is an empty set."""
    aggregate: CombineScores
    wants_scores: bool
    limit: int
    """For ZINTERCARD; 0: no limit."""

    def smallest_first(self) -> list[Input]:
        return sorted(self.inputs, key=lambda each: len(each.value))


def _request(transaction: Transaction, arguments: Arguments, count_at: int, options: Sequence[bytes]) -> AlgebraRequest:
    count = integer(arguments[count_at])
    if count < 1:
        name = arguments[0].decode("utf-8", "surrogateescape").lower()
        raise CommandError(f"ERR at least 1 input key is needed for '{name}' command")
    at = count_at + 1 + count
    if at > len(arguments):
        raise syntax_error()
    values = [_input(transaction, key) for key in arguments[count_at + 1 : at]]
    weights, wants_scores, limit = [1.0] * count, False, 0
    aggregate: CombineScores = _sum
    while at < len(arguments):
        option, remaining = arguments[at].upper(), len(arguments) - at - 1
        if option not in options:
            raise syntax_error()
        if option == b"WEIGHTS" and remaining >= count:
            weights = [
                read_score(each, "ERR weight value is not a float") for each in arguments[at + 1 : at + 1 + count]
            ]
            at += count
        elif option == b"AGGREGATE" and remaining and arguments[at + 1].upper() in _AGGREGATES:
            aggregate = _AGGREGATES[arguments[at + 1].upper()]
            at += 1
        elif option == b"LIMIT" and remaining:
            limit = count_of(arguments[at + 1], 0, "ERR LIMIT can't be negative")
            at += 1
        elif option == b"WITHSCORES":
            wants_scores = True
        else:
            raise syntax_error()
        at += 1
    inputs = [Input(value, weight) for value, weight in zip(values, weights, strict=True)]
    return AlgebraRequest(inputs, aggregate, wants_scores, limit)


def _input(transaction: Transaction, key: bytes) -> ZSet | Set:
    value = transaction.find(key)
    if value is None:
        return Set()
    if isinstance(value, ZSet | Set):
        return value
    raise CommandError(WRONG_TYPE)


# --- the algebra ------------------------------------------------------------------------------------------------


def _union(request: AlgebraRequest) -> list[ScoredMember]:
    scores: dict[bytes, float] = {}
    for each in request.smallest_first():
        for score, member in each.entries():
            weighted = each.weighted(score)
            scores[member] = request.aggregate(scores[member], weighted) if member in scores else weighted
    return sorted((score, member) for member, score in scores.items())


def _intersection(request: AlgebraRequest) -> list[ScoredMember]:
    smallest, *others = request.smallest_first()
    found: list[ScoredMember] = []
    for score, member in smallest.entries():
        result = smallest.weighted(score)
        for other in others:
            value = other.score(member)
            if value is None:
                break
            result = request.aggregate(result, value * other.weight)
        else:
            found.append((result, member))
    return sorted(found)


def _difference(request: AlgebraRequest) -> list[ScoredMember]:
    first, *others = request.inputs
    return [entry for entry in _sorted(first) if not any(entry[1] in other.value for other in others)]


def _sorted(each: Input) -> Iterable[ScoredMember]:
    return each.value if isinstance(each.value, ZSet) else sorted(each.entries())


# --- commands ---------------------------------------------------------------------------------------------------

_COMBINING: Final = (b"WEIGHTS", b"AGGREGATE")


def _reply(request: AlgebraRequest, entries: list[ScoredMember]) -> Reply:
    return with_scores(entries) if request.wants_scores else [member for _, member in entries]


def zunion(transaction: Transaction, arguments: Arguments) -> Reply:
    request = _request(transaction, arguments, 1, (*_COMBINING, b"WITHSCORES"))
    return _reply(request, _union(request))


def zinter(transaction: Transaction, arguments: Arguments) -> Reply:
    request = _request(transaction, arguments, 1, (*_COMBINING, b"WITHSCORES"))
    return _reply(request, _intersection(request))


def zdiff(transaction: Transaction, arguments: Arguments) -> Reply:
    request = _request(transaction, arguments, 1, (b"WITHSCORES",))
    return _reply(request, _difference(request))


def zintercard(transaction: Transaction, arguments: Arguments) -> Reply:
    request = _request(transaction, arguments, 1, (b"LIMIT",))
    smallest, *others = request.smallest_first()
    count = 0
    for _, member in smallest.entries():
        if all(member in other.value for other in others):
            count += 1
            if count == request.limit:
                break
    return count


def zunionstore(transaction: Transaction, arguments: Arguments) -> Decision:
    entries = _union(_request(transaction, arguments, 2, _COMBINING))
    return len(entries), replace(transaction, arguments[1], entries)


def zinterstore(transaction: Transaction, arguments: Arguments) -> Decision:
    entries = _intersection(_request(transaction, arguments, 2, _COMBINING))
    return len(entries), replace(transaction, arguments[1], entries)


def zdiffstore(transaction: Transaction, arguments: Arguments) -> Decision:
    entries = _difference(_request(transaction, arguments, 2, ()))
    return len(entries), replace(transaction, arguments[1], entries)


_INPUTS: Final = Keys(count_at=1)
_TARGET_AND_INPUTS: Final = Keys(1, 1, 1, count_at=2)
_STORES: Final = "denyoom movablekeys"

COMMANDS: list[Command] = [
    read(
        SORTED_SET,
        "ZUNION",
        -3,
        zunion,
        _INPUTS,
        "movablekeys",
        summary="return the members of all sorted sets together",
    ),
    read(
        SORTED_SET, "ZINTER", -3, zinter, _INPUTS, "movablekeys", summary="return the members that all sorted sets have"
    ),
    read(
        SORTED_SET,
        "ZDIFF",
        -3,
        zdiff,
        _INPUTS,
        "movablekeys",
        summary="return the members of the first sorted set that no other has",
    ),
    read(
        SORTED_SET,
        "ZINTERCARD",
        -3,
        zintercard,
        _INPUTS,
        "movablekeys",
        summary="count the members that all sorted sets have",
    ),
    write(
        SORTED_SET,
        "ZUNIONSTORE",
        -4,
        zunionstore,
        _TARGET_AND_INPUTS,
        _STORES,
        summary="store the members of all sorted sets together",
    ),
    write(
        SORTED_SET,
        "ZINTERSTORE",
        -4,
        zinterstore,
        _TARGET_AND_INPUTS,
        _STORES,
        summary="store the members that all sorted sets have",
    ),
    write(
        SORTED_SET,
        "ZDIFFSTORE",
        -4,
        zdiffstore,
        _TARGET_AND_INPUTS,
        _STORES,
        summary="store the members of the first sorted set that no other has",
    ),
]
