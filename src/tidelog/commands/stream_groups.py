"""Groups for T commands: what a reader is given next, TACK and TGROUP."""

from __future__ import annotations

import re
from typing import Any, Final

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer, positive, syntax_error
from tidelog.commands.streams import find_stream
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, write
from tidelog.errors import CommandError
from tidelog.store.dead_letters import GivingUp
from tidelog.store.transaction import Transaction
from tidelog.streams.cold import OPENED
from tidelog.streams.dump import group_set
from tidelog.streams.group import NO_CONSUMER, Group
from tidelog.streams.node import Rows
from tidelog.streams.operations import Deliver, PendingItem, acks, delivers, pends
from tidelog.streams.progress import entries_read_after, next_rows, room_for_pending
from tidelog.streams.stream import Stream

_RANGE: Final = re.compile(rb"([0-9]{1,19})-([0-9]{1,19})")


class GroupRead:
    """One read of a group: what is given out, and the operations that say so."""

    def __init__(
        self, transaction: Transaction, key: bytes, name: bytes, stream: Stream | None, *, is_new: bool = False
    ) -> None:
        self._transaction = transaction
        self._key = key
        self._name = name
        self._stream = stream if stream is not None else Stream()
        self.operations: list[Any] = []
        self.rows: list[Rows] = []
        """What is given out, in order."""
        group = self._stream.groups.get(name)
        if group is None:
            group = _new_group(self._stream, is_new=is_new)
            self.operations.append(group_set(key, name, group))
        self._group = group
        self._giving_up = GivingUp(key, name, self._stream, group)

    def take(self, count: int, retry: tuple[int, int] | None) -> None:
        """Give out up to so many entries; `retry`: they have to be acknowledged."""
        count = min(count, limits.READ_ENTRIES_MAX)
        expired = self._group.expired(self._transaction.now_ms)
        self._giving_up.add_all(expired)
        left = count - self._redeliver(count, retry)
        gone = len(self._giving_up.offsets.keys() | expired)
        left = min(left, max(room_for_pending(self._group) + gone, 0))
        if left:
            self._deliver_new(left, retry)

    def _redeliver(self, count: int, retry: tuple[int, int] | None) -> int:
        """Give out what is due again, give up what was delivered too often; returns how many were given out.

        In order of delivery, up to the first that is not due.
        """
        now_ms, stream, group = self._transaction.now_ms, self._stream, self._group
        again: list[PendingItem] = []
        if OPENED.fetches:
            stream.require_offsets(self._due(count))
        for offset, pending in group.due.items():
            if len(again) >= count or pending.retry_ms > now_ms or not self._giving_up.has_room:
                break
            if pending.has_expired(now_ms):
                continue
            if 0 < group.deliveries_max <= pending.deliveries:
                self._giving_up.add(offset)
                continue
            self.rows.append(stream.read(offset, 1, offset))
            after_ms = retry[0] if retry is not None else pending.retry_after_ms
            again.append((offset, pending.id, now_ms, pending.deliveries + 1, after_ms, pending.expire_ms))
        self.operations += self._giving_up.operations(self._transaction)
        self.operations += pends(self._key, self._name, NO_CONSUMER, again)
        return len(again)

    def _due(self, count: int) -> list[int]:
        """The entries that are due again, up to so many."""
        now_ms = self._transaction.now_ms
        found: list[int] = []
        for offset, pending in self._group.due.items():
            if len(found) >= count or pending.retry_ms > now_ms:
                break
            if not pending.has_expired(now_ms):
                found.append(offset)
        return found

    def _deliver_new(self, count: int, retry: tuple[int, int] | None) -> None:
        rows = next_rows(self._stream, self._group, count)
        if not rows.entries:
            return
        self.rows.append(rows)
        now_ms = self._transaction.now_ms
        retry_ms, expire_after_ms = retry if retry is not None else (0, 0)
        ids = rows.ids
        self.operations += delivers(
            Deliver(
                self._key,
                self._name,
                NO_CONSUMER,
                now_ms,
                retry_ms,
                min(now_ms + expire_after_ms, I64_MAX) if expire_after_ms else 0,
                rows.offsets[-1],
                ids[-1],
                entries_read_after(self._stream, self._group, ids),
                retry is not None,
                rows.offsets,
                ids if retry is not None else (),
            )
        )

    def next_due_ms(self) -> int:
        """When something of the group becomes due by itself, after this read; 0: never."""
        group, given_up = self._group, self._giving_up.offsets
        retry_ms = next((each.retry_ms for offset, each in group.due.items() if offset not in given_up), 0)
        expire_ms = 0
        if group.expiries is not None:
            expire_ms = group.expiries.first_after_ms(self._transaction.now_ms, group.pending)
        return min(retry_ms, expire_ms) if retry_ms and expire_ms else retry_ms or expire_ms


