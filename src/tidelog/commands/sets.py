"""Sets. Whatever is computed or drawn is journaled as its result: members that come (`SAdd`) and go (`SRem`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

from tidelog.commands.arguments import integer, syntax_error
from tidelog.commands.drawing import draw, draw_one, drawn_count
from tidelog.commands.scanning import scan_cursor, scan_members, scan_options
from tidelog.engine.table import ALL_KEYS, ONE_KEY, SET, Arguments, Command, Decision, Keys, read, write
from tidelog.errors import CommandError
from tidelog.journal.operation import Del
from tidelog.resp.encoder import Reply, SetReply
from tidelog.store.transaction import Transaction
from tidelog.types.set import sadd, srem
from tidelog.types.set_value import Set

_TWO_KEYS = Keys(1, 2, 1)
_COUNTED_KEYS = Keys(count_at=1)
_NOTHING = Set()


def _set(transaction: Transaction, key: bytes) -> Set:
    """The set at a key; an empty one if there is none. Not to be changed."""
    value: Set | None = transaction.find_typed(key, Set)
    return value if value is not None else _NOTHING


# --- members ----------------------------------------------------------------------------------------------------


def sadd_(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _set(transaction, arguments[1])
    new = [member for member in dict.fromkeys(arguments[2:]) if member not in value]
    return len(new), sadd(arguments[1], new) if new else []


def srem_(transaction: Transaction, arguments: Arguments) -> Decision:
    value = _set(transaction, arguments[1])
    gone = [member for member in dict.fromkeys(arguments[2:]) if member in value]
    return len(gone), srem(arguments[1], gone) if gone else []


def smove(transaction: Transaction, arguments: Arguments) -> Decision:
    source, target, member = arguments[1], arguments[2], arguments[3]
    if transaction.find(source) is None:
        return 0, []  # whatever is at the target
    value, there = _set(transaction, source), _set(transaction, target)
    if member not in value:
        return 0, []
    if source == target:
        return 1, []
    return 1, [*srem(source, [member]), *(sadd(target, [member]) if member not in there else [])]


def smembers(transaction: Transaction, arguments: Arguments) -> Reply:
    return SetReply(_set(transaction, arguments[1]).members())


def sismember(transaction: Transaction, arguments: Arguments) -> Reply:
    return int(arguments[2] in _set(transaction, arguments[1]))


def smismember(transaction: Transaction, arguments: Arguments) -> Reply:
    value = _set(transaction, arguments[1])
    return [int(member in value) for member in arguments[2:]]


def scard(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(_set(transaction, arguments[1]))


# --- some of the members ----------------------------------------------------------------------------------------


def spop(transaction: Transaction, arguments: Arguments) -> Decision:
    key, random = arguments[1], transaction.store.random
    if len(arguments) > 3:
        raise syntax_error()
    count = None
    if len(arguments) == 3:
        problem = "ERR value is out of range, must be positive"
        count = integer(arguments[2], problem)
        if count < 0:
            raise CommandError(problem)
    value = _set(transaction, key)
    if not len(value) or count == 0:
        return (None if count is None else SetReply()), []
    if count is None:
        member = draw_one(random, value.members())
        return member, srem(key, [member])
    members = draw(random, value.members(), count)
    return SetReply(members), srem(key, members)


def srandmember(transaction: Transaction, arguments: Arguments) -> Reply:
    random = transaction.store.random
    if len(arguments) > 3:
        raise syntax_error()
    count = drawn_count(arguments[2]) if len(arguments) == 3 else None
    members = _set(transaction, arguments[1]).members()
    if count is None:
        return draw_one(random, members) if members else None
    return draw(random, members, count) if members else []


def sscan(transaction: Transaction, arguments: Arguments) -> Reply:
    scan_cursor(arguments[2])
    value = _set(transaction, arguments[1]).members()
    if not value:
        return [b"0", []]
    cursor, members = scan_members(transaction, arguments[1], value, scan_options(arguments, 2))
    return [b"%d" % cursor, members]


# --- several sets -----------------------------------------------------------------------------------------------


def _sets(transaction: Transaction, keys: Sequence[bytes]) -> list[Set]:
    return [_set(transaction, key) for key in keys]


def intersect(sets: Sequence[Set]) -> Collection[bytes]:
    """The smallest first: no intermediate result is larger."""
    smallest, *others = sorted(sets, key=len)
    common = list(smallest.members())
    for other in others:
        common = [member for member in common if member in other]
    return common


def unite(sets: Sequence[Set]) -> Collection[bytes]:
    united: dict[bytes, None] = {}
    for each in sets:
        for member in each.members():
            united[member] = None
    return united.keys()


def subtract(sets: Sequence[Set]) -> Collection[bytes]:
    """The members of the first set that no other set has."""
    first, *others = sets
    left: dict[bytes, None] = dict.fromkeys(first.members())
    for other in others:
        if len(other) < len(left):
            for member in other.members():
                left.pop(member, None)
        else:
            left = {member: None for member in left if member not in other}
    return left.keys()


Combine = Callable[[Sequence[Set]], Collection[bytes]]


def _store(transaction: Transaction, arguments: Arguments, combine: Combine) -> Decision:
    """Put the result in the place of whatever the first key holds."""
    target = arguments[1]
    result = list(combine(_sets(transaction, arguments[2:])))
    operations: list[Any] = [Del([target])] if transaction.find(target) is not None else []
    if result:
        operations += sadd(target, result)
    return len(result), operations


def sinter(transaction: Transaction, arguments: Arguments) -> Reply:
    return SetReply(intersect(_sets(transaction, arguments[1:])))


def sunion(transaction: Transaction, arguments: Arguments) -> Reply:
    return SetReply(unite(_sets(transaction, arguments[1:])))


def sdiff(transaction: Transaction, arguments: Arguments) -> Reply:
    return SetReply(subtract(_sets(transaction, arguments[1:])))


def sinterstore(transaction: Transaction, arguments: Arguments) -> Decision:
    return _store(transaction, arguments, intersect)


def sunionstore(transaction: Transaction, arguments: Arguments) -> Decision:
    return _store(transaction, arguments, unite)


def sdiffstore(transaction: Transaction, arguments: Arguments) -> Decision:
    return _store(transaction, arguments, subtract)


def sintercard(transaction: Transaction, arguments: Arguments) -> Reply:
    count = integer(arguments[1], "ERR numkeys should be greater than 0")
    if count < 1:
        raise CommandError("ERR numkeys should be greater than 0")
    if count > len(arguments) - 2:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    limit = 0
    for at in range(2 + count, len(arguments), 2):
        if arguments[at].upper() != b"LIMIT" or at + 1 == len(arguments):
            raise syntax_error()
        limit = integer(arguments[at + 1], "ERR LIMIT can't be negative")
        if limit < 0:
            raise CommandError("ERR LIMIT can't be negative")
    smallest, *others = sorted(_sets(transaction, arguments[2 : 2 + count]), key=len)
    if not limit:
        return len(intersect([smallest, *others]))
    common = (member for member in smallest.members() if all(member in other for other in others))
    return sum(1 for _ in islice(common, limit))


COMMANDS: list[Command] = [
    write(SET, "SADD", -3, sadd_, ONE_KEY, "denyoom fast", summary="add members"),
    write(SET, "SREM", -3, srem_, ONE_KEY, "fast", summary="remove members"),
    write(SET, "SMOVE", 4, smove, _TWO_KEYS, "fast", summary="move a member to another set"),
    read(SET, "SMEMBERS", 2, smembers, ONE_KEY, summary="return all members"),
    read(SET, "SISMEMBER", 3, sismember, ONE_KEY, "fast", summary="tell whether a member is in the set"),
    read(SET, "SMISMEMBER", -3, smismember, ONE_KEY, "fast", summary="tell for each member whether it is in the set"),
    read(SET, "SCARD", 2, scard, ONE_KEY, "fast", summary="return the number of members"),
    write(SET, "SPOP", -2, spop, ONE_KEY, "fast", summary="remove and return random members"),
    read(SET, "SRANDMEMBER", -2, srandmember, ONE_KEY, summary="return random members"),
    read(SET, "SSCAN", -3, sscan, ONE_KEY, summary="return members, some at a time"),
    read(SET, "SINTER", -2, sinter, ALL_KEYS, summary="return the members that all sets have"),
    read(
        SET, "SINTERCARD", -3, sintercard, _COUNTED_KEYS, "movablekeys", summary="count the members that all sets have"
    ),
    read(SET, "SUNION", -2, sunion, ALL_KEYS, summary="return the members of all sets together"),
    read(SET, "SDIFF", -2, sdiff, ALL_KEYS, summary="return the members of the first set that no other set has"),
    write(SET, "SINTERSTORE", -3, sinterstore, ALL_KEYS, "denyoom", summary="store the members that all sets have"),
    write(SET, "SUNIONSTORE", -3, sunionstore, ALL_KEYS, "denyoom", summary="store the members of all sets together"),
    write(
        SET,
        "SDIFFSTORE",
        -3,
        sdiffstore,
        ALL_KEYS,
        "denyoom",
        summary="store the members of the first set that no other set has",
    ),
]
