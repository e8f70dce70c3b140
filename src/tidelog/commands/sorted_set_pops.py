"""Sorted sets: members with the lowest or highest scores are popped, at once or when there are some.

    ZPOPMIN | ZPOPMAX key [count]
    ZMPOP numkeys key ... MIN | MAX [COUNT n]
    BZPOPMIN | BZPOPMAX key ... timeout                        the first key that has members, in the order named
    BZMPOP timeout numkeys key ... MIN | MAX [COUNT n]

The members that are popped are what is journaled (`ZRem`). A client that finds all its keys empty waits for the first
that is made (`engine/blocking.py`), and runs the same command again then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.commands.arguments import NOT_POSITIVE, count_of, many_popped, syntax_error
from tidelog.commands.sorted_sets import find_zset, with_scores
from tidelog.commands.timeouts import seconds_to_wait
from tidelog.engine.table import ONE_KEY, SORTED_SET, Arguments, Command, Decision, Keys, write
from tidelog.engine.would_block import ALIKE, WouldBlock
from tidelog.resp.encoder import NULL_ARRAY, Reply
from tidelog.store.transaction import Transaction
from tidelog.types.sorted_members import ScoredMember
from tidelog.types.zset import zrem
from tidelog.types.zset_value import ZSet

_ENDS: Final = (b"MIN", b"MAX")


class _Popped(NamedTuple):
    """Members popped from one key."""

    key: bytes
    entries: list[ScoredMember]

    def decision(self, reply: Reply) -> Decision:
        return reply, zrem(self.key, [member for _, member in self.entries])


def _ends(zset: ZSet, count: int, *, highest: bool) -> list[ScoredMember]:
    if highest:
        return zset.slice(max(len(zset) - count, 0), len(zset))[::-1]
    return zset.slice(0, min(count, len(zset)))


def _pop_first(transaction: Transaction, keys: Sequence[bytes], count: int, *, highest: bool) -> _Popped | None:
    """Pop from the first key that has members; None: no key has any."""
    for key in keys:
        zset = find_zset(transaction, key)
        if zset is not None:
            return _Popped(key, _ends(zset, count, highest=highest))
    return None


def _waits(keys: Sequence[bytes], arguments: Arguments, timeout_ms: int) -> WouldBlock:
    return WouldBlock(keys, arguments, timeout_ms, kin=ALIKE, awaits=ZSet)


# --- one key ----------------------------------------------------------------------------------------------------


def _pop(transaction: Transaction, arguments: Arguments, *, highest: bool) -> Decision:
    if len(arguments) > 3:
        raise syntax_error()
    count = count_of(arguments[2], 0, NOT_POSITIVE) if len(arguments) == 3 else 1
    popped = _pop_first(transaction, arguments[1:2], count, highest=highest)
    if popped is None or count == 0:
        return [], []
    entries = popped.entries
    return popped.decision(with_scores(entries) if len(arguments) == 3 else [entries[0][1], entries[0][0]])


def zpopmin(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop(transaction, arguments, highest=False)


def zpopmax(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop(transaction, arguments, highest=True)


# --- the first of several keys ----------------------------------------------------------------------------------


def _pop_or_wait(transaction: Transaction, arguments: Arguments, *, highest: bool) -> Decision:
    timeout_ms, keys = seconds_to_wait(arguments[-1], transaction.now_ms), arguments[1:-1]
    popped = _pop_first(transaction, keys, 1, highest=highest)
    if popped is None:
        raise _waits(keys, arguments, timeout_ms)
    score, member = popped.entries[0]
    return popped.decision([popped.key, member, score])


def bzpopmin(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop_or_wait(transaction, arguments, highest=False)


def bzpopmax(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop_or_wait(transaction, arguments, highest=True)


def _pop_many(transaction: Transaction, keys: Sequence[bytes], end: bytes, count: int) -> Decision | None:
    popped = _pop_first(transaction, keys, count, highest=end == b"MAX")
    if popped is None:
        return None
    return popped.decision([popped.key, [[member, score] for score, member in popped.entries]])


def zmpop(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop_many(transaction, *many_popped(arguments, 1, _ENDS)) or (NULL_ARRAY, [])


def bzmpop(transaction: Transaction, arguments: Arguments) -> Decision:
    keys, end, count = many_popped(arguments, 2, _ENDS)
    timeout_ms = seconds_to_wait(arguments[1], transaction.now_ms)
    decision = _pop_many(transaction, keys, end, count)
    if decision is None:
        raise _waits(keys, arguments, timeout_ms)
    return decision


_KEYS_AND_TIMEOUT: Final = Keys(1, -2, 1)

COMMANDS: list[Command] = [
    write(
        SORTED_SET,
        "ZPOPMIN",
        -2,
        zpopmin,
        ONE_KEY,
        "fast",
        summary="remove and return the members with the lowest scores",
    ),
    write(
        SORTED_SET,
        "ZPOPMAX",
        -2,
        zpopmax,
        ONE_KEY,
        "fast",
        summary="remove and return the members with the highest scores",
    ),
    write(
        SORTED_SET,
        "BZPOPMIN",
        -3,
        bzpopmin,
        _KEYS_AND_TIMEOUT,
        "blocking fast",
        summary="pop the member with the lowest score of the first sorted set that has some, or wait for one",
    ),
    write(
        SORTED_SET,
        "BZPOPMAX",
        -3,
        bzpopmax,
        _KEYS_AND_TIMEOUT,
        "blocking fast",
        summary="pop the member with the highest score of the first sorted set that has some, or wait for one",
    ),
    write(
        SORTED_SET,
        "ZMPOP",
        -4,
        zmpop,
        Keys(count_at=1),
        "movablekeys",
        summary="pop members from the first sorted set that has some",
    ),
    write(
        SORTED_SET,
        "BZMPOP",
        -5,
        bzmpop,
        Keys(count_at=2),
        "blocking movablekeys",
        summary="pop members from the first sorted set that has some, or wait for one",
    ),
]
