"""The hot path of lists: runs of one command on one list.

    LPUSH key element        RPUSH key element
    LPOP key                 RPOP key
    BLPOP key ... seconds    BRPOP key ... seconds
    LRANGE key start stop    LLEN key

Pushes, or pops, of a run are one transaction with one record: they arrived together. If somebody waits for the key, a
push is a run by itself, because a client that waits is served right after the command that brought the element. A key
with an expiry, a large element and a long range take the general path, and so does a client that has to wait. When it
is served, its command comes here again.
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.engine.hot_commands import Commands, HotCommands
from tidelog.journal.operation import encode_items
from tidelog.resp.encoder import NULL_3, NULL_BULK_2
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.types.list import LPOP, LPUSH, RPOP, RPUSH, encode_element
from tidelog.types.list_value import List

_ELEMENTS_MAX: Final = limits.RECORD_MEMBERS_MAX
_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES
_ELEMENT_BYTES_MAX: Final = limits.HOT_VALUE_BYTES_MAX
_REPLIES_BYTES_MAX: Final = limits.REPLIES_BYTES_HELD
_RANGE_MAX: Final = limits.HOT_RANGE_ELEMENTS_MAX
_HEADS_MAX: Final = 1024
_HEADS: Final = [b"\r\n$%d\r\n" % size for size in range(_HEADS_MAX)]
"""The end of what stands before an element in an array, and its own head."""
_DIGITS_MAX: Final = 18
"""An integer with fewer is far from overflow."""
_SECONDS_DIGITS_MAX: Final = 9
_ZERO: Final = ord("0")
_MINUS: Final = ord("-")
_NO_INDEX: Final = -(1 << 62)


class HotLists:
    """The hot commands of lists on one database, for one version of the protocol."""

    def __init__(self, store: Store, number: int, protocol: int) -> None:
        self._number = number
        self._database = store.database(number)
        self._owners = store.owners
        self._writer = store.journal.writer
        self._nil = NULL_BULK_2 if protocol == 2 else NULL_3

    def reads(self) -> HotCommands:
        return {b"LRANGE": self.lrange, b"LLEN": self.llen}

    def writes(self) -> HotCommands:
        pops: HotCommands = {b"LPOP": self.lpop, b"RPOP": self.rpop, b"BLPOP": self.blpop, b"BRPOP": self.brpop}
        return {b"LPUSH": self.lpush, b"RPUSH": self.rpush} | pops

    # --- pushing ------------------------------------------------------------------------------------------------

    def lpush(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._push(commands, at, out, True)

    def rpush(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._push(commands, at, out, False)

    def _push(self, commands: Commands, at: int, out: list[bytes], is_left: bool) -> int:
        command = commands[at]
        if len(command) != 3 or self._writer.refusal is not None:
            return at
        database, name, key = self._database, command[0], command[1]
        slot = slot_of(key)
        found = database.find_at(slot, key)
        if found is not None and (not isinstance(found, List) or key in database.expiries):
            return at
        elements: list[bytes] = []
        room, begun, end = _BYTES_MAX - len(key), at, min(len(commands), at + _ELEMENTS_MAX)
        if database.waiting and key in database.waiting:
            end = at + 1
        while at < end:
            command = commands[at]
            if len(command) != 3 or command[1] != key or command[0] != name:
                break
            element = command[2]
            room -= len(element)
            if room < 0:
                break
            elements.append(element)
            at += 1
        if not elements:
            return begun
        if found is None:
            value = List()
            database.put_at(slot, key, value)
        else:
            value = found
            database.touch(key)
        size = len(value)
        value.push(elements, is_left)
        self._journal(slot, LPUSH if is_left else RPUSH, key, elements)
        out += [b":%d\r\n" % length for length in range(size + 1, size + len(elements) + 1)]
        return at

    # --- popping ------------------------------------------------------------------------------------------------

    def lpop(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._pop(commands, at, out, True)

    def rpop(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._pop(commands, at, out, False)

    def _pop(self, commands: Commands, at: int, out: list[bytes], is_left: bool) -> int:
        command = commands[at]
        if len(command) != 2 or self._writer.refusal is not None:
            return at
        database, name, key = self._database, command[0], command[1]
        slot = slot_of(key)
        found = database.find_at(slot, key)
        if found is None:
            out.append(self._nil)
            return at + 1
        if not isinstance(found, List) or key in database.expiries:
            return at
        value: List = found
        elements: list[bytes] = []
        room, end = _BYTES_MAX - len(key), min(len(commands), at + min(len(value), _ELEMENTS_MAX))
        while at < end:
            command = commands[at]
            if len(command) != 2 or command[1] != key or command[0] != name:
                break
            element = value.peek(is_left)
            room -= len(element)
            if room < 0 or len(element) > _ELEMENT_BYTES_MAX:
                break
            if not elements:
                database.observe(key)  # clients that wait for the key get nothing from this
            value.pop(is_left)
            elements.append(element)
            out.append(b"$%d\r\n%b\r\n" % (len(element), element))
            at += 1
        if elements:
            if not len(value):
                database.remove(key)
            self._journal(slot, LPOP if is_left else RPOP, key, elements)
        return at

    def blpop(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._pop_first(commands, at, out, True)

    def brpop(self, commands: Commands, at: int, out: list[bytes]) -> int:
        return self._pop_first(commands, at, out, False)

    def _pop_first(self, commands: Commands, at: int, out: list[bytes], is_left: bool) -> int:
        """One pop, from the first of the keys that is there."""
        words = commands[at]
        last = len(words) - 1
        if last < 2 or not words[last].isdigit() or len(words[last]) > _SECONDS_DIGITS_MAX:
            return at
        if self._writer.refusal is not None:
            return at
        database = self._database
        for index in range(1, last):
            key = words[index]
            slot = slot_of(key)
            found = database.find_at(slot, key)
            if found is None:
                continue
            if not isinstance(found, List) or key in database.expiries:
                return at
            value: List = found
            element = value.peek(is_left)
            if len(element) > _ELEMENT_BYTES_MAX:
                return at
            database.observe(key)
            value.pop(is_left)
            if not len(value):
                database.remove(key)
            self._journal(slot, LPOP if is_left else RPOP, key, [element])
            out.append(b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(element), element))
            return at + 1
        return at

    def _journal(self, slot: int, opcode: int, key: bytes, elements: list[bytes]) -> None:
        payload = encode_element(key, elements[0]) if len(elements) == 1 else encode_items([key, *elements])
        self._writer.append_next(self._owners[slot], opcode, payload, self._number)

    # --- reading ------------------------------------------------------------------------------------------------

    def lrange(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first = self._database, commands[at][0]
        held, end = 0, len(commands)
        while at < end and held <= _REPLIES_BYTES_MAX:
            command = commands[at]
            if len(command) != 4 or command[0] != first:
                break
            key, start, stop = command[1], _index(command[2]), _index(command[3])
            found = database.find(key)
            if start == _NO_INDEX or stop == _NO_INDEX:
                break
            if found is not None and (not isinstance(found, List) or key in database.expiries):
                break
            reply = _EMPTY if found is None else _range_reply(found, start, stop)
            if not reply:
                break
            held += len(reply)
            out.append(reply)
            at += 1
        return at

    def llen(self, commands: Commands, at: int, out: list[bytes]) -> int:
        database, first, end = self._database, commands[at][0], len(commands)
        while at < end:
            command = commands[at]
            if len(command) != 2 or command[0] != first:
                break
            key = command[1]
            found = database.find(key)
            if found is not None and (not isinstance(found, List) or key in database.expiries):
                break
            out.append(b":0\r\n" if found is None else b":%d\r\n" % len(found))
            at += 1
        return at


_EMPTY: Final = b"*0\r\n"


def _range_reply(value: List, start: int, stop: int) -> bytes:
    """The reply of LRANGE; empty: it may be long."""
    size = len(value)
    if start < 0:
        start = max(start + size, 0)
    stop = stop + size if stop < 0 else min(stop, size - 1)
    count = stop - start + 1
    if count <= 0:
        return _EMPTY
    if count > _RANGE_MAX:
        return b""
    elements = value.slice(start, stop + 1)
    sizes = set(map(len, elements))
    if count * max(sizes) > _REPLIES_BYTES_MAX:
        return b""
    if len(sizes) == 1:  # often: one head for all of them
        head = _head(len(elements[0]))
        return b"*%d%b%b\r\n" % (count, head, head.join(elements))
    parts: list[bytes] = []
    for element in elements:
        parts.append(_head(len(element)))
        parts.append(element)
    return b"*%d%b\r\n" % (count, b"".join(parts))


def _head(size: int) -> bytes:
    return _HEADS[size] if size < _HEADS_MAX else b"\r\n$%d\r\n" % size


def _index(word: bytes) -> int:
    """An index that is plainly one; otherwise `_NO_INDEX`."""
    if not word or len(word) > _DIGITS_MAX:
        return _NO_INDEX
    digits = word[1:] if word[0] == _MINUS else word
    if not digits.isdigit() or (digits[0] == _ZERO and len(word) > 1):
        return _NO_INDEX
    return int(word)
