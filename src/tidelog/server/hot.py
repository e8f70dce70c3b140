"""The hot path: the commands that most traffic consists of, with as little Python as they can be run with.

Commands that arrive together mostly come in runs of the same one, so each is handled a *run* at a time: from a place in
a buffer of commands on, as long as they are the same command in its plain form, their replies are appended to `out`;
the place of the first that is not is returned. Whatever is not plain takes the general path: a value of another type,
a key with an expiry, an option, a wrong number of arguments, a large value (the general path counts what it holds),
writes that are refused at the moment. Both paths do the same; a test compares them.

Writes of different keys in one run are one transaction with one record: they arrived together, nobody can have seen one
without the other, and a record costs more than a pair in it. A key that comes again begins another run, so that every
value that a key ever had is in the journal under a ts of its own.

A connection that is not plain (in MULTI, subscribed, not authenticated) has no hot commands at all.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.operation import VAL, encode_items, encode_pair, encode_pairs
from tidelog.resp.encoder import NULL_3, NULL_BULK_2, OK, QUEUED
from tidelog.server.hot_streams import HotStreams
from tidelog.server.run import Commands, HotCommands
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.types.hash import HSET, HSETS, Hash, encode_field

NOTHING_HOT: Final[HotCommands] = {}
"""For a connection that is not plain."""
_VALUE_BYTES_MAX: Final = limits.HOT_VALUE_BYTES_MAX
_PAIRS_MAX: Final = limits.RECORD_MEMBERS_MAX
_PAIRS_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES
_REPLIES_BYTES_MAX: Final = limits.REPLIES_BYTES_HELD
_BRACE: Final = ord("{")
_ZERO: Final = ord("0")
_SLOT_MASK: Final = 16383
_DIGITS_MAX: Final = 18
"""An integer with fewer is far from overflow."""
_ONE_SHARD: Final = ShardId(0)


class HotPath:
    """The hot commands on one database, for one version of the protocol."""

    def __init__(self, store: Store, number: int, protocol: int) -> None:
        self._number = number
        self._database = store.database(number)
        self._owners = store.owners
        self._has_one_shard = len(store.slots) == 1
        self._writer = store.journal.writer
        self._append_next = self._writer.append_next
        self._streams = HotStreams(store, number)
        self._null = NULL_BULK_2 if protocol == 2 else NULL_3

    def commands(self, *, writes: bool = True, transactions: bool = True) -> HotCommands:
        """By name, in the two spellings that clients use."""
        runs: HotCommands = {b"GET": self.get, b"HGET": self.hget}
        if writes:
            runs |= {b"SET": self.set, b"INCR": self.incr, b"HSET": self.hset, b"MSET": self.mset}
            runs |= self._streams.writes()
        if writes and transactions:
            runs[b"MULTI"] = self.multi
        return runs | {name.lower(): run for name, run in runs.items()}

    # --- reads --------------------------------------------------------------------------------------------------

    def get(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first, append = self._database, commands[at][0], out.append
        slots, expiries = database.slots, database.expiries
        held = 0
        try:
            for name, key in _from(commands, at):
                if name != first or held > _REPLIES_BYTES_MAX:
                    break
                bucket = slots[crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)]
                value = None if bucket is None else bucket.get(key)
                if value is None:
                    append(self._null)
                elif type(value) is bytes and key not in expiries:
                    size = len(value)
                    if size > _VALUE_BYTES_MAX:
                        break
                    held += size
                    append(b"$%d\r\n%b\r\n" % (size, value))
                else:
                    break
                at += 1
        except ValueError:
            pass  # another number of arguments
        return at

    def hget(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first, append = self._database, commands[at][0], out.append
        find, expiries = database.find, database.expiries
        held = 0
        try:
            for name, key, field in _from(commands, at):
                if name != first or held > _REPLIES_BYTES_MAX:
                    break
                found = find(key)
                if found is None:
                    append(self._null)
                elif type(found) is Hash and key not in expiries:
                    value = found.get(field)
                    if value is None:
                        append(self._null)
                    else:
                        size = len(value)
                        if size > _VALUE_BYTES_MAX:
                            break
                        held += size
                        append(b"$%d\r\n%b\r\n" % (size, value))
                else:
                    break
                at += 1
        except ValueError:
            pass
        return at

    # --- strings ------------------------------------------------------------------------------------------------

    def set(self, commands: Commands, at: int, out: list[bytes]) -> int:
        if self._writer.refusal is not None:
            return at
        arguments = commands[at]
        if len(commands) == at + 1:
            if len(arguments) != 3 or not self._set_one(arguments[1], arguments[2]):
                return at
            out.append(OK)
            return at + 1
        database, first = self._database, arguments[0]
        slots, expiries, observer = database.slots, database.expiries, database.observer
        pairs: dict[bytes, bytes] = {}
        room = _PAIRS_BYTES_MAX
        try:
            for name, key, value in islice(_from(commands, at), _PAIRS_MAX):
                room -= len(key) + len(value)
                if name != first or key in pairs or room < 0:
                    break
                slot = crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)
                bucket = slots[slot]
                old = None if bucket is None else bucket.get(key)
                if old is not None and (type(old) is not bytes or key in expiries):
                    break
                if old is None or observer is not None:
                    database.put_at(slot, key, value)
                else:
                    bucket[key] = value
                pairs[key] = value
        except ValueError:
            pass
        if not pairs:
            return at
        self._journal(pairs)
        count = len(pairs)
        out.append(OK * count)
        return at + count

    def _set_one(self, key: bytes, value: bytes) -> bool:
        """The same for one alone, as clients send them that wait for each reply; false if it is not plain."""
        database = self._database
        slot = crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)
        bucket = database.slots[slot]
        old = None if bucket is None else bucket.get(key)
        if old is not None and (type(old) is not bytes or key in database.expiries):
            return False
        if len(value) > _PAIRS_BYTES_MAX:
            return False
        if old is None or database.observer is not None:
            database.put_at(slot, key, value)
        else:
            bucket[key] = value
        self._append_next(self._owners[slot], VAL, encode_pair(key, value), self._number)
        return True

    def incr(self, commands: Commands, at: int, out: list[bytes]) -> int:
        if self._writer.refusal is not None:
            return at
        database, first = self._database, commands[at][0]
        slots, expiries, observer = database.slots, database.expiries, database.observer
        pairs: dict[bytes, bytes] = {}
        try:
            for name, key in islice(_from(commands, at), _PAIRS_MAX):
                if name != first or key in pairs:
                    break
                slot = crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)
                bucket = slots[slot]
                old = None if bucket is None else bucket.get(key)
                # As `_incremented` has it, without a call.
                if old is None:
                    result = b"1"
                elif type(old) is bytes and old.isdigit() and len(old) < _DIGITS_MAX and old[0] != _ZERO:
                    result = b"%d" % (int(old) + 1)
                else:
                    break
                if key in expiries:
                    break
                if old is None or observer is not None:
                    database.put_at(slot, key, result)
                else:
                    bucket[key] = result
                pairs[key] = result
        except ValueError:
            pass
        if not pairs:
            return at
        self._journal(pairs)
        out.append(b":%b\r\n" % b"\r\n:".join(pairs.values()))
        return at + len(pairs)

    def mset(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """One: it is a transaction whatever its keys are."""
        arguments = commands[at]
        pairs = dict(zip(arguments[1::2], arguments[2::2], strict=False))
        if (
            len(arguments) % 2 == 0
            or not 0 < len(pairs) <= _PAIRS_MAX
            or not self._has_one_shard
            or self._writer.refusal is not None
            or sum(map(len, arguments)) > _PAIRS_BYTES_MAX
        ):
            return at
        if not self._replace_all(pairs):
            places = self._plain_places(pairs)
            if places is None:
                return at
            self._put(pairs, places)
        out.append(OK)
        return at + 1

    def _replace_all(self, pairs: dict[bytes, bytes]) -> bool:
        """Replace strings that are there and plain, in one pass; false, and they are as they were, if one is not."""
        database = self._database
        slots, expiries = database.slots, database.expiries
        if database.observer is not None:
            return False
        undo: list[tuple[dict[bytes, bytes], bytes, bytes]] = []
        for key, value in pairs.items():
            bucket = slots[crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)]
            old = None if bucket is None else bucket.get(key)
            if type(old) is not bytes or key in expiries:
                for bucket, key, old in undo:
                    bucket[key] = old
                return False
            undo.append((bucket, key, old))
            bucket[key] = value
        self._journal(pairs)
        return True

    def _plain_places(self, keys: Iterable[bytes]) -> list[int] | None:
        """The slots of keys that are free or plain strings; None if one is not."""
        slots, expiries = self._database.slots, self._database.expiries
        places: list[int] = []
        for key in keys:
            slot = slot_of(key)
            bucket = slots[slot]
            old = None if bucket is None else bucket.get(key)
            if old is not None and (type(old) is not bytes or key in expiries):
                return None
            places.append(slot)
        return places

    def _put(self, pairs: dict[bytes, bytes], places: list[int]) -> None:
        """All of them, in one transaction; `places` are their slots."""
        database = self._database
        slots, observer = database.slots, database.observer
        for slot, (key, value) in zip(places, pairs.items(), strict=True):
            bucket = slots[slot]
            if bucket is None or observer is not None or key not in bucket:
                database.put_at(slot, key, value)
            else:
                bucket[key] = value
        self._journal(pairs)

    def _journal(self, pairs: dict[bytes, bytes]) -> None:
        """Different keys, as one record, or in several shards as one each."""
        if len(pairs) > 1 and self._has_one_shard:
            self._append_next(_ONE_SHARD, VAL, encode_pairs(pairs.items()), self._number)
            return
        for key, value in pairs.items():
            self._append_next(self._owners[slot_of(key)], VAL, encode_pair(key, value), self._number)

    # --- hashes -------------------------------------------------------------------------------------------------

    def hset(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """One field each."""
        if self._writer.refusal is not None:
            return at
        database, first, append = self._database, commands[at][0], out.append
        slots, expiries, observer = database.slots, database.expiries, database.observer
        items: list[bytes] = []
        keys: set[bytes] = set()
        slot, room = 0, _PAIRS_BYTES_MAX
        try:
            for name, key, field, value in islice(_from(commands, at), _PAIRS_MAX if self._has_one_shard else 1):
                room -= len(key) + len(field) + len(value)
                if name != first or key in keys or room < 0:
                    break
                slot = crc_hqx(key, 0) & _SLOT_MASK if _BRACE not in key else slot_of(key)
                bucket = slots[slot]
                found = None if bucket is None else bucket.get(key)
                if found is None:
                    database.put_at(slot, key, {field: value})
                    append(b":1\r\n")
                elif type(found) is Hash and key not in expiries:
                    if observer is not None:
                        observer(database, key)
                    append(b":0\r\n" if field in found else b":1\r\n")
                    found[field] = value
                else:
                    break
                keys.add(key)
                items += (key, field, value)
        except ValueError:
            pass
        if len(keys) == 1:
            self._append_next(self._owners[slot], HSET, encode_field(*items), self._number)
        elif keys:
            self._append_next(_ONE_SHARD, HSETS, encode_items(items), self._number)
        return at + len(keys)

    # --- transactions -------------------------------------------------------------------------------------------

    def multi(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """A whole MULTI ... EXEC of SET, INCR and GET: all of it is decided before any of it is applied.

        Not for a client that is inside one already, or watches a key.
        """
        if self._writer.refusal is not None or not self._has_one_shard or len(commands[at]) != 1:
            return at
        find, expiries = self._database.find, self._database.expiries
        pairs: dict[bytes, bytes] = {}
        replies: list[bytes] = []
        room = _PAIRS_BYTES_MAX
        for arguments in islice(_from(commands, at + 1), 1 + _PAIRS_MAX):
            count, name = len(arguments), arguments[0]
            if count == 1 and name in _EXEC:
                break
            if count == 1 or arguments[1] in pairs:
                return at
            key = arguments[1]
            if count == 3 and name in _SET:
                pairs[key] = value = arguments[2]
                room -= len(key) + len(value)
                replies.append(OK)
                continue
            old = find(key)
            if count != 2 or key in expiries or not (old is None or type(old) is bytes):
                return at
            if name in _INCR:
                result = _incremented(old)
                if result is None:
                    return at
                pairs[key] = result
                replies.append(b":%b\r\n" % result)
            elif name in _GET:
                room -= 0 if old is None else len(old)
                replies.append(self._null if old is None else b"$%d\r\n%b\r\n" % (len(old), old))
            else:
                return at
        else:
            return at  # it goes on in the next buffer, or is very long
        if room < 0:
            return at
        if pairs and not self._replace_all(pairs):
            places = self._plain_places(pairs)
            if places is None:
                return at
            self._put(pairs, places)
        count = len(replies)
        out += (OK, QUEUED * count, b"*%d\r\n" % count, *replies)
        return at + count + 2


def _from(commands: Commands, at: int) -> Iterator[Sequence[bytes]]:
    """The commands from a place on. `islice` would walk there, and so be slow where runs are short and many."""
    found: Any = iter(commands)
    if at:
        found.__setstate__(at)
    return cast("Iterator[Sequence[bytes]]", found)


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
