"""The hot path of readers of one stream: new entries, for a group or without one, and acknowledgements.

    XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] STREAMS key >
    TREAD key offset n
    TREAD key offset n GROUP group [RETRY ms ms] [BLOCK ms]
    XREAD [COUNT n] [BLOCK ms] STREAMS key id
    XACK key group id ...
    TACK key group offset ... | first-last ...

Each that changes something is a transaction of its own with one record. A reader that gets nothing, because nothing is
new, an entry is due again, or the group has no room, takes the general path, which knows how to wait. So does whatever
meets a pending entry that has expired, or a cold node that is not open, which is found out before anything is changed.

A delivery concerns other readers only if it will be due again, and an acknowledgement only if the group had no room.
Only then are the clients that wait for the key looked at.
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.commands.arguments import I64_MAX
from tidelog.commands.stream_ids import LARGEST_ID, plain_id
from tidelog.commands.stream_replies import array_for_t, array_for_x
from tidelog.engine.hot_commands import Commands, HotCommands
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.streams.cold import OPENED, NodesAway
from tidelog.streams.group import NO_CONSUMER, Group
from tidelog.streams.group_records import ACK, DELIVER, encode_ack, encode_delivery
from tidelog.streams.payload import id_runs
from tidelog.streams.progress import entries_read_after, next_rows, room_for_pending, top_id
from tidelog.streams.read_ahead import ReadAhead
from tidelog.streams.rows import Rows
from tidelog.streams.stream import Stream

_COUNT_MAX: Final = limits.RECORD_MEMBERS_MAX
_LATER_ENTRIES_MIN: Final = limits.LATER_ENTRIES_MIN
"""Replies of so many entries are made piece by piece, by the general path."""
_DIGITS_MAX: Final = 18
_ZERO: Final = ord("0")
_DASH: Final = b"-"
_GROUP: Final = frozenset([b"GROUP", b"group"])
_COUNT: Final = frozenset([b"COUNT", b"count"])
_BLOCK: Final = frozenset([b"BLOCK", b"block"])
_RETRY: Final = frozenset([b"RETRY", b"retry"])
_STREAMS: Final = frozenset([b"STREAMS", b"streams"])
_ONE_KEY_2: Final = b"*1\r\n*2\r\n$%d\r\n%b\r\n*%d\r\n%b"
_ONE_KEY_3: Final = b"%%1\r\n$%d\r\n%b\r\n*%d\r\n%b"


class HotGroups:
    """The hot commands of readers on one database, for one version of the protocol."""

    def __init__(self, store: Store, number: int, protocol: int) -> None:
        self._store = store
        self._number = number
        self._database = store.database(number)
        self._writer = store.journal.writer
        self._ahead = ReadAhead()
        self._one_key = _ONE_KEY_2 if protocol == 2 else _ONE_KEY_3

    def reads(self) -> HotCommands:
        return {b"XREAD": self.xread, b"TREAD": self.tread_plain}

    def writes(self) -> HotCommands:
        return {b"XREADGROUP": self.xreadgroup, b"TREAD": self.tread, b"XACK": self.xack, b"TACK": self.tack}

    # --- reading ------------------------------------------------------------------------------------------------

    def xread(self, commands: Commands, at: int, out: list[bytes]) -> int:
        OPENED.fetches = True
        try:
            return self._xread(commands, at, out)
        except NodesAway:
            return at
        finally:
            OPENED.fetches = False

    def _xread(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        if len(words) < 4 or words[-3] not in _STREAMS:
            return at
        count, key = _count_of(words, 1), words[-2]
        after = plain_id(words[-1])
        stream = self._stream(slot_of(key), key)
        if not count or after < 0 or stream is None or top_id(stream) <= after:
            return at
        rows = stream.read_ids(after + 1, LARGEST_ID, count)
        if len(rows.entries) > _COUNT_MAX:
            return at
        out.append(self._one_key % (len(key), key, len(rows.entries), array_for_x(rows)))
        return at + 1

    def tread_plain(self, commands: Commands, at: int, out: list[bytes]) -> int:
        """TREAD without a group."""
        OPENED.fetches = True
        try:
            return self._tread_plain(commands, at, out) if len(commands[at]) == 4 else at
        except NodesAway:
            return at
        finally:
            OPENED.fetches = False

    def _tread_plain(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        key, offset, count = words[1], _number(words[2]), _number(words[3])
        stream = self._stream(slot_of(key), key)
        if stream is None or not 0 < count < _LATER_ENTRIES_MIN or not stream.first <= offset < stream.next:
            return at
        rows = stream.read(offset, count)
        if not rows.entries:
            return at
        out.append(b"*%d\r\n%b" % (len(rows.entries), array_for_t(rows)))
        return at + 1

    def xreadgroup(self, commands: Commands, at: int, out: list[bytes]) -> int:
        OPENED.fetches = True
        try:
            return self._xreadgroup(commands, at, out)
        except NodesAway:
            return at
        finally:
            OPENED.fetches = False

    def _xreadgroup(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        if len(words) < 7 or words[-3] not in _STREAMS or words[-1] != b">" or words[1] not in _GROUP:
            return at
        name, consumer, key = words[2], words[3], words[-2]
        count, slot = _count_of(words, 4), slot_of(key)
        stream = self._stream(slot, key)
        group = None if stream is None else stream.groups.get(name)
        if stream is None or group is None or not count or consumer == NO_CONSUMER or self._writer.refusal is not None:
            return at
        if top_id(stream) <= group.last_id:
            return at
        rows = next_rows(stream, group, count, self._ahead)
        ids = rows.ids
        if not 0 < len(ids) <= _COUNT_MAX:
            return at
        read = entries_read_after(stream, group, ids)
        self._database.observe(key)
        times_ms = self._store.now_ms(), 0, 0
        self._deliver(slot, key, name, group, consumer, times_ms, rows, ids, read, True)
        out.append(self._one_key % (len(key), key, len(ids), array_for_x(rows)))
        return at + 1

    def tread(self, commands: Commands, at: int, out: list[bytes]) -> int:
        OPENED.fetches = True
        try:
            return self._tread(commands, at, out)
        except NodesAway:
            return at
        finally:
            OPENED.fetches = False

    def _tread(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        length = len(words)
        if length == 4:
            return self._tread_plain(commands, at, out)
        if length < 6 or words[4] not in _GROUP or self._writer.refusal is not None:
            return at
        name, key, count = words[5], words[1], _number(words[3])
        retry_ms, expire_ms, keeps, place = 0, 0, False, 6
        if length > 8 and words[6] in _RETRY:
            retry_ms, expire_ms, keeps, place = _number(words[7]), _number(words[8]), True, 9
        if place + 2 == length and words[place] in _BLOCK and _number(words[place + 1]) >= 0:
            place += 2
        if place != length or _number(words[2]) < 0 or not 0 < count <= _COUNT_MAX or min(retry_ms, expire_ms) < 0:
            return at
        slot = slot_of(key)
        stream = self._stream(slot, key)
        group = None if stream is None else stream.groups.get(name)
        if stream is None or group is None:
            return at
        now_ms = self._store.now_ms()
        rows = self._new_rows(stream, group, count, now_ms)
        if rows is None:
            return at
        ids = rows.ids
        read = entries_read_after(stream, group, ids)
        database = self._database
        if retry_ms or expire_ms:
            database.touch(key)
        else:
            database.observe(key)
        times_ms = now_ms, retry_ms, min(now_ms + expire_ms, I64_MAX) if expire_ms else 0
        self._deliver(slot, key, name, group, NO_CONSUMER, times_ms, rows, ids, read, keeps)
        out.append(b"*%d\r\n%b" % (len(rows.entries), array_for_t(rows)))
        return at + 1

    def _new_rows(self, stream: Stream, group: Group, count: int, now_ms: int) -> Rows | None:
        """The entries that TREAD gives out next; None: the general path has to decide."""
        for pending in group.due.values():
            if pending.retry_ms <= now_ms:
                return None
            break
        if group.has_expired(now_ms):
            return None
        count = min(count, room_for_pending(group))
        if count <= 0 or group.last_offset + 1 >= stream.next:
            return None
        rows = next_rows(stream, group, count, self._ahead)
        return rows if rows.entries else None

    def _stream(self, slot: int, key: bytes) -> Stream | None:
        """The stream of a key that does not expire."""
        found = self._database.find_at(slot, key)
        return found if isinstance(found, Stream) and key not in self._database.expiries else None

    def _deliver(
        self,
        slot: int,
        key: bytes,
        name: bytes,
        group: Group,
        consumer: bytes,
        times_ms: tuple[int, int, int],
        rows: Rows,
        ids: list[int],
        read: int,
        keeps: bool,
    ) -> None:
        """New entries are a reader's. Nothing here, nor behind it, opens a cold node."""
        offsets = list(rows.offsets)
        pending = id_runs(rows.ms, rows.seqs) if keeps else b""
        payload = encode_delivery(key, name, consumer, times_ms, offsets, ids[-1], read, pending)
        group.deliver(consumer, times_ms, (offsets[-1], ids[-1], read), offsets, ids, keeps=keeps)
        if times_ms[2]:
            self._database.wake_at(key, times_ms[2])
        self._writer.append_next(self._store.owners[slot], DELIVER, payload, self._number)

    # --- acknowledging ------------------------------------------------------------------------------------------

    def xack(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        group = self._group_to_ack(words)
        if group is None:
            return at
        known = group.ids.offsets
        offsets: list[int] = []
        for index in range(3, len(words)):
            number = plain_id(words[index])
            if number < 0:
                return at
            offset = known.get(number)
            if offset is not None:
                offsets.append(offset)
        self._acknowledge(words[1], words[2], group, offsets)
        out.append(b":%d\r\n" % len(offsets))
        return at + 1

    def tack(self, commands: Commands, at: int, out: list[bytes]) -> int:
        words = commands[at]
        group = self._group_to_ack(words)
        if group is None:
            return at
        pending = group.pending
        offsets: list[int] = []
        for index in range(3, len(words)):
            start, dash, end = words[index].partition(_DASH)
            first = _number(start)
            last = _number(end) if dash else first
            if first < 0 or not first <= last < first + _COUNT_MAX:
                return at
            offsets += [offset for offset in range(first, last + 1) if offset in pending]
        self._acknowledge(words[1], words[2], group, offsets)
        out.append(b":%d\r\n" % len(offsets))
        return at + 1

    def _group_to_ack(self, words: list[bytes]) -> Group | None:
        """The group of an XACK or TACK, if it is there and can be changed just like that."""
        if not 4 <= len(words) <= _COUNT_MAX or self._writer.refusal is not None:
            return None
        stream = self._stream(slot_of(words[1]), words[1])
        group = None if stream is None else stream.groups.get(words[2])
        if group is not None and group.expiries is not None and group.has_expired(self._store.now_ms()):
            return None
        return group

    def _acknowledge(self, key: bytes, name: bytes, group: Group, offsets: list[int]) -> None:
        """Entries that are pending are no longer. `offsets` is put in order, and has none twice."""
        if not offsets:
            return
        for index in range(1, len(offsets)):
            if offsets[index - 1] >= offsets[index]:
                offsets[:] = sorted(set(offsets))
                break
        database = self._database
        if room_for_pending(group) <= 0:
            database.touch(key)
        else:
            database.observe(key)
        group.acknowledge(offsets)
        self._writer.append_next(self._store.owners[slot_of(key)], ACK, encode_ack(key, name, offsets), self._number)


def _number(word: bytes) -> int:
    """A number that is plainly one; -1: it is not."""
    if word.isdigit() and len(word) <= _DIGITS_MAX and (word[0] != _ZERO or len(word) == 1):
        return int(word)
    return -1


def _count_of(words: list[bytes], at: int) -> int:
    """The COUNT between a place and STREAMS; without one, more than is read here; 0: it is not plain."""
    count, end = _COUNT_MAX + 1, len(words) - 3
    while at + 1 < end:
        number = _number(words[at + 1])
        if words[at] in _COUNT and 0 < number <= _COUNT_MAX:
            count = number
        elif words[at] not in _BLOCK or number < 0:
            return 0
        at += 2
    return count if at == end else 0
