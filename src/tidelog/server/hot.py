"""The hot path: the commands that most traffic consists of, with as little Python as they can be run with.

Commands that arrive together are mostly the same one many times, so each function handles a *run*: it takes commands
from a place in the buffer on, as long as they are its own in their plain form, appends their replies to `out`, and
returns the place of the first command that it did not handle. All others take the general path: a value of another
type, a key with an expiry, an option, a wrong number of arguments, a large value (the general path counts what it
holds), a write that is refused at the moment. Both paths do the same; a test compares them.

Writes of different keys in one run are one transaction with one record: they arrived together, nobody can have seen one
without the other, and a record costs more than a pair in it. A key that comes again begins another run, so that every
value that a key ever had is in the journal under a ts of its own.

A connection that is not plain (in MULTI, subscribed, not authenticated) has no hot commands at all.
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.engine.hot_commands import Commands, HotCommands
from tidelog.engine.tallies import Tallies
from tidelog.ids import ShardId
from tidelog.journal.operation import VAL, encode_flat, encode_items, encode_pair
from tidelog.resp.encoder import NULL_3, NULL_BULK_2, OK, QUEUED
from tidelog.server.hot_groups import HotGroups
from tidelog.server.hot_lists import HotLists
from tidelog.server.hot_streams import HotStreams
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.types.hash import HSET, HSETS, encode_field
from tidelog.types.hash_value import Hash

_VALUE_BYTES_MAX: Final = limits.HOT_VALUE_BYTES_MAX
_PAIRS_MAX: Final = limits.RECORD_MEMBERS_MAX
_PAIRS_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES
_REPLIES_BYTES_MAX: Final = limits.REPLIES_BYTES_HELD
_ZERO: Final = ord("0")
_DIGITS_MAX: Final = 18
"""An integer with fewer is far from overflow."""
_ONE_SHARD: Final = ShardId(0)
_ADDED: Final = b":1\r\n"
_CHANGED: Final = b":0\r\n"


class HotPath:
    """The hot commands on one database, for one version of the protocol."""

    def __init__(self, store: Store, number: int, protocol: int, tallies: Tallies | None = None) -> None:
        self._number = number
        tallies = tallies or Tallies()
        self._multi_tally, self._exec_tally = tallies.of("MULTI"), tallies.of("EXEC")
        self._set_tally, self._incr_tally, self._get_tally = tallies.of("SET"), tallies.of("INCR"), tallies.of("GET")
        self._database = store.database(number)
        self._owners = store.owners
        self._has_one_shard = len(store.slots) == 1
        self._writer = store.journal.writer
        self._streams = HotStreams(store, number)
        self._groups = HotGroups(store, number, protocol)
        self._lists = HotLists(store, number, protocol)
        self._nil = NULL_BULK_2 if protocol == 2 else NULL_3

    def commands(self, *, writes: bool = True, multi: bool = True) -> HotCommands:
        """By name, in the two spellings that clients use."""
        runs: HotCommands = {b"GET": self.get, b"HGET": self.hget}
        runs |= self._groups.reads() | self._lists.reads()
        if writes:
            runs |= {b"SET": self.set, b"INCR": self.incr, b"HSET": self.hset, b"MSET": self.mset}
            runs |= self._streams.writes()
            runs |= self._groups.writes() | self._lists.writes()
        if writes and multi:
            runs[b"MULTI"] = self.multi
        return runs | {name.lower(): run for name, run in runs.items()}

    # --- reads --------------------------------------------------------------------------------------------------

    def get(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first = self._database, commands[at][0]
        expiries = database.expiries
        held, end = 0, len(commands)
        while at < end and held <= _REPLIES_BYTES_MAX:
            command = commands[at]
            if len(command) != 2 or command[0] != first:
                break
            key = command[1]
            value = database.find(key)
            if value is None:
                out.append(self._nil)
            elif isinstance(value, bytes) and len(value) <= _VALUE_BYTES_MAX and key not in expiries:
                held += len(value)
                out.append(b"$%d\r\n%b\r\n" % (len(value), value))
            else:
                break
            at += 1
        return at

    def hget(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first = self._database, commands[at][0]
        expiries = database.expiries
        held, end = 0, len(commands)
        while at < end and held <= _REPLIES_BYTES_MAX:
            command = commands[at]
            if len(command) != 3 or command[0] != first:
                break
            key = command[1]
            found = database.find(key)
            value: bytes | None = None
            if found is not None:
                if not isinstance(found, Hash) or key in expiries:
                    break
                value = found.get(command[2])
            if value is None:
                out.append(self._nil)
            elif len(value) <= _VALUE_BYTES_MAX:
                held += len(value)
                out.append(b"$%d\r\n%b\r\n" % (len(value), value))
            else:
                break
            at += 1
        return at

    # --- strings ------------------------------------------------------------------------------------------------

    def set(self, commands: Commands, at: int, out: list[bytes]) -> int:
        if self._writer.refusal is not None:
            return at
        database, first = self._database, commands[at][0]
        expiries = database.expiries
        items: list[bytes] = []
        seen: set[bytes] = set()
        room, begun, end = _PAIRS_BYTES_MAX, at, min(len(commands), at + _PAIRS_MAX)
        while at < end:
            command = commands[at]
            if len(command) != 3 or command[0] != first:
                break
            key, value = command[1], command[2]
            room -= len(key) + len(value)
            if room < 0 or key in seen:
                break
            slot = slot_of(key)
            old = database.find_at(slot, key)
            if not (old is None or (isinstance(old, bytes) and key not in expiries)):
                break
            database.put_at(slot, key, value)
            seen.add(key)
            items.append(key)
            items.append(value)
            at += 1
        if at > begun:
            self._journal(items)
            out.append(OK if at == begun + 1 else OK * (at - begun))
        return at

    def incr(self, commands: Commands, at: int, out: list[bytes]) -> int:
        if self._writer.refusal is not None:
            return at
        database, first = self._database, commands[at][0]
        expiries = database.expiries
        items: list[bytes] = []
        seen: set[bytes] = set()
        end = min(len(commands), at + _PAIRS_MAX)
        while at < end:
            command = commands[at]
            if len(command) != 2 or command[0] != first:
                break
            key = command[1]
            slot = slot_of(key)
            old = database.find_at(slot, key)
            value = _incremented(old)
            if value is None or key in seen or key in expiries:
                break
            database.put_at(slot, key, value)
            seen.add(key)
            items.append(key)
            items.append(value)
            out.append(b":%b\r\n" % value)
            at += 1
        if items:
            self._journal(items)
        return at

    def mset(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """One: it is a transaction whatever its keys are."""
        arguments = commands[at]
        count = len(arguments)
        if count % 2 == 0 or not 1 < count <= 2 * _PAIRS_MAX or not self._has_one_shard:
            return at
        if self._writer.refusal is not None or sum([len(word) for word in arguments]) > _PAIRS_BYTES_MAX:
            return at
        pairs = {arguments[index]: arguments[index + 1] for index in range(1, count, 2)}
        if not self._put_all(pairs):
            return at
        out.append(OK)
        return at + 1

    def _put_all(self, pairs: dict[bytes, bytes]) -> bool:
        """All of them, in one transaction; false, and nothing has happened, if one is not plain."""
        database = self._database
        expiries = database.expiries
        slots: list[int] = []
        for key in pairs:
            slot = slot_of(key)
            old = database.find_at(slot, key)
            if not (old is None or (isinstance(old, bytes) and key not in expiries)):
                return False
            slots.append(slot)
        items: list[bytes] = []
        for index, (key, value) in enumerate(pairs.items()):
            database.put_at(slots[index], key, value)
            items.append(key)
            items.append(value)
        self._journal(items)
        return True

    def _journal(self, items: list[bytes]) -> None:
        """Different keys with their values, as one record, or in several shards as one each."""
        if len(items) == 2:
            self._writer.append_next(
                self._owners[slot_of(items[0])], VAL, encode_pair(items[0], items[1]), self._number
            )
        elif self._has_one_shard:
            self._writer.append_next(_ONE_SHARD, VAL, encode_flat(items), self._number)
        else:
            for index in range(0, len(items), 2):
                self._journal(items[index : index + 2])

    # --- hashes -------------------------------------------------------------------------------------------------

    def hset(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """One field each."""
        if self._writer.refusal is not None:
            return at
        database, first = self._database, commands[at][0]
        expiries, bounds = database.expiries, database.bounds
        items: list[bytes] = []
        seen: set[bytes] = set()
        room, begun = _PAIRS_BYTES_MAX, at
        end = min(len(commands), at + (_PAIRS_MAX if self._has_one_shard else 1))
        while at < end:
            command = commands[at]
            if len(command) != 4 or command[0] != first:
                break
            key, field, value = command[1], command[2], command[3]
            room -= len(key) + len(field) + len(value)
            if room < 0 or key in seen:
                break
            slot = slot_of(key)
            found = database.find_at(slot, key)
            if found is None:
                fresh = Hash()
                database.put_at(slot, key, fresh)
                fresh.set_field(field, value, bounds)
                out.append(_ADDED)
            elif isinstance(found, Hash) and key not in expiries:
                database.touch(key)
                out.append(_ADDED if found.set_field(field, value, bounds) else _CHANGED)
            else:
                break
            seen.add(key)
            items.append(key)
            items.append(field)
            items.append(value)
            at += 1
        if at == begun + 1:
            shard = self._owners[slot_of(items[0])]
            self._writer.append_next(shard, HSET, encode_field(items[0], items[1], items[2]), self._number)
        elif items:
            self._writer.append_next(_ONE_SHARD, HSETS, encode_items(items), self._number)
        return at

    # --- transactions -------------------------------------------------------------------------------------------

    def multi(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """A whole MULTI ... EXEC of SET, INCR and GET: everything is decided before anything is applied.

        Not for a client that is inside one already, or watches a key.
        """
        if self._writer.refusal is not None or not self._has_one_shard or len(commands[at]) != 1:
            return at
        database = self._database
        expiries = database.expiries
        pairs: dict[bytes, bytes] = {}
        replies: list[bytes] = []
        room, begun, end = _PAIRS_BYTES_MAX, at, min(len(commands), at + 2 + _PAIRS_MAX)
        incr_count = get_count = 0
        is_whole = False
        at += 1
        while at < end:
            command = commands[at]
            at += 1
            count, name = len(command), command[0]
            if count == 1:
                is_whole = name in _EXEC
                break
            key = command[1]
            if count > 3 or key in pairs:
                break
            if count == 3:
                if name not in _SET:
                    break
                pairs[key] = value = command[2]
                room -= len(key) + len(value)
                replies.append(OK)
                continue
            old = database.find(key)
            if key in expiries or not (old is None or isinstance(old, bytes)):
                break
            if name in _INCR:
                result = _incremented(old)
                if result is None:
                    break
                pairs[key] = result
                incr_count += 1
                replies.append(b":%b\r\n" % result)
            elif name in _GET:
                get_count += 1
                room -= 0 if old is None else len(old)
                replies.append(self._nil if old is None else b"$%d\r\n%b\r\n" % (len(old), old))
            else:
                break
        # Otherwise it goes on in the next buffer, is very long, or has something in it that is not plain.
        if not is_whole or room < 0 or (pairs and not self._put_all(pairs)):
            return begun
        self._multi_tally.hot_calls += 1
        self._exec_tally.hot_calls += 1
        self._set_tally.hot_calls += len(replies) - incr_count - get_count
        self._incr_tally.hot_calls += incr_count
        self._get_tally.hot_calls += get_count
        out.append(b"%b%b*%d\r\n" % (OK, QUEUED * len(replies), len(replies)))
        out += replies
        return at


def hot_commands(
    store: Store, database: int, protocol: int, writes: bool, multi: bool, tallies: Tallies
) -> HotCommands:
    """The hot commands of a session: with writes unless the gate refuses some, with MULTI unless it watches a key."""
    return HotPath(store, database, protocol, tallies).commands(writes=writes, multi=multi)


def whole_transactions(commands: Commands) -> int:
    """The place of a MULTI at the end whose EXEC has not come yet; how many commands there are if there is none."""
    for at in range(len(commands) - 1, max(len(commands) - _PAIRS_MAX, -1), -1):
        name = commands[at][0]
        if name in _EXEC:
            break
        if name in _MULTI:
            return at
    return len(commands)


_MULTI: Final = frozenset([b"MULTI", b"multi"])
_GET: Final = frozenset([b"GET", b"get"])
_SET: Final = frozenset([b"SET", b"set"])
_INCR: Final = frozenset([b"INCR", b"incr"])
_EXEC: Final = frozenset([b"EXEC", b"exec"])


def _incremented(old: object) -> bytes | None:
    """One more than a string says, if it plainly says a number that is not negative."""
    if old is None:
        return b"1"
    if type(old) is bytes and old.isdigit() and len(old) < _DIGITS_MAX and (old[0] != _ZERO or len(old) == 1):
        return b"%d" % (int(old) + 1)
    return None
