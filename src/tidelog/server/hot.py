"""The hot path: the commands that most traffic consists of, with as little Python as they can be run with.

Each does what its general handler would in the plain case, and returns None for any other: a value of another type, a
key with an expiry, an option, an odd number of arguments, a large value (the general path counts what it holds), writes
that are refused at the moment.

A run of SETs of different keys in one buffer is one transaction with one record: they arrived together, nobody can have
seen one without the other, and a record costs more than a pair in it.

A connection that is not plain (in MULTI, subscribed, not authenticated) has no hot commands at all.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Sequence
from typing import Final

from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.resp.encoder import NULL_3, NULL_BULK_2, OK
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.types.effect import encode_keyed
from tidelog.types.hash import HSET, Hash

HotHandler = Callable[[Sequence[bytes]], bytes | None]
HotCommands = dict[bytes, HotHandler]

SetRun = Callable[[Sequence[Sequence[bytes]], int], int]

NOTHING_HOT: Final[tuple[HotCommands, SetRun]] = {}, lambda _commands, _start: 0
"""For a connection that is not plain."""
SET_NAMES: Final = frozenset([b"SET", b"set"])
_VALUE_BYTES_MAX: Final = limits.HOT_VALUE_BYTES_MAX
_ZERO: Final = ord("0")
_ONE_SHARD: Final = ShardId(0)


class HotPath:
    """The hot commands on one database, for one version of the protocol."""

    def __init__(self, store: Store, number: int, protocol: int) -> None:
        self._number = number
        self._database = store.database(number)
        self._owners = store.owners
        self._has_one_shard = len(store.slots) == 1
        self._writer = store.journal.writer
        self._append_one = self._writer.append_one
        self._next_ts = store.journal.hlc.following
        self._null = NULL_BULK_2 if protocol == 2 else NULL_3

    def commands(self) -> HotCommands:
        """Name -> handler, for the two spellings that clients use."""
        found: HotCommands = {}
        for name, handler in (
            (b"GET", self.get),
            (b"SET", self.set),
            (b"INCR", self.incr),
            (b"HSET", self.hset),
            (b"HGET", self.hget),
        ):
            found[name] = found[name.lower()] = handler
        return found

    def get(self, arguments: Sequence[bytes]) -> bytes | None:
        if len(arguments) != 2:
            return None
        database, key = self._database, arguments[1]
        bucket = database.slots[slot_of(key) if b"{" in key else crc_hqx(key, 0) & 16383]
        value = None if bucket is None else bucket.get(key)
        if value is None:
            return self._null
        if type(value) is not bytes or key in database.expiries or len(value) > _VALUE_BYTES_MAX:
            return None
        return b"$%d\r\n%b\r\n" % (len(value), value)

    def set(self, arguments: Sequence[bytes]) -> bytes | None:
        if len(arguments) != 3 or self._writer.refusal is not None:
            return None
        _, key, value = arguments
        slot = slot_of(key)
        if len(value) > _VALUE_BYTES_MAX or not self._is_plain(slot, key):
            return None
        self._put(slot, key, value)
        return OK

    def _is_plain(self, slot: int, key: bytes) -> bool:
        """Whether a key is free or a string that stays: a `Val` and nothing else replaces it."""
        database = self._database
        bucket = database.slots[slot]
        if bucket is None:
            return True
        old = bucket.get(key)
        return old is None or (type(old) is bytes and key not in database.expiries)

    def _put(self, slot: int, key: bytes, value: bytes) -> None:
        key_size, value_size = len(key), len(value)
        if key_size < 128 and value_size < 128:
            payload = b"\3%c%c%b%b" % (key_size << 1 | 1, value_size << 1 | 1, key, value)
        else:
            payload = encode_pairs(((key, value),))
        self._database.put_at(slot, key, value)
        self._append_one(self._owners[slot], self._next_ts(), VAL, payload, self._number)

    def set_run(self, commands: Sequence[Sequence[bytes]], start: int) -> int:
        """Run the SETs of different, plain keys that begin at `start` as one; returns how many there were."""
        if not self._has_one_shard or self._writer.refusal is not None:
            return 0
        found: dict[bytes, bytes] = {}
        slots: list[int] = []
        room = limits.RECORD_SPLIT_BYTES
        for arguments in commands[start : start + limits.RECORD_MEMBERS_MAX]:
            if len(arguments) != 3 or arguments[0] not in SET_NAMES:
                break
            _, key, value = arguments
            slot = slot_of(key)
            room -= len(key) + len(value)
            if key in found or room < 0 or not self._is_plain(slot, key):
                break
            found[key] = value
            slots.append(slot)
        if len(found) > 1:
            put_at = self._database.put_at
            pairs = list(found.items())
            for slot, (key, value) in zip(slots, pairs, strict=True):
                put_at(slot, key, value)
            self._append_one(_ONE_SHARD, self._next_ts(), VAL, encode_pairs(pairs), self._number)
            return len(found)
        return 0

    def incr(self, arguments: Sequence[bytes]) -> bytes | None:
        if len(arguments) != 2 or self._writer.refusal is not None:
            return None
        database, key = self._database, arguments[1]
        slot = slot_of(key)
        bucket = database.slots[slot]
        value = None if bucket is None else bucket.get(key)
        if value is None:
            result = b"1"
        elif type(value) is bytes and value.isdigit() and len(value) < 18 and key not in database.expiries:
            if value[0] == _ZERO and len(value) > 1:
                return None
            result = b"%d" % (int(value) + 1)
        else:
            return None
        self._put(slot, key, result)
        return b":%b\r\n" % result

    def hset(self, arguments: Sequence[bytes]) -> bytes | None:
        if len(arguments) != 4 or self._writer.refusal is not None:
            return None
        _, key, field, value = arguments
        database = self._database
        found = database.find(key)
        if found is not None and (type(found) is not Hash or key in database.expiries):
            return None
        if len(field) + len(value) > _VALUE_BYTES_MAX:
            return None
        found = database.change(key)
        if found is None:
            found = Hash()
            database.put(key, found)
        is_new = field not in found
        found[field] = value
        payload = encode_keyed(key, (field, value))
        self._append_one(self._owners[slot_of(key)], self._next_ts(), HSET, payload, self._number)
        return b":1\r\n" if is_new else b":0\r\n"

    def hget(self, arguments: Sequence[bytes]) -> bytes | None:
        if len(arguments) != 3:
            return None
        database, key = self._database, arguments[1]
        found = database.find(key)
        if found is None:
            return self._null
        if type(found) is not Hash or key in database.expiries:
            return None
        value = found.get(arguments[2])
        if value is None:
            return self._null
        return b"$%d\r\n%b\r\n" % (len(value), value) if len(value) <= _VALUE_BYTES_MAX else None
