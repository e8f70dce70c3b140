"""The commands that scripts run most, in their plain form, with as little Python as they can be run with.

    (transaction, words) -> reply, or `NOT_PLAIN`: nothing has happened, and the general path is to be taken

A plain form has no options, its key holds nothing or a value of its type, its words are short, and nothing about it is
an error. The general path makes an operation, a list of operations and a list of records for a command, and looks its
key up several times. Here the key is looked up once, the change is made, and its one record is gathered. Both paths do
the same to the key and to the journal; a test compares them.

Whoever calls these has checked the number of words against the command's row, and that a write is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.journal.operation import DEL, VAL, encode_items, encode_pair
from tidelog.resp.encoder import Reply
from tidelog.store.slots import slot_of
from tidelog.store.transaction import NOT_PLAIN, Transaction
from tidelog.types.hash import HSET, encode_field
from tidelog.types.hash_value import Hash
from tidelog.types.key import EXPIRE
from tidelog.types.list import LPUSH, RPUSH, encode_element
from tidelog.types.list_value import List
from tidelog.types.set import SADD
from tidelog.types.set_value import Set
from tidelog.types.string import integer_of

PlainCall = Callable[[Transaction, list[bytes]], Reply]

_WORDS_MAX: Final = 10
"""A command with more of them is not worth the haste."""
_NUMBER_MAX: Final = 2**62
"""Sums of two numbers below it fit."""
_SECONDS_MAX: Final = 2**40
"""An expiry that is farther away may be an error."""
_SHORT: Final = 128
"""A size below it is one byte in a record."""


# --- strings ----------------------------------------------------------------------------------------------------


def _get(transaction: Transaction, words: list[bytes]) -> Reply:
    key = words[1]
    found = transaction.find_plain(slot_of(key), key)
    return found if found is None or type(found) is bytes else NOT_PLAIN


def _set(transaction: Transaction, words: list[bytes]) -> Reply:
    return "OK" if len(words) == 3 and transaction.set_plain(words[1], words[2]) else NOT_PLAIN


def _incr(transaction: Transaction, words: list[bytes]) -> Reply:
    return _increment(transaction, words[1], 1)


def _decr(transaction: Transaction, words: list[bytes]) -> Reply:
    return _increment(transaction, words[1], -1)


def _incrby(transaction: Transaction, words: list[bytes]) -> Reply:
    by = integer_of(words[2])
    return NOT_PLAIN if by is None else _increment(transaction, words[1], by)


def _decrby(transaction: Transaction, words: list[bytes]) -> Reply:
    by = integer_of(words[2])
    return NOT_PLAIN if by is None else _increment(transaction, words[1], -by)


def _increment(transaction: Transaction, key: bytes, by: int) -> Reply:
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    result, database, expire_ms = by, transaction.database, None
    if found is not None:
        number = integer_of(found) if type(found) is bytes else None
        if number is None:
            return NOT_PLAIN
        result += number
        expire_ms = database.expiries.get(key)
        if not -_NUMBER_MAX < number < _NUMBER_MAX:
            return NOT_PLAIN
    if not -_NUMBER_MAX < by < _NUMBER_MAX or not transaction.takes_plain(len(key)):
        return NOT_PLAIN
    value = b"%d" % result
    database.put_at(slot, key, value, expire_ms)
    transaction.gather(slot, VAL, encode_pair(key, value), expire_ms)
    return result


# --- keys -------------------------------------------------------------------------------------------------------


def _expire(transaction: Transaction, words: list[bytes]) -> Reply:
    return _set_expiry(transaction, words, 1000)


def _pexpire(transaction: Transaction, words: list[bytes]) -> Reply:
    return _set_expiry(transaction, words, 1)


def _set_expiry(transaction: Transaction, words: list[bytes], unit_ms: int) -> Reply:
    key, number = words[1], integer_of(words[2])
    if number is None or not 0 < number < _SECONDS_MAX or len(words) > 3 or not transaction.takes_plain(len(key)):
        return NOT_PLAIN
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if found is None:
        return 0
    if found is NOT_PLAIN:
        return NOT_PLAIN
    when_ms = transaction.now_ms + number * unit_ms
    transaction.database.set_expiry(key, when_ms)
    transaction.gather(slot, EXPIRE, _encode_key(key), when_ms)
    return 1


def _del(transaction: Transaction, words: list[bytes]) -> Reply:
    key = words[1]
    if len(words) > 2 or not transaction.takes_plain(len(key)):
        return NOT_PLAIN
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if found is None:
        return 0
    if found is NOT_PLAIN:
        return NOT_PLAIN
    transaction.database.remove(key)
    transaction.gather(slot, DEL, _encode_key(key))
    return 1


def _encode_key(key: bytes) -> bytes:
    """What `encode_items` makes of one item."""
    size = len(key)
    return b"\3%c%b" % (size << 1 | 1, key) if size < _SHORT else encode_items([key])


# --- hashes -----------------------------------------------------------------------------------------------------


def _hget(transaction: Transaction, words: list[bytes]) -> Reply:
    key = words[1]
    found = transaction.find_plain(slot_of(key), key)
    if found is None:
        return None
    return found.get(words[2]) if isinstance(found, Hash) else NOT_PLAIN


def _hset(transaction: Transaction, words: list[bytes]) -> Reply:
    count, key = len(words), words[1]
    if count % 2 or count > _WORDS_MAX:
        return NOT_PLAIN
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if not (found is None or type(found) is Hash):
        return NOT_PLAIN
    if count == 4:
        return _set_field(transaction, slot, key, found, words[2], words[3])
    size = len(key)
    fields: set[bytes] = set()
    for at in range(2, count, 2):
        fields.add(words[at])
        size += len(words[at]) + len(words[at + 1])
    if 2 * len(fields) != count - 2 or not transaction.takes_plain(size):  # or a field comes twice
        return NOT_PLAIN
    database = transaction.database
    if found is None:
        value = Hash()
        database.put_at(slot, key, value)
    else:
        value = found
        database.touch(key)
    before = len(value)
    value.update(words[2:], database.bounds)
    transaction.gather(slot, HSET, encode_items(words[1:]))
    return len(value) - before


def _hincrby(transaction: Transaction, words: list[bytes]) -> Reply:
    key, field, by = words[1], words[2], integer_of(words[3])
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if by is None or not (found is None or type(found) is Hash):
        return NOT_PLAIN
    old: bytes | None = None if found is None else found.get(field)
    number = 0 if old is None else integer_of(old)
    if number is None or not -_NUMBER_MAX < number < _NUMBER_MAX or not -_NUMBER_MAX < by < _NUMBER_MAX:
        return NOT_PLAIN
    result = number + by
    added = _set_field(transaction, slot, key, found, field, b"%d" % result)
    return NOT_PLAIN if added is NOT_PLAIN else result


def _set_field(
    transaction: Transaction, slot: int, key: bytes, found: Hash | None, field: bytes, value: bytes
) -> Reply:
    """Set one field of the hash that was found; how many are new."""
    if not transaction.takes_plain(len(key) + len(field) + len(value)):
        return NOT_PLAIN
    database = transaction.database
    if found is None:
        found = Hash()
        database.put_at(slot, key, found)
    else:
        database.touch(key)
    is_new = found.set_field(field, value, database.bounds)
    transaction.gather(slot, HSET, encode_field(key, field, value))
    return 1 if is_new else 0


# --- sets and lists ---------------------------------------------------------------------------------------------


def _sadd(transaction: Transaction, words: list[bytes]) -> Reply:
    if len(words) > 3:
        return NOT_PLAIN
    key, member = words[1], words[2]
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if not (found is None or type(found) is Set) or not transaction.takes_plain(len(key) + len(member)):
        return NOT_PLAIN
    database = transaction.database
    value: Set
    if found is None:
        value = Set()
        database.put_at(slot, key, value)
    else:
        value = found
        if member in value:
            return 0
        database.touch(key)
    value.add(member, database.bounds)
    transaction.gather(slot, SADD, encode_element(key, member))
    return 1


def _lpush(transaction: Transaction, words: list[bytes]) -> Reply:
    return _push(transaction, words, True)


def _rpush(transaction: Transaction, words: list[bytes]) -> Reply:
    return _push(transaction, words, False)


def _push(transaction: Transaction, words: list[bytes], is_left: bool) -> Reply:
    """One element."""
    if len(words) > 3:
        return NOT_PLAIN
    key, element = words[1], words[2]
    slot = slot_of(key)
    found = transaction.find_plain(slot, key)
    if not (found is None or type(found) is List) or not transaction.takes_plain(len(key) + len(element)):
        return NOT_PLAIN
    if found is None:
        found = List()
        transaction.database.put_at(slot, key, found)
    else:
        transaction.database.touch(key)
    value: List = found
    value.push([element], is_left)
    transaction.gather(slot, LPUSH if is_left else RPUSH, encode_element(key, element))
    return len(value)


PLAIN_CALLS: Final[dict[str, PlainCall]] = {
    "GET": _get,
    "SET": _set,
    "INCR": _incr,
    "DECR": _decr,
    "INCRBY": _incrby,
    "DECRBY": _decrby,
    "EXPIRE": _expire,
    "PEXPIRE": _pexpire,
    "DEL": _del,
    "HGET": _hget,
    "HSET": _hset,
    "HINCRBY": _hincrby,
    "SADD": _sadd,
    "LPUSH": _lpush,
    "RPUSH": _rpush,
}
"""By the name of the row."""
