"""The store in the plainest way: a dict of Python values, and all its states, one after each transaction.

Every operation that the store applies is applied here too, by code that shares nothing with it: no slots, no buckets,
no packed sorted sets. Values are never changed in place, so a copy of the dict is a state for good. `live_state` shows
a store in the same form, whatever its own looks like, and checks on the way what must hold inside it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tests.simulation.list_model import ListOperation, list_after
from tests.simulation.recovery import require
from tests.simulation.stream_model import PlainStream, StreamOperation, check_pending, check_rule, plain_stream
from tidelog.journal.operation import Del, FlushDb, Val
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.streams.operations import StreamCopy
from tidelog.streams.stream import Stream
from tidelog.types.hash import HDel, HSet, HSets
from tidelog.types.hash_value import Hash
from tidelog.types.hold import Release, SetHold
from tidelog.types.key import DelRange, Expire
from tidelog.types.library import LibDel, LibLoad
from tidelog.types.list import LPop, LPush, RPop, RPush
from tidelog.types.list_value import List
from tidelog.types.set import SAdd, SRem
from tidelog.types.set_value import Set
from tidelog.types.zset import ZAdd, ZRem
from tidelog.types.zset_value import ZSet

State = dict[tuple[int, bytes], tuple[Any, int | None]]
"""Database and key -> value and expiry. A value is `bytes`, or the name of its type and what it holds."""
LIBRARIES: Final = -1
"""In the place of a database: libraries of functions, which belong to none, with their names as keys."""
HOLDS: Final = -2
"""The same for named holders."""

_NOTHING: Final = (None, None)


class Model:
    """What the keyspace should be now."""

    def __init__(self) -> None:
        self.state: State = {}

    def apply(self, number: int, operation: Any) -> None:
        state = self.state
        match operation:
            case Val(pairs, expire_ms):
                for key, value in pairs:
                    state[number, key] = value, expire_ms
            case Del(keys):
                for key in keys:
                    state.pop((number, key), None)
            case FlushDb():
                for place in [place for place in state if place[0] == number]:
                    del state[place]
            case DelRange(start, end):
                for place in [place for place in state if place[0] == number]:
                    if start <= place[1] and (not end or place[1] < end):
                        del state[place]
            case Expire(key, expire_ms):
                if (number, key) in state:
                    state[number, key] = state[number, key][0], expire_ms
            case HSet(key, items):
                self._grow(number, key, "hash", dict(zip(items[::2], items[1::2], strict=True)))
            case HSets(items):
                for at in range(0, len(items), 3):
                    self._grow(number, items[at], "hash", {items[at + 1]: items[at + 2]})
            case ZAdd(key, items):
                scores = [struct.unpack("<d", score)[0] for score in items[::2]]
                self._grow(number, key, "zset", dict(zip(items[1::2], scores, strict=True)))
            case SAdd(key, members):
                self._grow(number, key, "set", dict.fromkeys(members))
            case HDel(key, gone) | SRem(key, gone) | ZRem(key, gone):
                self._shrink(number, key, gone)
            case LibLoad(name, code):
                state[LIBRARIES, name] = code, None
            case LibDel(names):
                for name in names:
                    state.pop((LIBRARIES, name), None)
            case SetHold(holder, _):
                state[HOLDS, holder.name.encode()] = holder, None
            case Release(released, _):
                for holder_name in released:
                    state.pop((HOLDS, holder_name.encode()), None)
            case _ if isinstance(operation, ListOperation):
                old, expire_ms = state.get((number, operation.key), (("list", ()), None))
                elements = list_after(old[1], operation)
                if elements:
                    state[number, operation.key] = ("list", elements), expire_ms
                else:
                    del state[number, operation.key]
            case StreamCopy(key, source, source_number):
                state[number, key] = ("stream", state[source_number, source][0][1].without_groups()), None
            case _ if isinstance(operation, StreamOperation):
                old, expire_ms = state.get((number, operation.key), (("stream", PlainStream()), None))
                state[number, operation.key] = ("stream", old[1].after(operation)), expire_ms
            case _:
                raise TypeError(f"the model does not know {operation!r}")

    def _grow(self, number: int, key: bytes, kind: str, items: dict[bytes, Any]) -> None:
        old, expire_ms = self.state.get((number, key), _NOTHING)
        self.state[number, key] = (kind, {**(old[1] if old is not None else {}), **items}), expire_ms

    def _shrink(self, number: int, key: bytes, gone: Sequence[bytes]) -> None:
        old, expire_ms = self.state.get((number, key), _NOTHING)
        if old is None:
            return
        left = {name: value for name, value in old[1].items() if name not in gone}
        if left:
            self.state[number, key] = (old[0], left), expire_ms
        else:
            del self.state[number, key]


def hot_operation(state: State, number: int, words: list[bytes]) -> Any:
    """What a command does that the hot path took: so it is as simple as this. None: nothing."""
    value, _ = state.get((number, words[1] if len(words) > 1 else b""), _NOTHING)
    match words:
        case [b"MULTI"] | [b"EXEC"]:
            return None
        case b"HSET", key, *items:
            return HSet(key, items)
        case b"INCR", key:
            return Val([(key, b"%d" % (int(value or 0) + 1))])
        case b"LPUSH", key, element:
            return LPush(key, [element])
        case b"RPUSH", key, element:
            return RPush(key, [element])
        case b"LPOP", key:
            return LPop(key, value[1][:1]) if value is not None else None
        case b"RPOP", key:
            return RPop(key, value[1][-1:]) if value is not None else None
    return Val(list(zip(words[1::2], words[2::2], strict=True)))


def live_state(store: Store, keys_of: Callable[[Database], Iterable[bytes]] = Database.all_keys) -> State:
    """What a store has, expired or not."""
    state: State = {(LIBRARIES, name): (code, None) for name, code in store.libraries.codes.items()}
    state |= {(HOLDS, name.encode()): (holder, None) for name, holder in store.holds.by_name.items()}
    for database in store.databases:
        if not database.size:
            require(not database.expiries, "database", database.number, "is empty and has expiries")
            continue
        for key in keys_of(database):
            value = database.peek(key)
            state[database.number, key] = _plain(value), database.expiries.get(key)
            if isinstance(value, Stream):
                check_pending(database, key, value)
                check_rule(database, key, value)
        count = sum(number == database.number for number, _ in state)
        require(database.size == count, "database", database.number, "counts", database.size, "keys and has", count)
        _check_expiries(database)
        require(all(database.peek(key) is not None for key in database.ruled), "a key is gone and still has a rule")
    return state


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is Hash:
        return "hash", value.fields().copy()
    if kind is ZSet:
        return "zset", {member: score for score, member in value}
    if kind is List:
        return "list", tuple(value)
    if isinstance(value, Stream):
        return "stream", plain_stream(value)
    return ("set", dict.fromkeys(value)) if kind is Set else value


def _check_expiries(database: Database) -> None:
    due = database.expiring.waiting()
    for key, when in database.expiries.items():
        require(database.find(key) is not None, key, "is gone and still expires")
        require((when, key) in due, key, "expires and will never be removed")


class StoreLedger:
    """All transactions that count: their ts, and the state after each."""

    def __init__(self) -> None:
        self.ts: list[int] = []
        self.states: list[State] = [{}]
        """`states[k]`: after the first k."""

    def append(self, ts: int, state: State) -> None:
        require(ts > self.last_ts, "ts", ts, "is not above", self.last_ts)
        self.ts.append(ts)
        self.states.append(dict(state))

    @property
    def last_ts(self) -> int:
        return self.ts[-1] if self.ts else 0

    def count_up_to(self, ts: int) -> int:
        return bisect_right(self.ts, ts)

    def cut(self, count: int) -> None:
        """Only the first `count` happened."""
        del self.ts[count:], self.states[count + 1 :]


def difference(expected: State, found: State) -> dict[tuple[int, bytes], Any]:
    """Keys that differ: what they should be, and are."""
    pairs = ((place, expected.get(place), found.get(place)) for place in sorted({*expected, *found}))
    return {place: (wanted, got) for place, wanted, got in pairs if wanted != got}
