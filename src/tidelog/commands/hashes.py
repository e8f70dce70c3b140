"""Hashes. Whatever computes a new value of a field journals the value (`HSet`), never the computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.commands.arguments import I64_MAX, I64_MIN, NOT_A_FLOAT, add_floats, integer, syntax_error
from tidelog.commands.drawing import check_pairs_count, draw, drawn_count
from tidelog.commands.long_double import parse_long_double
from tidelog.commands.scanning import scan_cursor, scan_members, scan_options
from tidelog.engine.table import HASH, ONE_KEY, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Pairs, Reply
from tidelog.store.transaction import Transaction
from tidelog.types.hash import hdel, hset
from tidelog.types.hash_value import Hash

_NOTHING: Final = Hash()


def _hash(transaction: Transaction, key: bytes) -> Hash:
    """The hash at a key; an empty one if there is none. Not to be changed."""
    value: Hash | None = transaction.find_typed(key, Hash)
    return value if value is not None else _NOTHING


# --- fields -----------------------------------------------------------------------------------------------------


def _set_fields(transaction: Transaction, arguments: Arguments, command: str) -> tuple[int, Sequence[Any]]:
    """How many fields are new, and what sets them all; of a field that comes twice, the last value counts."""
    if len(arguments) % 2:
        raise CommandError(f"ERR wrong number of arguments for '{command}' command")
    value = _hash(transaction, arguments[1])
    fields = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    is_new = [field not in value for field in fields]
    return sum(is_new), hset(arguments[1], [item for pair in fields.items() for item in pair])


def hset_(transaction: Transaction, arguments: Arguments) -> Decision:
    return _set_fields(transaction, arguments, "hset")


def hmset(transaction: Transaction, arguments: Arguments) -> Decision:
    return "OK", _set_fields(transaction, arguments, "hmset")[1]


def hsetnx(transaction: Transaction, arguments: Arguments) -> Decision:
    if arguments[2] in _hash(transaction, arguments[1]):
        return 0, []
    return 1, hset(arguments[1], arguments[2:4])


def hget(transaction: Transaction, arguments: Arguments) -> Reply:
    return _hash(transaction, arguments[1]).get(arguments[2])


def hmget(transaction: Transaction, arguments: Arguments) -> Reply:
    value = _hash(transaction, arguments[1])
    return [value.get(field) for field in arguments[2:]]


def hgetall(transaction: Transaction, arguments: Arguments) -> Reply:
    value = _hash(transaction, arguments[1])
    return value.fields() if value.packed is not None else dict(value.fields())


def hkeys(transaction: Transaction, arguments: Arguments) -> Reply:
    return list[Reply](_hash(transaction, arguments[1]).names())


def hvals(transaction: Transaction, arguments: Arguments) -> Reply:
    return list[Reply](_hash(transaction, arguments[1]).values())


def hdel_(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _hash(transaction, arguments[1])
    gone = [field for field in dict.fromkeys(arguments[2:]) if field in value]
    return len(gone), hdel(arguments[1], gone) if gone else []


def hexists(transaction: Transaction, arguments: Arguments) -> Reply:
    return int(arguments[2] in _hash(transaction, arguments[1]))


def hlen(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(_hash(transaction, arguments[1]))


def hstrlen(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(_hash(transaction, arguments[1]).get(arguments[2]) or b"")


# --- numbers ----------------------------------------------------------------------------------------------------


def hincrby(transaction: Transaction, arguments: Arguments) -> Decision:
    key, field = arguments[1], arguments[2]
    by = integer(arguments[3])
    value = _hash(transaction, key).get(field)
    if value is None:
        value = b"0"
    result = integer(value, "ERR hash value is not an integer") + by
    if not I64_MIN <= result <= I64_MAX:
        raise CommandError("ERR increment or decrement would overflow")
    return result, hset(key, [field, b"%d" % result])


def hincrbyfloat(transaction: Transaction, arguments: Arguments) -> Decision:
    key, field = arguments[1], arguments[2]
    by = parse_long_double(arguments[3])
    if by is None:
        raise CommandError(NOT_A_FLOAT)
    if isinstance(by, float):
        raise CommandError("ERR value is NaN or Infinity")
    value = _hash(transaction, key).get(field)
    if value is None:
        value = b"0"
    result = add_floats(value, arguments[3], value_error="ERR hash value is not a float")
    return result, hset(key, [field, result])


# --- some of the fields -----------------------------------------------------------------------------------------


def hscan(transaction: Transaction, arguments: Arguments) -> Reply:
    scan_cursor(arguments[2])
    value = _hash(transaction, arguments[1]).fields()
    if not value:
        return [b"0", []]
    cursor, fields = scan_members(transaction, arguments[1], value.keys(), scan_options(arguments, 2))
    return [b"%d" % cursor, [item for field in fields for item in (field, value[field])]]


def hrandfield(transaction: Transaction, arguments: Arguments) -> Reply:
    random = transaction.store.random
    if len(arguments) == 2:
        names = _hash(transaction, arguments[1]).names()
        return names[random.randrange(len(names))] if names else None
    count = drawn_count(arguments[2])
    wants_values = len(arguments) > 3
    if len(arguments) > 4 or (wants_values and arguments[3].upper() != b"WITHVALUES"):
        raise syntax_error()
    if wants_values:
        check_pairs_count(count)
    value = _hash(transaction, arguments[1]).fields()
    fields = draw(random, value, count) if value else []
    return Pairs((field, value[field]) for field in fields) if wants_values else fields


COMMANDS: list[Command] = [
    write(HASH, "HSET", -4, hset_, ONE_KEY, "denyoom fast", summary="set fields and return how many are new"),
    write(HASH, "HMSET", -4, hmset, ONE_KEY, "denyoom fast", summary="set fields (old form of HSET)"),
    write(HASH, "HSETNX", 4, hsetnx, ONE_KEY, "denyoom fast", summary="set a field that does not exist"),
    read(HASH, "HGET", 3, hget, ONE_KEY, "fast", summary="return the value of a field"),
    read(HASH, "HMGET", -3, hmget, ONE_KEY, "fast", summary="return the values of several fields"),
    read(HASH, "HGETALL", 2, hgetall, ONE_KEY, summary="return all fields and values"),
    read(HASH, "HKEYS", 2, hkeys, ONE_KEY, summary="return all fields"),
    read(HASH, "HVALS", 2, hvals, ONE_KEY, summary="return all values"),
    write(HASH, "HDEL", -3, hdel_, ONE_KEY, "fast", summary="delete fields"),
    read(HASH, "HEXISTS", 3, hexists, ONE_KEY, "fast", summary="tell whether a field exists"),
    read(HASH, "HLEN", 2, hlen, ONE_KEY, "fast", summary="return the number of fields"),
    read(HASH, "HSTRLEN", 3, hstrlen, ONE_KEY, "fast", summary="return the length of a field's value"),
    write(HASH, "HINCRBY", 4, hincrby, ONE_KEY, "denyoom fast", summary="add to the integer in a field"),
    write(HASH, "HINCRBYFLOAT", 4, hincrbyfloat, ONE_KEY, "denyoom fast", summary="add to the number in a field"),
    read(HASH, "HSCAN", -3, hscan, ONE_KEY, summary="return fields and values, some at a time"),
    read(HASH, "HRANDFIELD", -2, hrandfield, ONE_KEY, summary="return random fields"),
]
