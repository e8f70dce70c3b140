"""The hot path of streams: runs of `TWRITE key tag entry` and `XADD key * field value ...` on one stream.

They arrived together, so they are one transaction with one record, and get ids of one millisecond that count up. A
`TWRITE key ENTRIES ...` is a transaction by itself. The first entry of a stream, and whatever has another option, takes
the general path.
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.commands.stream_replies import tagged_of_fields
from tidelog.engine.hot_commands import Commands, HotCommands
from tidelog.errors import CommandError
from tidelog.journal.new_record import NewRecord
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.streams.effects import APPEND
from tidelog.streams.node import TAGGED
from tidelog.streams.operations import record_ends
from tidelog.streams.payload import encode_append
from tidelog.streams.progress import next_id
from tidelog.streams.stream import Stream

_ENTRIES_MAX: Final = limits.RECORD_MEMBERS_MAX
_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES
_COMMAND_BYTES_MAX: Final = limits.NODE_BYTES_MAX
"""The most bytes of entries in one command; the general path checks larger ones."""
_BATCH_BYTES_FULL: Final = limits.BATCH_BYTES_FULL
_ENTRIES: Final = frozenset([b"ENTRIES", b"entries"])


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
        command = commands[at]
        if len(command) != 4:
            return self._twrite_entries(commands, at, out)
        name, key = command[0], command[1]
        slot = slot_of(key)
        stream = self._stream(slot, key)
        if stream is None:
            return at
        tags: list[bytes] = []
        entries: list[bytes] = []
        room, begun, end = _BYTES_MAX, at, min(len(commands), at + _ENTRIES_MAX)
        while at < end:
            command = commands[at]
            if len(command) != 4 or command[1] != key or command[0] != name:
                break
            tag, entry = command[2], command[3]
            room -= len(tag) + len(entry)
            if room < 0:
                break
            tags.append(tag)
            entries.append(entry)
            at += 1
        first = stream.next
        if not entries or not self._append(slot, stream, key, TAGGED, tags, entries):
            return begun
        out += [b":%d\r\n" % offset for offset in range(first, first + len(entries))]
        return at

    def _twrite_entries(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """One `TWRITE key ENTRIES tag entry ...`: it is a transaction by itself."""
        command = commands[at]
        count = len(command)
        if count < 5 or count % 2 == 0 or command[2] not in _ENTRIES:
            return at
        key = command[1]
        slot = slot_of(key)
        stream = self._stream(slot, key)
        # A batch that is full is written first: the general path does that.
        if stream is None or self._writer.batch_bytes >= _BATCH_BYTES_FULL:
            return at
        tags: list[bytes] = []
        entries: list[bytes] = []
        size = 0
        for index in range(3, count, 2):
            tag, entry = command[index], command[index + 1]
            size += len(tag) + len(entry)
            tags.append(tag)
            entries.append(entry)
        first = stream.next
        if size > _COMMAND_BYTES_MAX or not self._append(slot, stream, key, TAGGED, tags, entries):
            return at
        out.append(b":%d\r\n" % first)
        return at + 1

    def xadd(self, commands: Commands, at: int, out: list[bytes]) -> int:
        command = commands[at]
        if len(command) < 5:
            return at
        name, key = command[0], command[1]
        slot = slot_of(key)
        stream = self._stream(slot, key)
        if stream is None:
            return at
        tags: list[bytes] = []
        entries: list[bytes] = []
        run_kind = -1
        room, begun, end = _BYTES_MAX, at, min(len(commands), at + _ENTRIES_MAX)
        while at < end:
            command = commands[at]
            count = len(command)
            if count < 5 or count % 2 == 0 or command[2] != b"*" or command[1] != key or command[0] != name:
                break
            kind, tag, entry = tagged_of_fields(command, 3)
            room -= len(tag) + len(entry)
            if room < 0 or (kind != run_kind and run_kind >= 0):
                break
            run_kind = kind
            tags.append(tag)
            entries.append(entry)
            at += 1
        if not entries or not self._append(slot, stream, key, run_kind, tags, entries):
            return begun
        text = b"%d-" % stream.last_ms
        for seq in range(stream.last_seq + 1 - len(entries), stream.last_seq + 1):
            digits = b"%d" % seq
            out.append(b"$%d\r\n%b%b\r\n" % (len(text) + len(digits), text, digits))
        return at

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
    ) -> bool:
        """Append entries as one transaction; false if there is no id left for them."""
        try:
            ms, seq = next_id(stream, self._store.now_ms(), len(entries))
        except CommandError:
            return False
        payloads = _payloads(key, (stream.next, ms, seq), kind, tags, entries)
        self._database.touch(key)
        stream.append(ms, seq, kind, tags, entries)
        shard = self._store.owners[slot]
        if len(payloads) == 1:
            self._writer.append_next(shard, APPEND, payloads[0], self._number)
        else:
            records = [NewRecord(shard, APPEND, payload, None, self._number) for payload in payloads]
            self._writer.append(self._store.journal.hlc.following(), records)
        return True


def _payloads(
    key: bytes, place: tuple[int, int, int], kind: int, tags: list[bytes], entries: list[bytes]
) -> list[bytes]:
    """The payloads of the records of an append."""
    ends = record_ends(key, tags, entries)
    if len(ends) == 1:
        return [encode_append(key, place, kind, tags, entries)]
    found: list[bytes] = []
    start = 0
    for end in ends:
        moved = (place[0] + start, place[1], place[2] + start)
        found.append(encode_append(key, moved, kind, tags[start:end], entries[start:end]))
        start = end
    return found
