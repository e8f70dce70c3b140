"""What a server that is killed again and again was asked to do, and what it said that it did.

Each writer has keys of its own and one connection, so what it sent is one line of *units*: single commands and whole
transactions. The server runs them in that order, and each is there or not, so after a kill the writer's keys must be
as they were after some unit between the last that was answered and the last that was sent. `Ledger` keeps the state
after the answered ones as plain Python values, and the units that wait for an answer; `settle` finds the one that
matches what the server has now, and goes on from there. A library of functions is one more key of its writer
(`library_ledger`).

Keys that all writers share are checked by what must hold between them:

    account:*    transfers move amounts around: the sum is 0
    whole:*      one transaction gives them all the same value
    hits         is between the increments that were answered and those that were sent
    gone:*       expired before the next start
    jobs*        a queue of which no job is lost or done twice: see `queue_ledger`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from tests.integration.library_ledger import ServerError, change, key_of, number_of, read_libraries
from tests.integration.queue_ledger import FINISH, JOBS, PREFIX, TAKE, QueueLedger, check_queue, settle_queue

Command = tuple[bytes, ...]
Unit = tuple[Command, ...]
"""One command, or all of a MULTI."""
State = dict[bytes, tuple[Any, bool]]
"""Key -> its value as Python has it, and whether it expires (in some hours)."""

ACCOUNTS: Final = [b"account:%d" % number for number in range(8)]
WHOLE: Final = [b"whole:%d" % number for number in range(6)]
GONE: Final = [b"gone:%d" % number for number in range(4)]
HITS: Final = b"hits"
UNKNOWN: Final = object()
"""A reply that depends on other writers, or on time."""
LATER_MS: Final = b"7200000"

SET_WHOLE: Final = b"for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end"
"""A script that does what the transaction over `WHOLE` does."""
MIXED: Final = b"""
local count = redis.call('INCR', KEYS[1])
redis.call('RPUSH', KEYS[2], ARGV[1], count)
redis.call('HSET', KEYS[3], ARGV[1], count)
redis.call('SADD', KEYS[4], count)
local first = nil
if redis.call('LLEN', KEYS[2]) > 8 then first = redis.call('LPOP', KEYS[2], 2) end
return {count, first}
"""
"""A script over several types, and as a rule over several shards."""
_SHARED: Final = frozenset((*ACCOUNTS, *WHOLE, *GONE, HITS, JOBS, TAKE, FINISH, SET_WHOLE))
"""Keys that all writers use, and the scripts that do."""


class Violation(AssertionError):
    """The server broke a promise."""


def require(condition: object, *problem: object) -> None:
    if not condition:
        raise Violation(" ".join(map(str, problem)))


def apply(state: State, command: Command) -> Any:
    """What a command does, the naive way; returns its reply. Keys are named after their type, so none is wrong."""
    name, key, *rest = command
    if key in _SHARED:
        return UNKNOWN
    if name == b"FUNCTION":
        return _apply_to_libraries(state, command)
    value, expires = state.get(key, (None, False))
    match name, rest:
        case b"SET", [new]:
            state[key] = new, False
            return b"OK"
        case b"SET", [new, b"PX", _]:
            state[key] = new, True
            return b"OK"
        case b"APPEND", [more]:
            state[key] = (value or b"") + more, expires
            return len(state[key][0])
        case b"INCR", []:
            state[key] = b"%d" % (int(value or 0) + 1), expires
            return int(state[key][0])
        case b"DEL", []:
            return int(state.pop(key, None) is not None)
        case b"PEXPIRE", [_]:
            if value is not None:
                state[key] = value, True
            return int(value is not None)
        case b"HSET", [field_name, new]:
            state[key] = {**(value or {}), field_name: new}, expires
            return int(field_name not in (value or {}))
        case b"HDEL", [gone]:
            left = {name: kept for name, kept in (value or {}).items() if name != gone}
            return _replace(state, key, left, expires, len(value or {}) - len(left))
        case b"SADD", members:
            added = (value or frozenset()) | frozenset(members)
            return _replace(state, key, added, expires, len(added) - len(value or ()))
        case b"SREM", members:
            left_members = (value or frozenset()) - frozenset(members)
            return _replace(state, key, left_members, expires, len(value or ()) - len(left_members))
        case b"ZADD", [score, member]:
            state[key] = {**(value or {}), member: float(score)}, expires
            return int(member not in (value or {}))
        case b"EVAL", [b"4", number, list_, hash_, set_, member] if key == MIXED:
            return _apply_mixed(state, (number, list_, hash_, set_), member)
        case b"FCALL", [b"2", number, list_]:
            return _apply_call(state, key, number, list_)
        case b"LMOVE", [other, b"LEFT", b"RIGHT"]:
            if other == key and value:
                state[key] = [*value[1:], value[0]], expires
                return value[0]
            popped = apply(state, (b"LPOP", key))
            if popped is not None:
                apply(state, (b"RPUSH", other, popped))
            return popped
    return _apply_to_list(state, command, list(value or ()), expires)


def _apply_to_list(state: State, command: Command, elements: list[bytes], expires: bool) -> Any:
    name, key, *rest = command
    reply: Any = len(elements) + len(rest)
    match name, rest:
        case b"RPUSH", _:
            elements += rest
        case b"LPUSH", _:
            elements = [*reversed(rest), *elements]
        case b"LPOP", []:
            reply = elements.pop(0) if elements else None
        case b"RPOP", [count]:
            reply = [elements.pop() for _ in range(min(int(count), len(elements)))] if elements else None
        case b"LREM", [b"0", element]:
            reply = elements.count(element)
            elements = [each for each in elements if each != element]
        case b"LINSERT", [b"BEFORE", pivot, element]:
            reply = len(elements) + 1 if pivot in elements else -1 if elements else 0
            if pivot in elements:
                elements.insert(elements.index(pivot), element)
        case b"LTRIM", [b"1", b"-2"]:
            reply, elements = b"OK", elements[1:-1]
        case _:
            raise ValueError(f"the ledger does not know {command!r}")
    return _replace(state, key, elements, expires, reply)


def _apply_mixed(state: State, keys: Sequence[bytes], member: bytes) -> Any:
    number, list_, hash_, set_ = keys
    count = b"%d" % apply(state, (b"INCR", number))
    size = apply(state, (b"RPUSH", list_, member, count))
    apply(state, (b"HSET", hash_, member, count))
    apply(state, (b"SADD", set_, count))
    if size <= 8:
        return [int(count)]  # a nil ends a table
    return [int(count), [apply(state, (b"LPOP", list_)) for _ in range(2)]]


def _apply_to_libraries(state: State, command: Command) -> Any:
    reply, changed = change(lambda name: key_of(name) in state, command)
    for name, code in changed.items():
        if code is None:
            del state[key_of(name)]
        else:
            state[key_of(name)] = code, False
    return reply


def _apply_call(state: State, function: bytes, number: bytes, list_: bytes) -> Any:
    code, _ = state.get(key_of(function), (None, False))
    if code is None:
        return ServerError("ERR Function not found")
    count = apply(state, (b"INCR", number))
    apply(state, (b"RPUSH", list_, number_of(code)))
    return [count, number_of(code)]


def _replace(state: State, key: bytes, value: Any, expires: bool, reply: Any) -> Any:
    if value:
        state[key] = value, expires
    else:
        state.pop(key, None)
    return reply


@dataclass
class Ledger:
    """One writer's line of units."""

    prefix: bytes
    """Of its own keys."""
    state: State = field(default_factory=dict)
    """Of its own keys after all units that were answered."""
    sent: list[Unit] = field(default_factory=list)
    """Units without an answer, in the order in which they were sent."""
    hits_answered: int = 0
    hits_sent: int = 0
    answered_count: int = 0
    calls_count: int = 0
    """Calls of functions that were there."""
    queue: QueueLedger = field(default_factory=lambda: QueueLedger(0))

    def send(self, unit: Unit) -> None:
        """A unit is about to be sent."""
        self.sent.append(unit)
        if _is_of_queue(unit):
            self.queue.send(unit[0])
        self.hits_sent += sum(command == (b"INCR", HITS) for command in unit)

    def answer(self, reply: Any) -> None:
        """The oldest unit without an answer has got this one."""
        unit = self.sent.pop(0)
        expected = [apply(self.state, command) for command in unit]
        self.hits_answered += sum(command == (b"INCR", HITS) for command in unit)
        self.answered_count += 1
        self.calls_count += sum(
            command[0] == b"FCALL" and not isinstance(want, ServerError)
            for command, want in zip(unit, expected, strict=True)
        )
        found = reply if len(unit) > 1 else [reply]
        require(
            isinstance(found, list)
            and len(found) == len(expected)
            and all(_is_as_expected(want, got) for want, got in zip(expected, found, strict=True)),
            self.prefix.decode(), "sent", unit, "and was told", reply, "instead of", expected,
        )  # fmt: skip
        if _is_of_queue(unit):
            problem = self.queue.answer(unit[0], reply)
            require(not problem, self.prefix.decode(), "sent", unit, "and was told", reply, "but", problem)

    def settle(self, found: State) -> None:
        """After a restart these are its keys: of what had no answer, everything up to some unit has happened."""
        state, unanswered = dict(self.state), self.sent
        self.sent = []
        for unit in (None, *unanswered):
            for command in unit or ():
                apply(state, command)
            if state == found:
                self.state = state
                return
        wrong = {
            key: (self.state.get(key), found.get(key))
            for key in {*self.state, *found}
            if self.state.get(key) != found.get(key)
        }
        raise Violation(
            f"{self.prefix.decode()} is as it was after none of its {len(unanswered)} unanswered units. What differs "
            f"from the answered ones (answered, found): {wrong}; unanswered: {unanswered}"
        )


