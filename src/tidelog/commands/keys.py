"""Keys of any type: whether they are there, when they go, what they are called."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from tidelog import limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.commands.expiry_options import add_time
from tidelog.commands.scanning import scan_options
from tidelog.engine.session import Session
from tidelog.engine.table import (
    ALL_KEYS,
    GENERIC,
    NO_KEYS,
    ONE_KEY,
    Arguments,
    Command,
    Decision,
    Keys,
    connection,
    read,
    write,
)
from tidelog.errors import CommandError
from tidelog.journal.operation import Del
from tidelog.resp.encoder import Reply
from tidelog.store.glob import matcher
from tidelog.store.keyspace import Database
from tidelog.store.slots import slot_of
from tidelog.store.transaction import InDatabase, Transaction
from tidelog.types.effect import StoredValue
from tidelog.types.key import Expire
from tidelog.types.string import integer_of

_TWO_KEYS = Keys(1, 2, 1)
_NO_SUCH_KEY = "ERR no such key"
_SHARED_REFCOUNT = 2**31 - 1
"""What OBJECT REFCOUNT says of a small integer: Redis has one object for all uses of it."""
_SAME_OBJECTS = "ERR source and destination objects are the same"


def del_(transaction: Transaction, arguments: Arguments) -> Decision:
    there = [key for key in dict.fromkeys(arguments[1:]) if transaction.find(key) is not None]
    runs = range(0, len(there), limits.RECORD_MEMBERS_MAX)
    return len(there), [Del(there[start : start + limits.RECORD_MEMBERS_MAX]) for start in runs]


def exists(transaction: Transaction, arguments: Arguments) -> Reply:
    return sum(transaction.peek(key) is not None for key in arguments[1:])


def type_(transaction: Transaction, arguments: Arguments) -> Reply:
    value = transaction.peek(arguments[1])
    return "none" if value is None else transaction.store.types.of(value).name.decode()


def keys(transaction: Transaction, arguments: Arguments) -> Reply:
    found: Iterable[bytes] = transaction.database.all_keys()
    if arguments[1] != b"*":  # which matches all, also the empty key
        found = filter(matcher(arguments[1]), found)
    return [key for key in found if transaction.peek(key) is not None]


def randomkey(transaction: Transaction, _arguments: Arguments) -> Reply:
    """A key from the first bucket after a place that is drawn at random: as even as they are."""
    database, random = transaction.database, transaction.store.random
    while database.size:
        start = random.randrange(len(database.slots))
        slot = next(slot for slot in chain(range(start, len(database.slots)), range(start)) if database.slots[slot])
        buckets = [bucket for bucket in database.buckets(slot) if bucket]
        alive = [key for key in buckets[random.randrange(len(buckets))] if transaction.peek(key) is not None]
        if alive:
            return alive[random.randrange(len(alive))]
        size_before = database.size
        transaction.remove_expired()
        if database.size == size_before:  # no writes are taken: what has expired stays
            return next((key for key in database.all_keys() if transaction.peek(key) is not None), None)
    return None


def scan(transaction: Transaction, arguments: Arguments) -> Reply:
    options = scan_options(arguments, 1, takes_type=True)
    cursor, found = scan_keys(transaction.database, options.cursor, options.count)
    if options.pattern is not None:
        is_match = matcher(options.pattern)
        found = [key for key in found if is_match(key)]
    types = transaction.store.types
    values = [(key, transaction.peek(key)) for key in found]
    kept = [key for key, value in values if value is not None and options.type in (None, types.of(value).name)]
    return [b"%d" % cursor, kept]


def scan_keys(database: Database, cursor: int, count: int) -> tuple[int, list[bytes]]:
    """Keys from a cursor on, whole buckets at a time; the cursor that follows, 0 at the end.

    A cursor is a slot and, above its 14 bits, a bucket of it. A key never leaves its slot, and a slot that grows
    splits a bucket into itself and one further on, so a key that is there all the time is never missed.
    """
    found: list[bytes] = []
    slots = database.slots
    start, bucket = cursor % len(slots), cursor // len(slots)
    for slot in range(start, len(slots)):
        if slots[slot] is not None:
            for part in database.buckets(slot)[bucket:]:
                if len(found) >= count:
                    return bucket * len(slots) + slot, found
                found.extend(part)
                bucket += 1
        bucket = 0
    return 0, found


def touch(transaction: Transaction, arguments: Arguments) -> Reply:
    return sum(transaction.find(key) is not None for key in arguments[1:])


# --- expiry -----------------------------------------------------------------------------------------------------------


def _expire(transaction: Transaction, arguments: Arguments, unit_ms: int, is_absolute: bool, command: str) -> Decision:
    key = arguments[1]
    options = _expire_options(arguments)
    when = add_time(integer(arguments[2]), unit_ms, is_absolute, transaction.now_ms, command)
    if transaction.find(key) is None or not _may_expire(options, transaction.expiry(key), when):
        return 0, []
    return 1, [Expire(key, when) if when > transaction.now_ms else Del([key])]


def _expire_options(arguments: Arguments) -> set[bytes]:
    options = set()
    for argument in arguments[3:]:
        option = argument.upper()
        if option not in (b"NX", b"XX", b"GT", b"LT"):
            raise CommandError(f"ERR Unsupported option {argument.decode('utf-8', 'surrogateescape')}")
        options.add(option)
    if b"NX" in options and len(options) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"GT", b"LT"} <= options:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return options


def _may_expire(options: set[bytes], current: int | None, when: int) -> bool:
    """Whether the options allow a new expiry; a key that never expires counts as infinitely far away."""
    if b"NX" in options and current is not None:
        return False
    if b"XX" in options and current is None:
        return False
    if b"GT" in options and (current is None or when <= current):
        return False
    return not (b"LT" in options and current is not None and when >= current)


def expire(transaction: Transaction, arguments: Arguments) -> Decision:
    return _expire(transaction, arguments, 1000, False, "expire")


def pexpire(transaction: Transaction, arguments: Arguments) -> Decision:
    return _expire(transaction, arguments, 1, False, "pexpire")


def expireat(transaction: Transaction, arguments: Arguments) -> Decision:
    return _expire(transaction, arguments, 1000, True, "expireat")


def pexpireat(transaction: Transaction, arguments: Arguments) -> Decision:
    return _expire(transaction, arguments, 1, True, "pexpireat")


def _expiry(transaction: Transaction, key: bytes) -> int:
    """Absolute ms; -1: never, -2: there is no such key."""
    if transaction.peek(key) is None:
        return -2
    when = transaction.expiry(key)
    return when if when is not None else -1


def ttl(transaction: Transaction, arguments: Arguments) -> Reply:
    when = _expiry(transaction, arguments[1])
    return when if when < 0 else (max(when - transaction.now_ms, 0) + 500) // 1000


def pttl(transaction: Transaction, arguments: Arguments) -> Reply:
    when = _expiry(transaction, arguments[1])
    return when if when < 0 else max(when - transaction.now_ms, 0)


def expiretime(transaction: Transaction, arguments: Arguments) -> Reply:
    when = _expiry(transaction, arguments[1])
    return when if when < 0 else (when + 500) // 1000


def pexpiretime(transaction: Transaction, arguments: Arguments) -> Reply:
    return _expiry(transaction, arguments[1])


def persist(transaction: Transaction, arguments: Arguments) -> Decision:
    key = arguments[1]
    if transaction.find(key) is None or transaction.expiry(key) is None:
        return 0, []
    return 1, [Expire(key, None)]


# --- names ------------------------------------------------------------------------------------------------------------


def _rename(transaction: Transaction, arguments: Arguments, replaces: bool) -> tuple[int, list[Any]]:
    old, new = arguments[1], arguments[2]
    value = transaction.find(old)
    if value is None:
        raise CommandError(_NO_SUCH_KEY)
    target = transaction.find(new)
    if old == new:
        return (1 if replaces else 0), []
    if target is not None and not replaces:
        return 0, []
    before = [] if target is None else [Del([new])]
    return 1, [*before, *_copies(transaction, old, value, new), Del([old])]


def _copies(transaction: Transaction, source: bytes, value: StoredValue, target: bytes) -> list[Any]:
    """Operations that make the value of a key, with its expiry, under another key, which is not there. The source goes
    after them, if it does: within a shard they may refer to it."""
    store, expire_ms = transaction.store, transaction.expiry(source)
    if store.owners[slot_of(source)] != store.owners[slot_of(target)]:
        return store.types.operations_of(target, value, expire_ms)
    return store.types.copies_of(target, value, expire_ms, source, transaction.database.number)


def rename(transaction: Transaction, arguments: Arguments) -> Decision:
    return "OK", _rename(transaction, arguments, True)[1]


def renamenx(transaction: Transaction, arguments: Arguments) -> Decision:
    return _rename(transaction, arguments, False)


def copy(transaction: Transaction, arguments: Arguments) -> Decision:
    source, target = arguments[1], arguments[2]
    replaces, number = False, transaction.database.number
    at = 3
    while at < len(arguments):
        option = arguments[at].upper()
        if option == b"REPLACE":
            replaces = True
        elif option == b"DB" and at + 1 < len(arguments):
            at += 1
            number = _database_number(arguments[at])
        else:
            raise syntax_error()
        at += 1
    if number == transaction.database.number and source == target:
        raise CommandError(_SAME_OBJECTS)
    value = transaction.find(source)
    if value is None:
        return 0, []
    is_there = transaction.find_in(transaction.store.database(number), target) is not None
    if is_there and not replaces:
        return 0, []
    operations = [*([Del([target])] if is_there else []), *_copies(transaction, source, value, target)]
    return 1, [InDatabase(number, operation) for operation in operations]


def move(transaction: Transaction, arguments: Arguments) -> Decision:
    key, number = arguments[1], _database_number(arguments[2])
    if number == transaction.database.number:
        raise CommandError(_SAME_OBJECTS)
    value = transaction.find(key)
    if value is None or transaction.find_in(transaction.store.database(number), key) is not None:
        return 0, []
    made = _copies(transaction, key, value, key)
    return 1, [*(InDatabase(number, operation) for operation in made), Del([key])]


def _database_number(argument: bytes) -> int:
    number = integer(argument)
    if not -(2**31) <= number < 2**31:
        raise CommandError("ERR value is out of range, value must between -2147483648 and 2147483647")
    if not 0 <= number < limits.DATABASES:
        raise CommandError("ERR DB index is out of range")
    return number


def object_encoding(transaction: Transaction, arguments: Arguments) -> Reply:
    value = transaction.peek(arguments[2])
    return transaction.store.types.of(value).encoding(value, transaction.database.bounds) if value is not None else None


def object_refcount(transaction: Transaction, arguments: Arguments) -> Reply:
    value = transaction.peek(arguments[2])
    if value is None:
        return None
    is_shared = type(value) is bytes and value.isdigit() and len(value) <= 4 and integer_of(value) is not None
    return _SHARED_REFCOUNT if is_shared else 1


def object_idletime(transaction: Transaction, arguments: Arguments) -> Reply:
    key = arguments[2]
    return transaction.store.idle_s(key) if transaction.peek(key) is not None else None


def object_freq(transaction: Transaction, arguments: Arguments) -> Reply:
    if transaction.peek(arguments[2]) is None:
        return None
    raise CommandError(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching "
        "between policies at runtime LRU and LFU data will take some time to adjust."
    )


_OBJECT_HELP = """\
OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.
HELP
    Prints this help."""


def object_help(_session: Session, _arguments: Arguments) -> Reply:
    return _OBJECT_HELP.split("\n")


_AFTER_SUBCOMMAND = Keys(2, 2, 1)

COMMANDS: list[Command] = [
    write(GENERIC, "DEL", -2, del_, ALL_KEYS, summary="delete keys"),
    write(GENERIC, "UNLINK", -2, del_, ALL_KEYS, "fast", summary="delete keys"),
    read(GENERIC, "EXISTS", -2, exists, ALL_KEYS, "fast", summary="count how many of the keys exist"),
    read(GENERIC, "TYPE", 2, type_, ONE_KEY, "fast", summary="return the type of a key"),
    read(GENERIC, "KEYS", 2, keys, NO_KEYS, "@dangerous", summary="return all keys that match a pattern"),
    read(GENERIC, "SCAN", -2, scan, NO_KEYS, summary="return the keys, some at a time"),
    read(GENERIC, "RANDOMKEY", 1, randomkey, NO_KEYS, summary="return a random key"),
    read(GENERIC, "TOUCH", -2, touch, ALL_KEYS, "fast", summary="count how many of the keys exist"),
    write(GENERIC, "EXPIRE", -3, expire, ONE_KEY, "fast", summary="let a key expire after some seconds"),
    write(GENERIC, "PEXPIRE", -3, pexpire, ONE_KEY, "fast", summary="let a key expire after some milliseconds"),
    write(GENERIC, "EXPIREAT", -3, expireat, ONE_KEY, "fast", summary="let a key expire at a time in seconds"),
    write(GENERIC, "PEXPIREAT", -3, pexpireat, ONE_KEY, "fast", summary="let a key expire at a time in milliseconds"),
    read(GENERIC, "TTL", 2, ttl, ONE_KEY, "fast", summary="return the seconds until a key expires"),
    read(GENERIC, "PTTL", 2, pttl, ONE_KEY, "fast", summary="return the milliseconds until a key expires"),
    read(
        GENERIC,
        "EXPIRETIME",
        2,
        expiretime,
        ONE_KEY,
        "fast",
        summary="return the time in seconds at which a key expires",
    ),
    read(
        GENERIC,
        "PEXPIRETIME",
        2,
        pexpiretime,
        ONE_KEY,
        "fast",
        summary="return the time in milliseconds at which a key expires",
    ),
    write(GENERIC, "PERSIST", 2, persist, ONE_KEY, "fast", summary="remove the expiry of a key"),
    write(GENERIC, "RENAME", 3, rename, _TWO_KEYS, summary="rename a key"),
    write(GENERIC, "RENAMENX", 3, renamenx, _TWO_KEYS, "fast", summary="rename a key if the new name is free"),
    write(GENERIC, "COPY", -3, copy, _TWO_KEYS, "denyoom", summary="copy a key"),
    write(GENERIC, "MOVE", 3, move, ONE_KEY, "fast", summary="move a key to another database"),
    read(
        GENERIC,
        "OBJECT|ENCODING",
        3,
        object_encoding,
        _AFTER_SUBCOMMAND,
        summary="return how Redis would store a value",
    ),
    read(
        GENERIC,
        "OBJECT|REFCOUNT",
        3,
        object_refcount,
        _AFTER_SUBCOMMAND,
        summary="return 1, or a large number for a small integer",
    ),
    read(
        GENERIC,
        "OBJECT|IDLETIME",
        3,
        object_idletime,
        _AFTER_SUBCOMMAND,
        summary="return the seconds since a key was last used, at least",
    ),
    read(GENERIC, "OBJECT|FREQ", 3, object_freq, _AFTER_SUBCOMMAND, summary="return an error: access is not counted"),
    connection(GENERIC, "OBJECT|HELP", 2, object_help, "loading stale", summary="list the subcommands of OBJECT"),
]
