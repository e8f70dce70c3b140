"""Groups for T commands: what a reader is given next, TACK and TGROUP."""

from __future__ import annotations

import re
from typing import Any, Final

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer, positive, syntax_error
from tidelog.commands.streams import find_stream, next_id
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, write
from tidelog.errors import CommandError
from tidelog.store.transaction import Transaction
from tidelog.streams.dump import group_set
from tidelog.streams.group import NO_CONSUMER, Group, Pending
from tidelog.streams.node import Rows
from tidelog.streams.operations import Deliver, PendingItem, StreamAppend, acks, pends
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
        self._gone: set[int] = set()
        """Pending entries that this read lets go of."""

    def take(self, count: int, retry: tuple[int, int] | None) -> None:
        """Give out up to so many entries; `retry`: they have to be acknowledged."""
        count = min(count, limits.READ_ENTRIES_MAX)
        left = count - self._redeliver(count, retry)
        left = min(left, max(room_for_pending(self._group) + len(self._gone), 0))
        if left:
            self._deliver_new(left, retry)

    def _redeliver(self, count: int, retry: tuple[int, int] | None) -> int:
        """Give out what is due again, let go of what has expired; returns how many were given out.

        In order of delivery, up to the first that is not due. What was evicted is let go of when it is come across.
        """
        now_ms, stream, group = self._transaction.now_ms, self._stream, self._group
        again: list[PendingItem] = []
        dead: list[Rows] = []
        for offset, pending in group.due.items():
            if len(again) >= count or (pending.due_ms > now_ms and offset >= stream.first):
                break
            rows = stream.read(offset, 1, offset)
            if not rows.entries:
                self._gone.add(offset)
            elif _is_dead(group, pending, now_ms):
                self._gone.add(offset)
                dead.append(rows)
            else:
                self.rows.append(rows)
                after_ms = retry[0] if retry is not None else pending.retry_after_ms
                again.append((offset, pending.id, now_ms, pending.deliveries + 1, after_ms, pending.expire_ms))
        if dead and group.dead_letter not in (b"", self._key):
            self.operations += _dead_letters(self._transaction, group.dead_letter, dead)
        self.operations += acks(self._key, self._name, sorted(self._gone))
        self.operations += pends(self._key, self._name, NO_CONSUMER, again)
        return len(again)

    def _deliver_new(self, count: int, retry: tuple[int, int] | None) -> None:
        rows = next_rows(self._stream, self._group, count)
        if not rows.entries:
            return
        self.rows.append(rows)
        now_ms = self._transaction.now_ms
        retry_ms, expire_after_ms = retry if retry is not None else (0, 0)
        self.operations.append(
            Deliver(
                self._key,
                self._name,
                NO_CONSUMER,
                now_ms,
                retry_ms,
                min(now_ms + expire_after_ms, I64_MAX) if expire_after_ms else 0,
                rows.offsets[-1],
                rows.ids[-1],
                entries_read_after(self._stream, self._group, rows.ids),
                retry is not None,
                rows.offsets,
            )
        )

    def next_due_ms(self) -> int:
        """When something of the group becomes due by itself, after this read; 0: never."""
        return next((each.due_ms for offset, each in self._group.due.items() if offset not in self._gone), 0)


def _is_dead(group: Group, pending: Pending, now_ms: int) -> bool:
    """Whether an entry that is due is not to be delivered again."""
    if pending.expire_ms and pending.expire_ms <= now_ms:
        return True
    return bool(group.deliveries_max) and pending.deliveries >= group.deliveries_max


def _new_group(stream: Stream, *, is_new: bool) -> Group:
    if is_new:
        return Group(stream.last, stream.last_id, stream.entries_added)
    return Group(stream.first - 1, 0, 0 if stream.first == 1 and not stream.added_beside else -1)


def _dead_letters(transaction: Transaction, key: bytes, dead: list[Rows]) -> list[StreamAppend]:
    """Append what nobody acknowledged to the dead-letter stream; an error rather than a loss if that is none."""
    try:
        stream = find_stream(transaction, key)
    except CommandError as error:
        raise CommandError(f"{error}: the dead-letter stream") from None
    ms, seq = next_id(stream, transaction.now_ms, len(dead))
    offset = stream.next if stream is not None else 1
    return [
        StreamAppend(key, offset + at, ms, seq + at, rows.kinds[0], rows.tags, rows.entries)
        for at, rows in enumerate(dead)
    ]


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
    if not acknowledged:
        return 0, []
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