def _is_as_expected(want: Any, got: Any) -> bool:
    return not isinstance(got, ServerError) if want is UNKNOWN else want == got


def _is_of_queue(unit: Unit) -> bool:
    return unit[0][1] in (JOBS, TAKE, FINISH)


def settle_all(client: redis.Redis, ledgers: Sequence[Ledger]) -> None:
    """Check everything that a server has, before anyone writes to it again."""
    names: Any = client.keys()
    found = _read(client, sorted(names))
    found |= {key_of(name): (code, False) for name, code in read_libraries(client).items()}
    _check_shared(found, ledgers)
    for ledger in ledgers:
        ledger.settle({key: found.pop(key) for key in sorted(found) if key.startswith(ledger.prefix)})
    queue = {key: found.pop(key)[0] for key in sorted(found) if key.startswith(PREFIX)}
    problems = check_queue(queue, [ledger.queue for ledger in ledgers])
    require(not problems, *problems)
    settle_queue(queue, [ledger.queue for ledger in ledgers])
    strange = found.keys() - {*ACCOUNTS, *WHOLE, HITS}
    require(not strange, "nobody has written", strange)


def _check_shared(found: State, ledgers: Sequence[Ledger]) -> None:
    accounts = {key: int(found[key][0]) for key in ACCOUNTS if key in found}
    require(not sum(accounts.values()), "a transfer is half there:", accounts)
    whole = [found.get(key) for key in WHOLE]
    require(all(value == whole[0] for value in whole), "a transaction is half there:", whole)
    hits = int(found[HITS][0]) if HITS in found else 0
    answered, sent = (sum(ledger.hits_answered for ledger in ledgers), sum(ledger.hits_sent for ledger in ledgers))
    require(answered <= hits <= sent, "the counter is", hits, "with", answered, "answered and", sent, "sent")
    for number, ledger in enumerate(ledgers):
        ledger.hits_answered = ledger.hits_sent = 0 if number else hits
    require(not [key for key in GONE if key in found], "what had expired is there again")


def _read(client: redis.Redis, keys: Sequence[bytes]) -> State:
    pipeline: Any = client.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
        pipeline.pttl(key)
    replies = pipeline.execute()
    for key, kind in zip(keys, replies[::2], strict=True):
        match kind:
            case b"string":
                pipeline.get(key)
            case b"hash":
                pipeline.hgetall(key)
            case b"set":
                pipeline.smembers(key)
            case b"list":
                pipeline.lrange(key, 0, -1)
            case b"zset":
                pipeline.zrange(key, 0, -1, withscores=True)
            case _:
                raise Violation(f"{key!r} is listed and is a {kind!r}")
    values = pipeline.execute()
    return {
        key: (_plain(kind, value), pttl > 0)
        for key, kind, pttl, value in zip(keys, replies[::2], replies[1::2], values, strict=True)
    }


def _plain(kind: bytes, value: Any) -> Any:
    if kind == b"set":
        return frozenset(value)
    return dict(value) if kind == b"zset" else value
