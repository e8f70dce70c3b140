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
hand), it is an error all the same, and so is a stream that vanishes while it is read and the index still has it (it was
deleted, or given a time to live). After the error, reading goes on with the first day there is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date
from enum import Enum
from typing import Final

from tidelog import limits
from tidelog.days.batch import unpack_entry
from tidelog.days.exchange import Entry, RedisClient, bytes_server, entries_in, entries_of, look
from tidelog.days.index import Index, last_id, read_index
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
        index_s: float | None = None,
        index_same_day_s: float | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = bytes_server(server)
        self._jobset = jobset
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
        while self._ahead or self._fetched < last:
            if not self._ahead:
                self._take(self._page())
                if not self._ahead:
                    return
            if self._ahead[0].id > last:
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

    def _page(self) -> list[Message]:
        """The next messages that there are; none at the end."""
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
            if not exists and self._existing == source.key:
                self._existing = None
                raise self._day_gone([source], self._index)
            self._existing = source.key if exists else None
            messages = self._messages(source, entries_in(entries))
            if messages:
                self._tail = None
                return messages
            if not source.is_hot and len(self._index.of(source.day)) > 1:
                self._past_compressed = True
                continue
            following = self._index.after(source.day)
            if following is None:
                self._tail, self._is_begun = source, True
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
        if is_noted and index.expired is not None and index.expired > self._fetched:
            raise self._day_gone(gone, index)
        if gone and not is_noted:
            raise self._day_gone(gone, index)
        return index

    def _day_gone(self, gone: list[DayStream], index: Index) -> DayGone:
        key = shown(gone[0].key) if gone else f"a day after {self._fetched}"
        oldest = shown(index.streams[0].key) if index.streams else None
        goes_on = f"the oldest there is now is {oldest}" if oldest else "there is none now"
        self._tail = None
        return DayGone(
            f"{key} was removed before everything after {self._fetched} was read; {goes_on}", key=key, oldest=oldest
        )

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
        reply = self._server.xread({self._tail.key: str(self._fetched)}, count=self._page_entries, block=block_ms)
        self._take(self._messages(self._tail, entries_of(reply)))

    def _hot_entries(self, tail: DayStream) -> list[Message]:
        entries = self._server.xrange(tail.key, f"({self._fetched}", "+", count=self._page_entries)
        return self._messages(tail, entries)
