"""Where messages come from: JSON lines, or another stream read as a member of a consumer group.

Both give out batches of whatever has arrived. Lines that trickle in from a pipe do not wait for more, and a file is
written in chunks that are worth a transaction.

A line that is not a message ends the input with a `BadMessage` that names it. The messages before it are given out
first, so they are written. Whoever has the file can mend it and begin again: what was written is a duplicate then.

An entry that is not a message is handed out beside the others, with the reason, for the dead letters
(`Writer.set_aside`). A stream has no end, and nobody can mend an entry: what comes after it must not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import redis

from tidelog import limits
from tidelog.days.exchange import Entry, RedisClient, bytes_server, entries_in, entries_of
from tidelog.days.message import Message, checked, message_of_json, parse_id
from tidelog.errors import BadMessage

_TIME_DIGITS_MAX: Final = 20

# --- lines ----------------------------------------------------------------------------------------------------------


class LineSource(Protocol):
    """A file of bytes, or a pipe."""

    def read1(self, size: int, /) -> bytes:
        """The bytes that have arrived, at least one; empty at the end."""


def json_lines(source: LineSource) -> Iterator[list[Message]]:
    """The messages of lines; empty lines are passed over."""
    rest = b""
    number = 0
    while data := source.read1(limits.DAYS_INPUT_BYTES_AT_ONCE):
        *lines, rest = (rest + data).split(b"\n")
        yield from _messages(lines, number)
        number += len(lines)
        if len(rest) > limits.DAYS_LINE_BYTES_MAX:
            raise BadMessage(f"line {number + 1}: it has more than {limits.DAYS_LINE_BYTES_MAX} bytes")
    yield from _messages([rest], number)


def _messages(lines: Sequence[bytes], before: int) -> Iterator[list[Message]]:
    messages: list[Message] = []
    for number, line in enumerate(lines, start=before + 1):
        try:
            if line.strip():
                messages.append(message_of_json(line.decode()))
        except (BadMessage, UnicodeDecodeError) as error:
            if messages:
                yield messages
            reason = error if isinstance(error, BadMessage) else f"not a message: {error}"
            raise BadMessage(f"line {number}: {reason}") from None
    if messages:
        yield messages


# --- another stream ---------------------------------------------------------------------------------------------------


class BadEntry(NamedTuple):
    """An entry that is not a message."""

    stream: bytes
    entry_id: bytes
    values: dict[bytes, bytes]
    reason: str


class StreamDelivery(NamedTuple):
    """Messages, and the entries to acknowledge when they are written, and the bad ones set aside."""

    messages: list[Message]
    entry_ids: list[bytes]
    bad: list[BadEntry]


class StreamInput:
    """Entries of a stream, shared by the consumers of a group.

    An entry has the field `event`. `id` and `timestamp_ms` are the message's; without them, they are the entry's own id
    and its <ms>.

    First come those that this consumer had taken and not acknowledged (it was killed, and started again), then those
    that other consumers left for too long, then new ones. Ids must come in order, so a group has one consumer at a
    time and others in reserve: what one of several holds back while the others go on will be late.
    """

    def __init__(
        self,
        server: RedisClient,
        key: bytes,
        group: str,
        consumer: str,
        *,
        claim_idle_ms: int = limits.DAYS_CLAIM_IDLE_MS,
        count: int = limits.DAYS_PAGE_ENTRIES_MAX,
    ) -> None:
        self._server = bytes_server(server)
        self._key, self._group, self._consumer = key, group, consumer
        self._claim_idle_ms = claim_idle_ms
        self._count = count
        self._own: bytes | None = b"0"
        """Up to where our own unacknowledged entries were read; None: they were all."""
        try:
            server.xgroup_create(key, group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def read(self, wait_s: float = 0.0) -> StreamDelivery:
        """The next ones; none if none came within `wait_s`."""
        if self._own is not None:
            entries = self._read_group(self._own, None)
            self._own = entries[-1][0] if entries else None
            if entries:
                return self._delivery(entries)
        claimed = self._server.execute_command(
            "XAUTOCLAIM", self._key, self._group, self._consumer, self._claim_idle_ms, "0", "COUNT", self._count
        )
        if claimed[1]:
            return self._delivery(entries_in(claimed[1]))
        entries = self._read_group(b">", max(1, int(1000 * wait_s)) if wait_s else None)
        if entries and self._has_earlier(entries[0][0]):
            self._own = b"0"
            return self.read()
        return self._delivery(entries)

    def _has_earlier(self, entry_id: bytes) -> bool:
        """Whether we were given entries before this one that we never saw: a reply that got lost was asked for anew."""
        oldest = self._server.xpending_range(self._key, self._group, "-", "+", 1, consumername=self._consumer)
        return bool(oldest) and parse_id(oldest[0]["message_id"]) < parse_id(entry_id)

    def acknowledge(self, delivery: StreamDelivery) -> None:
        """They are written."""
        if delivery.entry_ids:
            self._server.xack(self._key, self._group, *delivery.entry_ids)

    def _read_group(self, after: bytes, block_ms: int | None) -> list[Entry]:
        reply = self._server.xreadgroup(
            self._group, self._consumer, {self._key: after}, count=self._count, block=block_ms
        )
        return entries_of(reply)

    def _delivery(self, entries: list[Entry]) -> StreamDelivery:
        delivery = StreamDelivery([], [], [])
        for entry_id, values in entries:
            delivery.entry_ids.append(entry_id)
            if values:  # not one that was deleted while it was pending
                try:
                    delivery.messages.append(_message(entry_id, values))
                except (BadMessage, ValueError) as error:
                    delivery.bad.append(BadEntry(self._key, entry_id, values, str(error)))
        return delivery


def _message(entry_id: bytes, values: dict[bytes, bytes]) -> Message:
    if b"event" not in values:
        raise BadMessage("not a message: it has no field event")
    own = parse_id(values.get(b"id", entry_id))
    time = values.get(b"timestamp_ms", b"%d" % own.ms)
    if not (time.isdigit() and len(time) <= _TIME_DIGITS_MAX):
        raise BadMessage(f"timestamp_ms {time[:40]!r} is not a whole number of ms")
    return checked(Message(own, int(time), values[b"event"]))
