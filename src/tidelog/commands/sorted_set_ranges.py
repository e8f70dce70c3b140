"""Sorted sets: ranges by rank, score and member, to read, count, store and remove.

All of them find two places in the set and take what lies between; going backwards is done at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tidelog.commands.arguments import integer, syntax_error
from tidelog.commands.sorted_set_bounds import Range, lex_range, rank_range, score_range
from tidelog.commands.sorted_sets import find_zset, replace, with_scores
from tidelog.engine.table import ONE_KEY, SORTED_SET, Arguments, Command, Decision, Keys, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.transaction import Transaction
from tidelog.types.sorted_members import ScoredMember
from tidelog.types.zset import zrem

_READERS: Final[dict[bytes, Callable[[bytes, bytes], Range]]] = {
    b"BYRANK": rank_range,
    b"BYSCORE": score_range,
    b"BYLEX": lex_range,
}


class RangeRequest(NamedTuple):
    """What a command of the ZRANGE family was asked for."""

    source: bytes
    bounds: Range
    is_reverse: bool
    offset: int
    limit: int
    """Negative: no limit."""
    wants_scores: bool

    def entries(self, transaction: Transaction) -> list[ScoredMember]:
        """What it finds, in the order that was asked for."""
        zset = find_zset(transaction, self.source)
        if zset is None or self.offset < 0:
            return []
        start, stop = self.bounds.places(zset, reverse=self.is_reverse)
        if self.is_reverse:
            stop = max(stop - self.offset, start)
            start = start if self.limit < 0 else max(start, stop - self.limit)
            return zset.slice(start, stop)[::-1]
        start = min(start + self.offset, stop)
        return zset.slice(start, stop if self.limit < 0 else min(stop, start + self.limit))


def _request(
    arguments: Arguments, by: bytes | None = None, *, reverse: bool | None = None, storing: bool = False
) -> RangeRequest:
    """Read the arguments; what the name of a command says already (`by`, `reverse`) is no option of it."""
    at = 2 if storing else 1
    source, bounds = arguments[at], arguments[at + 1 : at + 3]
    at += 3
    offset, limit, wants_scores = 0, -1, False
    while at < len(arguments):
        option = arguments[at].upper()
        if option == b"WITHSCORES" and not storing:
            wants_scores = True
        elif option == b"LIMIT" and at + 2 < len(arguments):
            offset, limit = integer(arguments[at + 1]), integer(arguments[at + 2])
            at += 2
        elif option == b"REV" and reverse is None:
            reverse = True
        elif option in (b"BYLEX", b"BYSCORE") and by is None:
            by = option
        else:
            raise syntax_error()
        at += 1
    by = by or b"BYRANK"
    if by == b"BYRANK":
        if limit != -1:
            raise CommandError("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
        offset = 0  # without a limit it is not refused, and not heeded either
    if wants_scores and by == b"BYLEX":
        raise CommandError("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
    if reverse and by != b"BYRANK":
        bounds = bounds[::-1]
    return RangeRequest(source, _READERS[by](*bounds), bool(reverse), offset, limit, wants_scores)


def _reply(transaction: Transaction, request: RangeRequest) -> Reply:
    entries = request.entries(transaction)
    return with_scores(entries) if request.wants_scores else [member for _, member in entries]


# --- reading ----------------------------------------------------------------------------------------------------


def zrange(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments))


def zrevrange(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments, b"BYRANK", reverse=True))


def zrangebyscore(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments, b"BYSCORE", reverse=False))


def zrevrangebyscore(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments, b"BYSCORE", reverse=True))


def zrangebylex(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments, b"BYLEX", reverse=False))


def zrevrangebylex(transaction: Transaction, arguments: Arguments) -> Reply:
    return _reply(transaction, _request(arguments, b"BYLEX", reverse=True))


def _count(transaction: Transaction, key: bytes, bounds: Range) -> int:
    zset = find_zset(transaction, key)
    if zset is None:
        return 0
    start, stop = bounds.places(zset, reverse=False)
    return stop - start


def zcount(transaction: Transaction, arguments: Arguments) -> Reply:
    return _count(transaction, arguments[1], score_range(*arguments[2:4]))


def zlexcount(transaction: Transaction, arguments: Arguments) -> Reply:
    return _count(transaction, arguments[1], lex_range(*arguments[2:4]))


# --- writing ----------------------------------------------------------------------------------------------------


def zrangestore(transaction: Transaction, arguments: Arguments) -> Decision:
    entries = _request(arguments, storing=True).entries(transaction)
    return len(entries), replace(transaction, arguments[1], entries)


def _remove(transaction: Transaction, key: bytes, bounds: Range) -> Decision:
    zset = find_zset(transaction, key)
    if zset is None:
        return 0, []
    members = [member for _, member in zset.slice(*bounds.places(zset, reverse=False))]
    operations: Sequence[Any] = zrem(key, members) if members else []
    return len(members), operations


def zremrangebyrank(transaction: Transaction, arguments: Arguments) -> Decision:
    return _remove(transaction, arguments[1], rank_range(*arguments[2:4]))


def zremrangebyscore(transaction: Transaction, arguments: Arguments) -> Decision:
    return _remove(transaction, arguments[1], score_range(*arguments[2:4]))


def zremrangebylex(transaction: Transaction, arguments: Arguments) -> Decision:
    return _remove(transaction, arguments[1], lex_range(*arguments[2:4]))


COMMANDS: list[Command] = [
    read(
        SORTED_SET, "ZRANGE", -4, zrange, ONE_KEY, summary="return members by rank, score or name, in either direction"
    ),
    read(SORTED_SET, "ZREVRANGE", -4, zrevrange, ONE_KEY, summary="return members by rank, highest score first"),
    read(SORTED_SET, "ZRANGEBYSCORE", -4, zrangebyscore, ONE_KEY, summary="return members by score"),
    read(
        SORTED_SET, "ZREVRANGEBYSCORE", -4, zrevrangebyscore, ONE_KEY, summary="return members by score, highest first"
    ),
    read(
        SORTED_SET,
        "ZRANGEBYLEX",
        -4,
        zrangebylex,
        ONE_KEY,
        summary="return members by name, where all scores are equal",
    ),
    read(SORTED_SET, "ZREVRANGEBYLEX", -4, zrevrangebylex, ONE_KEY, summary="return members by name, last first"),
    read(SORTED_SET, "ZCOUNT", 4, zcount, ONE_KEY, "fast", summary="count the members with a score in a range"),
    read(SORTED_SET, "ZLEXCOUNT", 4, zlexcount, ONE_KEY, "fast", summary="count the members with a name in a range"),
    write(
        SORTED_SET, "ZRANGESTORE", -5, zrangestore, Keys(1, 2, 1), "denyoom", summary="store a range under another key"
    ),
    write(SORTED_SET, "ZREMRANGEBYRANK", 4, zremrangebyrank, ONE_KEY, summary="remove members by rank"),
    write(SORTED_SET, "ZREMRANGEBYSCORE", 4, zremrangebyscore, ONE_KEY, summary="remove members by score"),
    write(SORTED_SET, "ZREMRANGEBYLEX", 4, zremrangebylex, ONE_KEY, summary="remove members by name"),
]
