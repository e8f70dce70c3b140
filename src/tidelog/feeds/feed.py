"""One feed: what it asked for, how far it is, and its events that are not sent yet.

    scanning --all slots read--> behind --nothing more is visible--> steady --its reader is slow--> behind
    (INITIAL)                    reads the journal                   gets what becomes visible

`position` is a ts: everything of the feed at or below it has been made into events. Only whole transactions move it.

A transaction may be larger than what a reader can be sent at once, so a feed can be inside one: some of its events were
made, and others will be. The events of a transaction always come in the same order. So a feed that leaves the steady
ones inside a transaction counts what it has made of it, and skips as many when it reads the transaction again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from tidelog import limits
from tidelog.feeds.event import (
    bulk_head,
    encode_change,
    encode_checkpoint,
    encode_commit,
    encode_delete_range,
    encode_steady,
    string_frame,
)
from tidelog.feeds.span import EVERYTHING, Interests, Span
from tidelog.ids import U64_MAX, ShardId, Ts
from tidelog.store.slots import slot_of
from tidelog.types.change import Change, LargeString, Pieces

_NOT_SCANNED: Final = U64_MAX


class State(Enum):
    """How a feed gets its events."""

    SCANNING = "initial"
    BEHIND = "catch-up"
    STEADY = "steady"


@dataclass(frozen=True, slots=True)
class ChangeFeedRequest:
    """What CHANGEFEED asked for."""

    spans: Sequence[Span]
    database: int = 0
    name: str | None = None
    shard: ShardId | None = None
    since: Ts | None = None
    epoch: int | None = None
    seen: Ts | None = None
    is_initial: bool = False
    until: Ts | None = None
    checkpoint_ms: int | None = None
    """None: as often as the server does by itself."""
    has_commits: bool = False
    has_groups: bool = False
    has_expiry: bool = False
    has_one_checkpoint: bool = False
    """One checkpoint for all spans, not one for each."""


class ChangeFeed:
    """One feed. Events gather in `out` until `take` is called."""

    def __init__(self, request: ChangeFeedRequest, protocol: int, position: Ts) -> None:
        self.request = request
        self.shard = request.shard
        """The only one it watches; None: all."""
        self.protocol = protocol
        self.position = position
        self.state = State.SCANNING if request.is_initial else State.BEHIND
        self.is_done = False
        """UNTIL was reached: nothing follows."""
        self.event_count = 0
        self.checkpoint_ts = Ts(0)
        """The last one that was sent."""
        self.out: Pieces = []
        """Events, or pieces of them."""
        self.out_bytes = 0
        """What they take of the memory."""
        self._large_count = 0
        """How many of them are large strings."""
        self.is_cut = False
        """What was taken last ends inside an event."""
        self._has_been_steady = False
        self._until = request.until
        self._open_ts = Ts(0)
        """The transaction that events were added of last ..."""
        self._open_count = 0
        """... and `event_count` before its first."""
        self.is_inside = False
        """More events of it may follow."""
        self._skipped_ts = Ts(0)
        self._skip_count = 0
        """How many events of a transaction were made already, and are passed over when it is read again."""
        self._string_ts = Ts(0)
        self._string_head = self._string_middle = b""
        """What stands around the keys of strings of this ts."""
        self._interests = Interests()
        self._interests.add(self, request.spans)
        self._scanned: list[int] | None = None
        """For a feed that began with the values of now, until it has come past them: when each slot was read."""
        self._ranges_told: list[tuple[Ts, Span]] = []
        """Ranges that went while slots were read, until their records are met."""
        self._is_scan_whole = True
        """False: FLUSHDB ended it, and the feed waits for that in the journal."""
        self.scanned_ts = Ts(0)
        """The newest of them: nothing is sent before that is visible, and no checkpoint below it."""

    @property
    def interests(self) -> Interests:
        """Of this feed alone."""
        return self._interests

    @property
    def is_at_end(self) -> bool:
        """Everything up to UNTIL was added."""
        return self.request.until is not None and self.position >= self.request.until

    def take(self) -> bytes | LargeString:
        """What there is to send next: everything, or all before a large string, or that."""
        out = self.out
        if not self._large_count:
            self.is_cut = False
            data = b"".join(cast("list[bytes]", out))
            out.clear()
            self.out_bytes = 0
            return data
        self.is_cut = True
        at = 0
        first = out[0]
        while isinstance(first, bytes):
            at += 1
            first = out[at]
        if not at:
            self._large_count -= 1
            self.out_bytes -= first.memory_bytes
            del out[0]
            return first
        data = b"".join(cast("list[bytes]", out[:at]))
        del out[:at]
        self.out_bytes -= len(data)
        return data

    def _add(self, event: bytes | Pieces) -> None:
        if isinstance(event, bytes):
            self.out.append(event)
            self.out_bytes += len(event)
        else:
            for piece in event:
                if isinstance(piece, bytes):
                    self.out.append(piece)
                    self.out_bytes += len(piece)
                else:
                    self._add_large(piece)
        self.event_count += 1

    def _add_large(self, string: LargeString) -> None:
        self.out.append(string)
        self.out_bytes += string.memory_bytes
        self._large_count += 1

    def _begin(self, ts: Ts) -> None:
        """An event of a transaction follows."""
        if ts != self._open_ts:
            self._open_ts, self._open_count = ts, self.event_count
        self.is_inside = True

    # --- changes ------------------------------------------------------------------------------------------------

    def is_due(self, ts: Ts, key: bytes) -> bool:
        """Whether the feed is to have a change of a key that it watches; asked once for each change. Hot."""
        if ts <= self.position or (self._until is not None and ts > self._until):
            return False
        if self._scanned is not None and (
            ts <= self._scanned[slot_of(key)] or any(ts <= told and gone.has(key) for told, gone in self._ranges_told)
        ):
            return False
        return not (self._skip_count and self._skips(ts, 1))

    def add_string(self, ts: Ts, key: bytes, value: bytes) -> None:
        """A string that is due. Hot: it is by far the most that feeds are told, so nothing is made for it alone."""
        if ts != self._string_ts:
            self._begin_strings(ts)
        if len(value) > limits.FEED_PIECE_BYTES:
            self.add_large_string(ts, key, LargeString(value))
            return
        out, key_head, value_head = self.out, bulk_head(len(key)), bulk_head(len(value))
        out.append(self._string_head)
        out.append(key_head)
        out.append(key)
        out.append(self._string_middle)
        out.append(value_head)
        out.append(value)
        out.append(b"\r\n")
        self.out_bytes += (
            len(self._string_head)
            + len(self._string_middle)
            + len(key_head)
            + len(key)
            + len(value_head)
            + len(value)
            + 2
        )
        self.event_count += 1

    def add_large_string(self, ts: Ts, key: bytes, value: LargeString) -> None:
        """The same for one that is sent in pieces."""
        if ts != self._string_ts:
            self._begin_strings(ts)
        self._add([self._string_head, bulk_head(len(key)), key, self._string_middle, value])

    def _begin_strings(self, ts: Ts) -> None:
        self._string_head, self._string_middle = string_frame(self.protocol, ts)
        self._string_ts = ts
        self._begin(ts)

    def add(self, ts: Ts, event: bytes | Pieces) -> None:
        """A change that is due, encoded for its protocol. Hot."""
        self._begin(ts)
        self._add(event)

    def add_flush(self, ts: Ts) -> None:
        """Every key is gone: one event for each span, in place of all that was not read yet."""
        is_after_until = self.request.until is not None and ts > self.request.until
        if ts <= self.position or (is_after_until and self._is_scan_whole):
            return
        if not self._is_scan_whole:
            self.scanned_ts = max(self.scanned_ts, ts)  # it is part of what was read, which may be newer than UNTIL
        self._scanned, self._is_scan_whole = None, True
        if self._skip_count and self._skips(ts, len(self.request.spans)):
            return
        self._begin(ts)
        for span in self.request.spans:
            self._add(encode_delete_range(self.protocol, ts, span))

    def add_range(self, ts: Ts, gone: Span) -> bool:
        """The keys of a range are gone; false: that is not for this feed, or was told among the values of now."""
        if (ts, gone) in self._ranges_told:
            self._ranges_told.remove((ts, gone))  # what comes from here on is newer
            return False
        is_after_until = self.request.until is not None and ts > self.request.until
        if ts <= self.position or is_after_until:
            return False  # it was told, or is not wanted
        return self._tell_range(ts, gone)

    def add_initial_range(self, ts: Ts, gone: Span) -> None:
        """The same while values of now are read: what was read so far is of before, all else will be of after it.

        The record is still to come, and so are changes from before it that it has made void.
        """
        self._ranges_told.append((ts, gone))
        self.scanned_ts = max(self.scanned_ts, ts)
        self._tell_range(ts, gone)

    def _tell_range(self, ts: Ts, gone: Span) -> bool:
        both = [found for span in self.request.spans if (found := span.within(gone)) is not None]
        if both and not (self._skip_count and self._skips(ts, len(both))):
            self._begin(ts)
            for span in both:
                self._add(encode_delete_range(self.protocol, ts, span))
        return bool(both)

    def end_transaction(self, ts: Ts) -> None:
        """Everything of a transaction was added."""
        self.is_inside = False
        if self.request.has_commits and ts and self._open_ts == ts:
            self._open_ts = Ts(0)
            self._add(encode_commit(self.protocol, ts))

    def will_read_again(self) -> None:
        """The transaction that the feed is inside of will be handed to it once more, from its beginning."""
        if self.is_inside:
            self._skipped_ts, self._skip_count = self._open_ts, self.event_count - self._open_count

    def _skips(self, ts: Ts, count: int) -> bool:
        """Whether the next events were made before."""
        if ts != self._skipped_ts:
            return False
        self._skip_count -= count
        return True

    # --- the values of a moment ---------------------------------------------------------------------------------

    def begin_scan(self, slot_count: int) -> None:
        self._scanned = [_NOT_SCANNED] * slot_count

    def scanned(self, first: int, end: int, ts: Ts) -> None:
        """Slots were read as they were at `ts`."""
        assert self._scanned is not None
        self._scanned[first:end] = [ts] * (end - first)
        self.scanned_ts = max(self.scanned_ts, ts)

    def end_scan(self, *, is_whole: bool) -> None:
        self._is_scan_whole = is_whole
        self.state = State.BEHIND

    def add_initial(self, ts: Ts, change: Change) -> None:
        self._begin(ts)
        self._add(encode_change(self.protocol, ts, change))

    # --- moving on ----------------------------------------------------------------------------------------------

    def move_to(self, ts: Ts) -> None:
        """Everything at or below `ts` was added."""
        self.position = max(self.position, ts)
        if self._is_scan_whole and self.position >= self.scanned_ts:
            self._scanned = None  # every later change is newer than what was read

    def become_steady(self, ts: Ts) -> None:
        self.state = State.STEADY
        if not self._has_been_steady:
            self._has_been_steady = True
            self._add(encode_steady(self.protocol, ts))

    def add_checkpoint(self, ts: Ts, epoch: int, seen: Ts) -> None:
        """Nothing at or below `ts` will follow."""
        if self._scanned is not None:
            return  # what was read is newer
        until = self.request.until
        if until is not None and ts >= until:
            ts = max(until, self.scanned_ts)  # initial values may be newer
            self.is_done = True
        self.checkpoint_ts = ts
        for span in [EVERYTHING] if self.request.has_one_checkpoint else self.request.spans:
            self._add(encode_checkpoint(self.protocol, ts, span, epoch, min(seen, ts)))