def _new_group(stream: Stream, *, is_new: bool) -> Group:
    if is_new:
        return Group(stream.last, stream.last_id, stream.entries_added)
    return Group(stream.first - 1, 0, 0 if stream.first == 1 and not stream.added_beside else -1)


def tack(transaction: Transaction, arguments: Arguments) -> Decision:
    spans = [_span(word) for word in arguments[3:]]
    stream = find_stream(transaction, arguments[1])
    group = stream.groups.get(arguments[2]) if stream is not None else None
    if group is None:
        return 0, []
    acknowledged: set[int] = set()
    for first, last in spans:
        if last - first < len(group.pending):
            acknowledged.update(offset for offset in range(first, last + 1) if offset in group.pending)
        else:
            acknowledged.update(offset for offset in group.pending if first <= offset <= last)
    acknowledged.difference_update(group.expired(transaction.now_ms))
    return len(acknowledged), acks(arguments[1], arguments[2], sorted(acknowledged))


def _span(word: bytes) -> tuple[int, int]:
    """An offset, or two with a dash between them; both are included."""
    found = _RANGE.fullmatch(word)
    if found is not None:
        first, last = int(found[1]), int(found[2])
        if first > last:
            raise CommandError("ERR the start of a range is after its end")
        return first, last
    offset = integer(word, "ERR an offset is not an integer or out of range")
    if offset < 0:
        raise CommandError("ERR an offset must not be negative")
    return offset, offset


def tgroup(transaction: Transaction, arguments: Arguments) -> Decision:
    key, name = arguments[1], arguments[2]
    options: dict[bytes, Any] = {}
    at = 3
    while at < len(arguments):
        option = arguments[at].upper()
        if at + 1 >= len(arguments) or option in options:
            raise syntax_error()
        word = arguments[at + 1]
        if option == b"MAXPENDING" or option == b"MAXDELIVERIES":
            options[option] = positive(word, f"ERR {option.decode()} must be at least 1")
        elif option == b"START":
            options[option] = positive(word, "ERR START must be at least 1")
        elif option == b"DEADLETTER":
            if not word:
                raise CommandError("ERR DEADLETTER takes the key of a stream")
            options[option] = word
        else:
            raise syntax_error()
        at += 2
    if (b"DEADLETTER" in options) != (b"MAXDELIVERIES" in options):
        raise CommandError("ERR DEADLETTER and MAXDELIVERIES go together")
    if options.get(b"DEADLETTER") == key:
        raise CommandError("ERR a stream cannot be its own dead-letter stream")
    if b"DEADLETTER" in options:
        find_stream(transaction, options[b"DEADLETTER"])
    stream = find_stream(transaction, key) or Stream()
    group = stream.groups.get(name) or _new_group(stream, is_new=False)
    made = group_set(key, name, group)
    if b"START" in options:
        start = options[b"START"]
        made = made._replace(last_offset=start - 1, last_id=0, entries_read=-1)
    made = made._replace(
        pending_max=options.get(b"MAXPENDING", group.pending_max),
        dead_letter=options.get(b"DEADLETTER", group.dead_letter),
        deliveries_max=options.get(b"MAXDELIVERIES", group.deliveries_max),
    )
    return "OK", [made]


COMMANDS: list[Command] = [
    write(STREAM, "TACK", -4, tack, ONE_KEY, "fast", summary="acknowledge entries for a group"),
    write(STREAM, "TGROUP", -3, tgroup, ONE_KEY, "denyoom", summary="make a group, or change its limits"),
]
