"""The hot path of streams: runs of `TWRITE key tag entry` and `XADD key * field value ...` on one stream.

They arrived together, so they are one transaction with one record, and get ids of one millisecond that count up. The
first entry of a stream, and whatever has an option, takes the general path.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from tidelog import limits
from tidelog.commands.stream_replies import tagged_of_fields
from tidelog.commands.streams import next_id
from tidelog.errors import CommandError
from tidelog.server.run import Commands, HotCommands
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.streams.effects import APPEND, encode_append
from tidelog.streams.node import TAGGED
from tidelog.streams.stream import Stream

_ENTRIES_MAX: Final = limits.RECORD_MEMBERS_MAX
_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES


class HotStreams:
    """The hot commands of streams on one database."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self._database = store.database(number)
        self._writer = store.journal.writer

    def writes(self) -> HotCommands:
        return {b"TWRITE": self.twrite, b"XADD": self.xadd}

    def twrite(self, commands: Commands, at: int, out: list[bytes]) -> int:
        arguments = commands[at]
        if len(arguments) != 4:
            return at
        name, key, tag, entry = arguments
        slot = slot_of(key)
        stream = self._stream(slot, key)
        if stream is None:
            return at
        first, room = stream.next, _BYTES_MAX - len(tag) - len(entry)
        tags, entries = [tag], [entry]
        for arguments in islice(commands, at + 1, at + _ENTRIES_MAX):
            if len(arguments) != 4 or arguments[1] != key or arguments[0] != name:
                break
            _, _, tag, entry = arguments
            room -= len(tag) + len(entry)
            if room < 0:
                break
            tags.append(tag)
            entries.append(entry)
        if (room < 0 and len(entries) == 1) or self._append(slot, stream, key, TAGGED, tags, entries) is None:
            return at
        if len(entries) == 1:
            out.append(b":%d\r\n" % first)
            return at + 1
        out.append(b"".join([b":%d\r\n" % each for each in range(first, stream.next)]))
        return at + len(entries)

    def xadd(self, commands: Commands, at: int, out: list[bytes]) -> int:
        arguments = commands[at]
        if len(arguments) < 5:
            return at
        name, key = arguments[0], arguments[1]
        slot = slot_of(key)
        stream = self._stream(slot, key)
        if stream is None:
            return at
        tags: list[bytes] = []
        entries: list[bytes] = []
        run_kind = -1
        room = _BYTES_MAX
        for arguments in islice(commands, at, at + _ENTRIES_MAX):
            count = len(arguments)
            if count < 5 or not count & 1 or arguments[2] != b"*" or arguments[1] != key or arguments[0] != name:
                break
            kind, tag, entry = tagged_of_fields(arguments[3:])
            room -= len(tag) + len(entry)
            if room < 0 or (kind != run_kind and run_kind >= 0):
                break
            run_kind = kind
            tags.append(tag)
            entries.append(entry)
        found = self._append(slot, stream, key, run_kind, tags, entries) if entries else None
        if found is None:
            return at
        ms, seq = found
        for each in range(seq, seq + len(entries)):
            text = b"%d-%d" % (ms, each)
            out.append(b"$%d\r\n%b\r\n" % (len(text), text))
        return at + len(entries)

    def _stream(self, slot: int, key: bytes) -> Stream | None:
        """The stream of a key, if entries can be appended just like that."""
        database = self._database
        bucket = database.slots[slot]
        found = None if bucket is None else bucket.get(key)
        if type(found) is not Stream or self._writer.refusal is not None or key in database.expiries:
            return None
        return found

    def _append(
        self, slot: int, stream: Stream, key: bytes, kind: int, tags: list[bytes], entries: list[bytes]
    ) -> tuple[int, int] | None:
        """Append entries as one transaction; the id of the first, or None if there is none left."""
        try:
            ms, seq = next_id(stream, self._store.now_ms(), len(entries))
        except CommandError:
            return None
        payload = encode_append(key, (stream.next, ms, seq), kind, tags, entries)
        database = self._database
        if database.observer is not None or database.waiting:
            database.change(key)
        stream.append(ms, seq, kind, tags, entries)
        self._writer.append_next(self._store.owners[slot], APPEND, payload, self._number)
        return ms, seq
