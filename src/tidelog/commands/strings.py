"""Strings. Whatever computes a new value journals the value (`Val`), never the computation."""

from __future__ import annotations

from typing import Any

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, I64_MIN, add_floats, integer, syntax_error
from tidelog.commands.expiry_options import UNITS, absolute_ms
from tidelog.engine.table import ALL_KEYS, ONE_KEY, STRING, Arguments, Command, Decision, Keys, read, write
from tidelog.errors import CommandError
from tidelog.journal.operation import Del, Val
from tidelog.resp.encoder import Reply
from tidelog.store.keyspace import Database
from tidelog.store.large import Piece, Pieces, whole, zeros
from tidelog.store.transaction import WRONG_TYPE, Transaction
from tidelog.types.effect import split_long
from tidelog.types.key import Expire

_PAIRS = Keys(1, -1, 2)
_OFFSET_DIGITS_MAX = 18
"""Of SETRANGE: more are too many in any case."""


def _string(transaction: Transaction, key: bytes) -> bytes | None:
    value: bytes | None = transaction.find_typed(key, bytes)
    return value


def replace(transaction: Transaction, key: bytes, value: bytes, expire_ms: int | None = None) -> list[Any]:
    """Operations that put a string in the place of whatever is there."""
    operations: list[Any] = [Val([(key, value)], expire_ms)]
    if type(transaction.find(key)) not in (bytes, type(None)):
        operations.insert(0, Del([key]))
    return operations


def _changed(transaction: Transaction, key: bytes, value: bytes) -> list[Any]:
    """A string changed in place: it keeps its expiry."""
    return [Val([(key, value)], transaction.expiry(key) if transaction.find(key) is not None else None)]


def _check_size(size: int) -> None:
    if size > limits.BULK_BYTES_MAX:
        raise CommandError("ERR string exceeds maximum allowed size (proto-max-bulk-len)")


def get(transaction: Transaction, arguments: Arguments) -> Reply:
    return _string(transaction, arguments[1])


def set_(transaction: Transaction, arguments: Arguments) -> Decision:
    key, value = arguments[1], arguments[2]
    condition = unit = time = None
    wants_old = keeps_expiry = False
    at = 3
    while at < len(arguments):
        option = arguments[at].upper()
        if option in (b"NX", b"XX") and condition in (None, option):
            condition = option
        elif option == b"GET":
            wants_old = True
        elif option == b"KEEPTTL" and unit is None:
            keeps_expiry = True
        elif option in UNITS and unit in (None, option) and not keeps_expiry and at + 1 < len(arguments):
            at += 1
            unit, time = option, arguments[at]
        else:
            raise syntax_error()
        at += 1
    when = absolute_ms(time, unit, transaction.now_ms, "set") if unit is not None and time is not None else None
    old = transaction.find(key)
    if wants_old and type(old) not in (bytes, type(None)):
        raise CommandError(WRONG_TYPE)
    if (condition == b"NX" and old is not None) or (condition == b"XX" and old is None):
        return old if wants_old else None, []
    if keeps_expiry and old is not None:
        when = transaction.expiry(key)
    return old if wants_old else "OK", replace(transaction, key, value, when)


def setnx(transaction: Transaction, arguments: Arguments) -> Decision:
    if transaction.find(arguments[1]) is not None:
        return 0, []
    return 1, [Val([(arguments[1], arguments[2])])]


def _set_expiring(transaction: Transaction, arguments: Arguments, unit: bytes, command: str) -> Decision:
    when = absolute_ms(arguments[2], unit, transaction.now_ms, command)
    return "OK", replace(transaction, arguments[1], arguments[3], when)


def setex(transaction: Transaction, arguments: Arguments) -> Decision:
    return _set_expiring(transaction, arguments, b"EX", "setex")


def psetex(transaction: Transaction, arguments: Arguments) -> Decision:
    return _set_expiring(transaction, arguments, b"PX", "psetex")


def getset(transaction: Transaction, arguments: Arguments) -> Decision:
    return _string(transaction, arguments[1]), replace(transaction, arguments[1], arguments[2])


