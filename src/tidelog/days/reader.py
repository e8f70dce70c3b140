"""Reads a job set in the order of its ids, from anywhere, over all its days, for as long as its user wants.

A reader begins with the first message there is (BEGINNING), after an id, or with what comes from now on (NOW). An id
that is older than everything there is begins with the first message there is, too.

A page is read in one transaction with the index, so that both are of the same moment. From that follows everything:

    the stream is in the index, the page has messages       they are next
    ... it has none, and a later day has begun               this day is over: nothing is ever appended to it again
    ... it has none, and no later day has begun              the end: wait
    the stream is no longer in the index                     it was compressed, and the compressed one goes on after the
                                                             last id read; or it was removed

While the stream is of the current UTC day, a reader waits for entries of that stream alone; the index is looked into
rarely. On a later day the next stream may come at any moment: it waits for either, and the index is looked into once an
interval, however often `read` is called. A day may have both streams for a moment: the compressed one is read first,
then the rest of the hot one. A compressed stream that the index does not have is half-written and does not count.

A day that was removed with messages this reader had still to read is a `DayGone`. Retention notes the highest id that
it removes, so a reader that had read everything is not bothered; if the note is missing (somebody removed the day by
hand), it is an error all the same. So is a stream that the index has and that cannot be read: it was deleted or given a
time to live, or the key holds another type. It is told when the stream vanishes under the reader, when the reader comes
to the next day, or at the end of `until_now`; until then it may still be written. After the error, reading goes on with
the first day there is. `on_gone` takes the place of the error: it is told, and reading goes on at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date
from enum import Enum
from typing import Final

import redis

from tidelog import limits
from tidelog.days.batch import unpack_entry
from tidelog.days.exchange import Entry, RedisClient, bytes_server, entries_in, entries_of, is_wrong_type, look
from tidelog.days.index import Index, first_id, last_id, read_index
from tidelog.days.jobset import DayStream, JobSet
from tidelog.days.message import ZERO, EventId, Message, day_of, message_of_entry, shown
from tidelog.errors import DayGone


class ReaderStart(Enum):
    """Where a reader begins, if not after an id."""

    BEGINNING = "beginning"
    NOW = "now"


BEGINNING: Final = ReaderStart.BEGINNING
NOW: Final = ReaderStart.NOW


class Reader:
    """One pass over a job set."""

    def __init__(
        self,
        server: RedisClient,
        jobset: JobSet,
        start: ReaderStart | EventId = BEGINNING,
        *,
        on_gone: Callable[[DayGone], object] | None = None,
        index_s: float | None = None,
        index_same_day_s: float | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = bytes_server(server)
        self._jobset = jobset
        self._on_gone = on_gone
        self._index_s = limits.DAYS_INDEX_S if index_s is None else index_s
        self._index_same_day_s = limits.DAYS_INDEX_SAME_DAY_S if index_same_day_s is None else index_same_day_s
        self._wall, self._monotonic, self._sleep = wall, monotonic, sleep

        self._index = read_index(self._server, jobset)
        self._index_at = float("-inf")
        """When the index was looked into last; this once does not count, so that the first read does."""
        self.position: EventId = start if isinstance(start, EventId) else ZERO
        """The id of the last message that was given out: another reader that starts after it goes on from here."""
        if start is NOW:
            self.position = last_id(self._server, self._index) or ZERO
        self._fetched = self.position
        """The id of the last message that was fetched."""
        self._ahead: deque[Message] = deque()
        """Messages between these two."""
        self._day: date | None = self._index.newest if start is NOW else None
        """The day that is being read."""
        self._is_begun = start is NOW
        """From then on, what is removed unread is missed."""
        self._past_compressed = False
        """Of this day, the compressed stream was read to its end."""
        self._tail: DayStream | None = None
        """The stream at whose end there is nothing but waiting."""
        self._existing: bytes | None = None
        """The stream that is being read, once it was seen to exist."""
        self._told_gone = self._index.streams[-1].key if start is NOW and self._index.streams else None
        """The stream that cannot be read, once its reader was told so; from now on, its past is not missed."""
        self._page_entries = limits.DAYS_PAGE_ENTRIES_MAX // 8

    def read(self, count: int = limits.DAYS_PAGE_ENTRIES_MAX, wait_s: float = 0.0) -> list[Message]:
        """Up to `count` messages; none if none came within `wait_s`."""
        deadline = self._monotonic() + wait_s
        while not self._ahead:
            if not self._is_index_fresh():
                self._take(self._page())
            elif self._tail is not None and self._tail.is_hot:
                self._take(self._hot_entries(self._tail))
            left_s = deadline - self._monotonic()
            if self._ahead or left_s <= 0:
                break
            self._wait(left_s)
        return [self._give() for _ in range(min(count, len(self._ahead)))]

    def __iter__(self) -> Iterator[Message]:
        """All messages that there are and that come; it never ends."""
        while True:
            yield from self.read(wait_s=limits.DAYS_BLOCK_S_MAX)

    def until_now(self) -> Iterator[Message]:
        """All messages that there are now."""
        self._index = self._looked(read_index(self._server, self._jobset))
        last = last_id(self._server, self._index) or ZERO
        while True:
            if not self._ahead:
                self._take(self._page(is_until_now=True))
            if not self._ahead or self._ahead[0].id > last:
                return
            yield self._give()

    def _give(self) -> Message:
        message = self._ahead.popleft()
        self.position = message.id
        return message

    def _take(self, messages: list[Message]) -> None:
        if messages:
            self._ahead.extend(messages)
            self._fetched = messages[-1].id
            self._is_begun = True

    # --- pages --------------------------------------------------------------------------------------------------------

    def _page(self, *, is_until_now: bool = False) -> list[Message]:
        """The next messages that there are; none at the end, which nobody waits at if it is until now."""
        while True:
            source = self._source()
            if source is None:
                self._tail = None
                self._index = self._looked(read_index(self._server, self._jobset))
                if self._source() is None:
                    return []
                continue
            exists, entries, members, expired = look(
                self._server,
                ("EXISTS", source.key),
                ("XRANGE", source.key, f"({self._fetched}", "+", "COUNT", self._page_entries if source.is_hot else 1),
                ("SMEMBERS", self._jobset.index),
                ("GET", self._jobset.expired),
            )
            self._index = self._looked(Index(self._jobset, members, expired))
            if source not in self._index.streams:
                self._past_compressed = False
                continue
            self._go_to(source.day)
            following = self._index.after(source.day)
            is_other_type = is_wrong_type(entries)
            is_readable = exists and not is_other_type
            if is_readable:
                self._existing, self._told_gone = source.key, None
                messages = self._messages(source, entries_in(entries))
                if messages:
                    self._tail = None
                    return messages
            elif is_other_type or is_until_now or following or self._existing == source.key:
                self._existing = None
                self._miss(source, "is not a stream" if is_other_type else "was removed, but the index still has it")
            if not source.is_hot and len(self._index.of(source.day)) > 1:
                self._past_compressed = True
                continue
            if following is None:
                self._tail, self._is_begun = source if is_readable or not is_other_type else None, True
                return []
            self._go_to(following)

    def _source(self) -> DayStream | None:
        """The stream to read from: of the day that is being read, or of the first one after it."""
        for stream in self._index.streams:
            if self._day is None or stream.day > self._day:
                return stream
            if stream.day == self._day and not (self._past_compressed and not stream.is_hot):
                return stream
        return None

    def _go_to(self, day: date) -> None:
        if day != self._day:
            self._day, self._past_compressed, self._tail = day, False, None

    def _messages(self, source: DayStream, entries: list[Entry]) -> list[Message]:
        """The messages of a page that were not read yet."""
        if source.is_hot:
            messages = [message_of_entry(source.key, *entry) for entry in entries]
            if messages:
                # So many that the next page has about the bytes that a page should have.
                size_bytes = sum(len(message.event) for message in messages) + 1
                fitting = limits.DAYS_PAGE_BYTES * len(messages) // size_bytes
                self._page_entries = max(1, min(fitting, limits.DAYS_PAGE_ENTRIES_MAX))
            return messages
        fetched = self._fetched
        return [each for entry in entries for each in unpack_entry(source.key, *entry) if each.id > fetched]

    def _looked(self, index: Index) -> Index:
        """Note what the index shows now; `DayGone` if something is gone that was not read."""
        before, self._index, self._index_at = self._index, index, self._monotonic()
        if not self._is_begun:
            return index
        days = {stream.day for stream in index.streams}
        gone = [each for each in before.streams if each.day not in days and (not self._day or each.day >= self._day)]
        is_noted = index.expired is not None and index.expired != before.expired
        is_unread = is_noted and index.expired is not None and index.expired > self._fetched
        if is_unread or (gone and not is_noted):
            key = shown(gone[0].key) if gone else f"a day after {self._fetched}"
            self._tell_gone(key, "was removed", index.streams)
        return index

    def _miss(self, source: DayStream, why: str) -> None:
        """A stream that the index has cannot be read: tell that once, unless all of it was read."""
        later = [stream for stream in self._index.streams if stream.day > source.day]
        # After a swap that was left half done, the compressed stream had all of it.
        is_swapped = source.is_hot and self._past_compressed
        if self._told_gone != source.key and not is_swapped and not self._is_past(later):
            self._told_gone = source.key
            self._tell_gone(shown(source.key), why, later)

    def _is_past(self, later: list[DayStream]) -> bool:
        """Whether the reader is within these streams: it began after an id that one of them has."""
        first = first_id(self._server, later) if self._fetched > ZERO else None
        return first is not None and first <= self._fetched

    def _tell_gone(self, key: str, why: str, left: list[DayStream]) -> None:
        oldest = shown(left[0].key) if left else None
        goes_on = f"the next there is now is {oldest}" if oldest else "there is none after it now"
        self._tail = None
        problem = f"{key} {why}: not everything after {self._fetched} was read; {goes_on}"
        error = DayGone(problem, key=key, oldest=oldest)
        if self._on_gone is None:
            raise error
        self._on_gone(error)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _is_index_fresh(self) -> bool:
        """Whether there is nothing new to expect from the index yet."""
        if self._tail is None and self._source() is not None:
            return False
        is_current = self._tail is not None and self._tail.day >= day_of(int(1000 * self._wall()))
        interval_s = self._index_same_day_s if is_current else self._index_s
        return self._monotonic() - self._index_at < interval_s

    def _wait(self, left_s: float) -> None:
        """Until something comes, for a while."""
        seconds = min(left_s, limits.DAYS_BLOCK_S_MAX, self._index_s)
        if self._tail is None or not self._tail.is_hot:
            self._sleep(seconds)
            return
        block_ms = max(1, int(1000 * seconds))
        tail, after = self._tail, {self._tail.key: str(self._fetched)}
        self._take(
            self._tail_messages(
                tail, lambda: entries_of(self._server.xread(after, count=self._page_entries, block=block_ms))
            )
        )

    def _hot_entries(self, tail: DayStream) -> list[Message]:
        after = f"({self._fetched}"
        return self._tail_messages(tail, lambda: self._server.xrange(tail.key, after, "+", count=self._page_entries))

    def _tail_messages(self, tail: DayStream, ask_entries: Callable[[], list[Entry]]) -> list[Message]:
        """What comes at the end; if the key has another type now, the index is looked into, and the day is told."""
        try:
            return self._messages(tail, ask_entries())
        except redis.ResponseError as error:
            if not is_wrong_type(error):
                raise
            self._tail = None
            return []
