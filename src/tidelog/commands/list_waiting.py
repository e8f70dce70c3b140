"""Lists: pops and moves that wait until there is an element.

    BLPOP | BRPOP key ... timeout                              the first key that has a list, in the order named
    BLMPOP timeout numkeys key ... LEFT | RIGHT [COUNT n]
    BLMOVE source target LEFT | RIGHT LEFT | RIGHT timeout
    BRPOPLPUSH source target timeout

They decide as LPOP, LMPOP and LMOVE do (`list_ends`). A client that finds no list waits for the first that is made
(`engine/blocking.py`), and runs the same command again then: so a key of another type before it, or a target of another
type, is an error at that moment and not earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.commands.arguments import many_popped
from tidelog.commands.list_ends import ENDS, LEFT, RIGHT, end_of, large_lmove, large_rpoplpush, move, pop_first
from tidelog.commands.timeouts import seconds_to_wait
from tidelog.engine.table import LIST, Arguments, Command, Decision, Keys, write
from tidelog.engine.would_block import ALIKE, WouldBlock
from tidelog.resp.encoder import NULL_ARRAY, Reply
from tidelog.store.transaction import Transaction
from tidelog.types.list_value import List


def _waits(keys: Sequence[bytes], arguments: Arguments, timeout_ms: int, at_once: Reply = NULL_ARRAY) -> WouldBlock:
    return WouldBlock(keys, arguments, timeout_ms, kin=ALIKE, awaits=List, at_once=at_once)


def _pop(transaction: Transaction, arguments: Arguments, end: bytes) -> Decision:
    timeout_ms, keys = seconds_to_wait(arguments[-1], transaction.now_ms), arguments[1:-1]
    found = pop_first(transaction, keys, end, 1)
    if found is None:
        raise _waits(keys, arguments, timeout_ms)
    return [found.key, found.elements[0]], found.operations


def blpop(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop(transaction, arguments, LEFT)


def brpop(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop(transaction, arguments, RIGHT)


def blmpop(transaction: Transaction, arguments: Arguments) -> Decision:
    keys, end, count = many_popped(arguments, 2, ENDS)
    timeout_ms = seconds_to_wait(arguments[1], transaction.now_ms)
    found = pop_first(transaction, keys, end, count)
    if found is None:
        raise _waits(keys, arguments, timeout_ms)
    return [found.key, found.elements], found.operations


def _move(transaction: Transaction, arguments: Arguments, from_end: bytes, to_end: bytes) -> Decision:
    timeout_ms = seconds_to_wait(arguments[-1], transaction.now_ms)
    decision = move(transaction, arguments[1], arguments[2], from_end, to_end)
    if decision is None:
        raise _waits(arguments[1:2], arguments, timeout_ms, at_once=None)
    return decision


def blmove(transaction: Transaction, arguments: Arguments) -> Decision:
    return _move(transaction, arguments, end_of(arguments[3]), end_of(arguments[4]))


def brpoplpush(transaction: Transaction, arguments: Arguments) -> Decision:
    return _move(transaction, arguments, RIGHT, LEFT)


_KEYS_AND_TIMEOUT: Final = Keys(1, -2, 1)
_TWO_KEYS: Final = Keys(1, 2, 1)

COMMANDS: list[Command] = [
    write(
        LIST,
        "BLPOP",
        -3,
        blpop,
        _KEYS_AND_TIMEOUT,
        "blocking",
        summary="pop the first element of the first list that has some, or wait for one",
    ),
    write(
        LIST,
        "BRPOP",
        -3,
        brpop,
        _KEYS_AND_TIMEOUT,
        "blocking",
        summary="pop the last element of the first list that has some, or wait for one",
    ),
    write(
        LIST,
        "BLMPOP",
        -5,
        blmpop,
        Keys(count_at=2),
        "blocking movablekeys",
        summary="pop elements from the first list that has some, or wait for one",
    ),
    write(
        LIST,
        "BLMOVE",
        6,
        blmove,
        _TWO_KEYS,
        "denyoom blocking",
        summary="move an element from an end of a list to an end of another, or wait for one",
        large=large_lmove,
    ),
    write(
        LIST,
        "BRPOPLPUSH",
        4,
        brpoplpush,
        _TWO_KEYS,
        "denyoom blocking",
        summary="move the last element of a list to the left end of another, or wait for one",
        large=large_rpoplpush,
    ),
]