def getdel(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _string(transaction, arguments[1])
    return value, [Del([arguments[1]])] if value is not None else []


def getex(transaction: Transaction, arguments: Arguments) -> Decision:
    key = arguments[1]
    persists = False
    unit = time = None
    at = 2
    while at < len(arguments):
        option = arguments[at].upper()
        if option == b"PERSIST" and unit is None:
            persists = True
        elif option in UNITS and unit in (None, option) and not persists and at + 1 < len(arguments):
            at += 1
            unit, time = option, arguments[at]
        else:
            raise syntax_error()
        at += 1
    value = _string(transaction, key)
    if value is None:
        return None, []
    if unit is not None and time is not None:
        when = absolute_ms(time, unit, transaction.now_ms, "getex")
        return value, [Expire(key, when) if when > transaction.now_ms else Del([key])]
    return value, [Expire(key, None)] if persists and transaction.expiry(key) is not None else []


def mget(transaction: Transaction, arguments: Arguments) -> Reply:
    values = [transaction.find(key) for key in arguments[1:]]
    return [value if type(value) is bytes else None for value in values]


def _pairs(arguments: Arguments, command: str) -> list[tuple[bytes, bytes]]:
    if len(arguments) % 2 == 0:
        raise CommandError(f"ERR wrong number of arguments for '{command}' command")
    return list(zip(arguments[1::2], arguments[2::2], strict=True))


def _set_pairs(transaction: Transaction, pairs: list[tuple[bytes, bytes]]) -> list[Any]:
    latest = dict(pairs)
    of_other_types = [key for key in latest if type(transaction.find(key)) not in (bytes, type(None))]
    operations: list[Any] = [Del(of_other_types)] if of_other_types else []
    flat = [item for pair in latest.items() for item in pair]
    runs = split_long(b"", flat, 2)
    return operations + [Val(list(zip(run[::2], run[1::2], strict=True))) for run in runs]


def mset(transaction: Transaction, arguments: Arguments) -> Decision:
    return "OK", _set_pairs(transaction, _pairs(arguments, "mset"))


def msetnx(transaction: Transaction, arguments: Arguments) -> Decision:
    pairs = _pairs(arguments, "msetnx")
    if any(transaction.find(key) is not None for key, _ in pairs):
        return 0, []
    return 1, _set_pairs(transaction, pairs)


def append(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _string(transaction, arguments[1]) or b""
    _check_size(len(value) + len(arguments[2]))
    is_large = len(value) + len(arguments[2]) >= limits.STAGED_BYTES_MIN
    result = transaction.join([whole(value), whole(arguments[2])]) if is_large else value + arguments[2]
    return len(result), _changed(transaction, arguments[1], result)


def strlen(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(_string(transaction, arguments[1]) or b"")


def _increment(transaction: Transaction, key: bytes, by: int) -> Decision:
    value = _string(transaction, key)
    result = (integer(value) if value is not None else 0) + by
    if not I64_MIN <= result <= I64_MAX:
        raise CommandError("ERR increment or decrement would overflow")
    return result, _changed(transaction, key, b"%d" % result)


def incr(transaction: Transaction, arguments: Arguments) -> Decision:
    return _increment(transaction, arguments[1], 1)


def decr(transaction: Transaction, arguments: Arguments) -> Decision:
    return _increment(transaction, arguments[1], -1)


def incrby(transaction: Transaction, arguments: Arguments) -> Decision:
    return _increment(transaction, arguments[1], integer(arguments[2]))


def decrby(transaction: Transaction, arguments: Arguments) -> Decision:
    by = integer(arguments[2])
    if by == I64_MIN:
        raise CommandError("ERR decrement would overflow")
    return _increment(transaction, arguments[1], -by)


def incrbyfloat(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _string(transaction, arguments[1])
    result = add_floats(value if value is not None else b"0", arguments[2])
    return result, _changed(transaction, arguments[1], result)


def getrange(transaction: Transaction, arguments: Arguments) -> Reply:
    start, end = integer(arguments[2]), integer(arguments[3])
    value = _string(transaction, arguments[1]) or b""
    if start < 0 and end < 0 and start > end:
        return b""
    size = len(value)
    start = max(start + size, 0) if start < 0 else start
    end = max(end + size, 0) if end < 0 else min(end, size - 1)
    return value[start : end + 1] if size and start <= end else b""


def setrange(transaction: Transaction, arguments: Arguments) -> Decision:
    offset, patch = integer(arguments[2]), arguments[3]
    if offset < 0:
        raise CommandError("ERR offset is out of range")
    value = _string(transaction, arguments[1]) or b""
    if not patch:
        return len(value), []
    _check_size(offset + len(patch))
    if max(len(value), offset + len(patch)) >= limits.STAGED_BYTES_MIN:
        result = transaction.join(_overwritten(value, offset, patch))
    else:
        result = value[:offset].ljust(offset, b"\0") + patch + value[offset + len(patch) :]
    return len(result), _changed(transaction, arguments[1], result)


def _overwritten(value: bytes, offset: int, patch: bytes) -> list[Piece]:
    """What SETRANGE makes of a string, in pieces."""
    before = [Piece(value, 0, min(offset, len(value))), *zeros(offset - len(value)), whole(patch)]
    return [*before, Piece(value, min(offset + len(patch), len(value)), len(value))]


def _large_append(database: Database, arguments: Arguments) -> list[tuple[bytes, Pieces]]:
    value = database.find(arguments[1]) or b""
    if type(value) is not bytes:
        return []
    is_large = limits.STAGED_BYTES_MIN <= len(value) + len(arguments[2]) <= limits.BULK_BYTES_MAX
    return [(arguments[1], [whole(value), whole(arguments[2])])] if is_large else []


def _large_setrange(database: Database, arguments: Arguments) -> list[tuple[bytes, Pieces]]:
    value, patch = database.find(arguments[1]) or b"", arguments[3]
    if type(value) is not bytes or not patch or not arguments[2].isdigit() or len(arguments[2]) > _OFFSET_DIGITS_MAX:
        return []
    offset = int(arguments[2])
    if not limits.STAGED_BYTES_MIN <= max(len(value), offset + len(patch)) <= limits.BULK_BYTES_MAX:
        return []
    return [(arguments[1], _overwritten(value, offset, patch))]


COMMANDS: list[Command] = [
    read(STRING, "GET", 2, get, ONE_KEY, "fast", summary="return the value of a key"),
    write(STRING, "SET", -3, set_, ONE_KEY, "denyoom", summary="set a key, with conditions and an expiry"),
    write(STRING, "SETNX", 3, setnx, ONE_KEY, "denyoom fast", summary="set a key that does not exist"),
    write(STRING, "SETEX", 4, setex, ONE_KEY, "denyoom", summary="set a key that expires after some seconds"),
    write(STRING, "PSETEX", 4, psetex, ONE_KEY, "denyoom", summary="set a key that expires after some milliseconds"),
    write(STRING, "GETSET", 3, getset, ONE_KEY, "denyoom fast", summary="set a key and return its old value"),
    write(STRING, "GETDEL", 2, getdel, ONE_KEY, "fast", summary="return the value of a key and delete the key"),
    write(STRING, "GETEX", -2, getex, ONE_KEY, "fast", summary="return the value of a key and set its expiry"),
    read(STRING, "MGET", -2, mget, ALL_KEYS, "fast", summary="return the values of several keys"),
    write(STRING, "MSET", -3, mset, _PAIRS, "denyoom", summary="set several keys"),
    write(STRING, "MSETNX", -3, msetnx, _PAIRS, "denyoom", summary="set several keys if none of them exists"),
    write(STRING, "APPEND", 3, append, ONE_KEY, "denyoom fast", summary="append to a string", large=_large_append),
    read(STRING, "STRLEN", 2, strlen, ONE_KEY, "fast", summary="return the length of a string"),
    write(STRING, "INCR", 2, incr, ONE_KEY, "denyoom fast", summary="add 1 to an integer"),
    write(STRING, "DECR", 2, decr, ONE_KEY, "denyoom fast", summary="subtract 1 from an integer"),
    write(STRING, "INCRBY", 3, incrby, ONE_KEY, "denyoom fast", summary="add to an integer"),
    write(STRING, "DECRBY", 3, decrby, ONE_KEY, "denyoom fast", summary="subtract from an integer"),
    write(STRING, "INCRBYFLOAT", 3, incrbyfloat, ONE_KEY, "denyoom fast", summary="add to a number"),
    read(STRING, "GETRANGE", 4, getrange, ONE_KEY, summary="return a part of a string"),
    read(STRING, "SUBSTR", 4, getrange, ONE_KEY, summary="return a part of a string (old name of GETRANGE)"),
    write(
        STRING,
        "SETRANGE",
        4,
        setrange,
        ONE_KEY,
        "denyoom",
        summary="overwrite a part of a string",
        large=_large_setrange,
    ),
]
