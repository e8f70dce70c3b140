"""Lists: pushing and popping at their ends, and moving from one to another.

Pops say in the journal what they popped. `pop_first`, `pop` and `move` decide for the commands here and for those that
wait for an element: they return None where such a command waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.commands.arguments import NOT_POSITIVE, count_of, many_popped, syntax_error
from tidelog.engine.table import LIST, ONE_KEY, Arguments, Command, Decision, Keys, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY
from tidelog.store.keyspace import Database
from tidelog.store.large import Pieces, whole
from tidelog.store.transaction import Transaction
from tidelog.types.list import popped, pushed
from tidelog.types.list_value import List

LEFT: Final = b"LEFT"
RIGHT: Final = b"RIGHT"
ENDS: Final = (LEFT, RIGHT)


class PoppedElements(NamedTuple):
    """What was popped from a list, and what makes it so."""

    key: bytes
    elements: list[bytes]
    """In the order of popping; at least one."""
    operations: list[Any]


def find_list(transaction: Transaction, key: bytes) -> List | None:
    value: List | None = transaction.find_typed(key, List)
    return value


def end_of(word: bytes) -> bytes:
    """LEFT or RIGHT, in any case."""
    end = word.upper()
    if end not in ENDS:
        raise syntax_error()
    return end


# --- deciding ---------------------------------------------------------------------------------------------------


def pop(transaction: Transaction, key: bytes, end: bytes, count: int) -> PoppedElements | None:
    """Pop up to so many elements, at least one; None: there is no list."""
    value = find_list(transaction, key)
    return None if value is None else _pop(key, value, end, count)


def _pop(key: bytes, value: List, end: bytes, count: int) -> PoppedElements:
    size = len(value)
    if end == LEFT:
        elements = value.slice(0, min(count, size))
    else:
        elements = value.slice(max(size - count, 0), size)
        elements.reverse()
    return PoppedElements(key, elements, popped(key, size, elements, is_left=end == LEFT))


def pop_first(transaction: Transaction, keys: Sequence[bytes], end: bytes, count: int) -> PoppedElements | None:
    """Pop from the first of the lists that is there; None: none is."""
    for key in keys:
        found = pop(transaction, key, end, count)
        if found is not None:
            return found
    return None


def move(transaction: Transaction, source: bytes, target: bytes, from_end: bytes, to_end: bytes) -> Decision | None:
    """Take an element from one list and put it to another; None: there is no list to take it from."""
    value = find_list(transaction, source)
    if value is None:
        return None
    find_list(transaction, target)  # or refuse
    element = value.at(0 if from_end == LEFT else len(value) - 1)
    put = pushed(target, [element], is_left=to_end == LEFT)
    if source == target:  # it is put first: so a list with one element, and its expiry, stay
        return element, [*put, *popped(source, len(value) + 1, [element], is_left=from_end == LEFT)]
    return element, [*popped(source, len(value), [element], is_left=from_end == LEFT), *put]


# --- pushing ----------------------------------------------------------------------------------------------------


def _push(transaction: Transaction, arguments: Arguments, *, is_left: bool, needs_list: bool = False) -> Decision:
    key, elements = arguments[1], arguments[2:]
    value = find_list(transaction, key)
    if value is None and needs_list:
        return 0, []
    return len(value or ()) + len(elements), pushed(key, elements, is_left=is_left)


def lpush(transaction: Transaction, arguments: Arguments) -> Decision:
    return _push(transaction, arguments, is_left=True)


def rpush(transaction: Transaction, arguments: Arguments) -> Decision:
    return _push(transaction, arguments, is_left=False)


def lpushx(transaction: Transaction, arguments: Arguments) -> Decision:
    return _push(transaction, arguments, is_left=True, needs_list=True)


def rpushx(transaction: Transaction, arguments: Arguments) -> Decision:
    return _push(transaction, arguments, is_left=False, needs_list=True)


# --- popping ----------------------------------------------------------------------------------------------------


def _pop_command(transaction: Transaction, arguments: Arguments, end: bytes) -> Decision:
    if len(arguments) > 3:
        raise CommandError(f"ERR wrong number of arguments for '{arguments[0].decode().lower()}' command")
    count = count_of(arguments[2], 0, NOT_POSITIVE) if len(arguments) == 3 else None
    value = find_list(transaction, arguments[1])
    if value is None:
        return None if count is None else NULL_ARRAY, []
    if count == 0:
        return [], []
    found = _pop(arguments[1], value, end, 1 if count is None else count)
    return found.elements[0] if count is None else found.elements, found.operations


def lpop(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop_command(transaction, arguments, LEFT)


def rpop(transaction: Transaction, arguments: Arguments) -> Decision:
    return _pop_command(transaction, arguments, RIGHT)


def lmpop(transaction: Transaction, arguments: Arguments) -> Decision:
    keys, end, count = many_popped(arguments, 1, ENDS)
    found = pop_first(transaction, keys, end, count)
    return (NULL_ARRAY, []) if found is None else ([found.key, found.elements], found.operations)


# --- moving -----------------------------------------------------------------------------------------------------


def _large_moved(database: Database, source: bytes, target: bytes, end: bytes) -> list[tuple[bytes, Pieces]]:
    """The element that would be moved to another list, if it is large: it is then written before."""
    value = database.peek(source)
    if type(value) is not List:
        return []
    element = value.at(0 if end == LEFT else len(value) - 1)
    return [(target, [whole(element)])] if len(element) >= limits.STAGED_BYTES_MIN else []


def large_lmove(database: Database, arguments: Arguments) -> list[tuple[bytes, Pieces]]:
    return _large_moved(database, arguments[1], arguments[2], arguments[3].upper())


def large_rpoplpush(database: Database, arguments: Arguments) -> list[tuple[bytes, Pieces]]:
    return _large_moved(database, arguments[1], arguments[2], RIGHT)


def lmove(transaction: Transaction, arguments: Arguments) -> Decision:
    from_end, to_end = end_of(arguments[3]), end_of(arguments[4])
    return move(transaction, arguments[1], arguments[2], from_end, to_end) or (None, [])


def rpoplpush(transaction: Transaction, arguments: Arguments) -> Decision:
    return move(transaction, arguments[1], arguments[2], RIGHT, LEFT) or (None, [])


_TWO_KEYS: Final = Keys(1, 2, 1)

COMMANDS: list[Command] = [
    write(LIST, "LPUSH", -3, lpush, ONE_KEY, "denyoom fast", summary="add elements at the left end"),
    write(LIST, "RPUSH", -3, rpush, ONE_KEY, "denyoom fast", summary="add elements at the right end"),
    write(
        LIST,
        "LPUSHX",
        -3,
        lpushx,
        ONE_KEY,
        "denyoom fast",
        summary="add elements at the left end of a list that exists",
    ),
    write(
        LIST,
        "RPUSHX",
        -3,
        rpushx,
        ONE_KEY,
        "denyoom fast",
        summary="add elements at the right end of a list that exists",
    ),
    write(LIST, "LPOP", -2, lpop, ONE_KEY, "fast", summary="remove and return elements at the left end"),
    write(LIST, "RPOP", -2, rpop, ONE_KEY, "fast", summary="remove and return elements at the right end"),
    write(
        LIST,
        "LMPOP",
        -4,
        lmpop,
        Keys(count_at=1),
        "movablekeys",
        summary="pop elements from the first list that has some",
    ),
    write(
        LIST,
        "LMOVE",
        5,
        lmove,
        _TWO_KEYS,
        "denyoom",
        summary="move an element from an end of a list to an end of another",
        large=large_lmove,
    ),
    write(
        LIST,
        "RPOPLPUSH",
        3,
        rpoplpush,
        _TWO_KEYS,
        "denyoom",
        summary="move the last element of a list to the left end of another",
        large=large_rpoplpush,
    ),
]
