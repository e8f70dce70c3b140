"""Lists: indexes and ranges, and elements in the middle. `list_ends` has what concerns their ends.

A negative index counts from the right. The journal has indexes from the left only, as they were when the command ran.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from tidelog.commands.arguments import I64_MAX, count_of, integer, syntax_error
from tidelog.commands.list_ends import find_list
from tidelog.engine.table import LIST, ONE_KEY, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.transaction import Transaction
from tidelog.types.list import LInsert, LSet, kept, removed

_NO_SUCH_KEY: Final = "ERR no such key"


def bounds(start: int, stop: int, size: int) -> tuple[int, int]:
    """A range as clients write it, its end included and negative indexes from the right -> its first index, and the one
    after its last; both the same if there is nothing in it."""
    first = max(start + size if start < 0 else start, 0)
    end = min(stop + size if stop < 0 else stop, size - 1) + 1
    return (first, end) if first < end else (0, 0)


# --- reading ----------------------------------------------------------------------------------------------------


def llen(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(find_list(transaction, arguments[1]) or ())


def lindex(transaction: Transaction, arguments: Arguments) -> Reply:
    value = find_list(transaction, arguments[1])
    if value is None:
        return None
    index = integer(arguments[2])
    if index < 0:
        index += len(value)
    return value.at(index) if 0 <= index < len(value) else None


def lrange(transaction: Transaction, arguments: Arguments) -> Reply:
    start, stop = integer(arguments[2]), integer(arguments[3])
    value = find_list(transaction, arguments[1])
    return [] if value is None else value.slice(*bounds(start, stop, len(value)))


def lpos(transaction: Transaction, arguments: Arguments) -> Reply:
    rank, count, compared_max = _lpos_options(arguments)
    value = find_list(transaction, arguments[1])
    found: list[int] = []
    if value is not None:
        places = value.places_of(arguments[2], compared_max or len(value), is_backward=rank < 0)
        passed = min(abs(rank) - 1, len(value))
        wanted = 1 if count is None else count or len(value)
        found = list(islice(places, passed, passed + min(wanted, len(value))))
    if count is not None:
        return found
    return found[0] if found else None


def _lpos_options(arguments: Arguments) -> tuple[int, int | None, int]:
    """RANK, COUNT (0: all; None: only one is wanted) and MAXLEN (0: all)."""
    rank, compared_max = 1, 0
    count: int | None = None
    for at in range(3, len(arguments), 2):
        if at + 1 == len(arguments):
            raise syntax_error()
        option, word = arguments[at].upper(), arguments[at + 1]
        if option == b"RANK":
            rank = integer(word)
            if rank == -I64_MAX - 1:
                raise CommandError(f"ERR value is out of range, value must between {-I64_MAX} and {I64_MAX}")
            if rank == 0:
                raise CommandError(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
                    "or use negative to start from the end of the list"
                )
        elif option == b"COUNT":
            count = count_of(word, 0, "ERR COUNT can't be negative")
        elif option == b"MAXLEN":
            compared_max = count_of(word, 0, "ERR MAXLEN can't be negative")
        else:
            raise syntax_error()
    return rank, count, compared_max


# --- changing ---------------------------------------------------------------------------------------------------


def lset(transaction: Transaction, arguments: Arguments) -> Decision:
    key, element = arguments[1], arguments[3]
    value = find_list(transaction, key)
    if value is None:
        raise CommandError(_NO_SUCH_KEY)
    index = integer(arguments[2])
    if index < 0:
        index += len(value)
    if not 0 <= index < len(value):
        raise CommandError("ERR index out of range")
    return "OK", [LSet(key, index, element)]


def linsert(transaction: Transaction, arguments: Arguments) -> Decision:
    key, where, pivot, element = arguments[1], arguments[2].upper(), arguments[3], arguments[4]
    if where not in (b"BEFORE", b"AFTER"):
        raise syntax_error()
    value = find_list(transaction, key)
    if value is None:
        return 0, []
    place = next(value.places_of(pivot, len(value)), None)
    if place is None:
        return -1, []
    return len(value) + 1, [LInsert(key, place + (where == b"AFTER"), element)]


def lrem(transaction: Transaction, arguments: Arguments) -> Decision:
    key, element, count = arguments[1], arguments[3], integer(arguments[2])
    value = find_list(transaction, key)
    if value is None:
        return 0, []
    places = value.places_of(element, len(value), is_backward=count < 0)
    found = list(islice(places, min(abs(count), len(value)) or None))
    if count < 0:
        found.reverse()
    return len(found), removed(key, found, element)


def ltrim(transaction: Transaction, arguments: Arguments) -> Decision:
    key, start, stop = arguments[1], integer(arguments[2]), integer(arguments[3])
    value = find_list(transaction, key)
    if value is None:
        return "OK", []
    return "OK", kept(key, len(value), *bounds(start, stop, len(value)))


COMMANDS: list[Command] = [
    read(LIST, "LLEN", 2, llen, ONE_KEY, "fast", summary="return the number of elements"),
    read(LIST, "LINDEX", 3, lindex, ONE_KEY, summary="return the element at an index"),
    read(LIST, "LRANGE", 4, lrange, ONE_KEY, summary="return the elements from an index to another"),
    read(LIST, "LPOS", -3, lpos, ONE_KEY, summary="return where an element stands"),
    write(LIST, "LSET", 4, lset, ONE_KEY, "denyoom", summary="replace the element at an index"),
    write(LIST, "LINSERT", 5, linsert, ONE_KEY, "denyoom", summary="add an element before or after another"),
    write(LIST, "LREM", 4, lrem, ONE_KEY, summary="remove elements with a value"),
    write(LIST, "LTRIM", 4, ltrim, ONE_KEY, summary="keep only the elements from an index to another"),
]
