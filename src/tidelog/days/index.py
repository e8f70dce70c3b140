"""The index of a job set: which streams it has, and how far they go.

A key that holds another type than its name says counts as missing, so that it does not keep the rest of the job set
from being read, written and removed. Only without the index itself is there nothing to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

import redis

from tidelog.days.batch import unpack_entry
from tidelog.days.exchange import RedisClient, ask, entries_in, is_wrong_type, look, stream_state
from tidelog.days.jobset import DayStream, JobSet
from tidelog.days.message import EventId, parse_id, shown
from tidelog.errors import FormatError


class Index:
    """The streams of a job set at one moment, from the replies to SMEMBERS of the index and GET of the note."""

    def __init__(
        self,
        jobset: JobSet,
        members: Iterable[bytes] | redis.ResponseError,
        expired: bytes | redis.ResponseError | None,
    ) -> None:
        if isinstance(members, redis.ResponseError):
            raise members
        self.jobset = jobset
        self.streams: list[DayStream] = jobset.streams(members)
        """In the order in which they are read."""
        self.compressed: frozenset[date] = frozenset(stream.day for stream in self.streams if not stream.is_hot)
        """Days that take no more."""
        self.expired: EventId | None = _noted_id(jobset, expired) if isinstance(expired, bytes) else None
        """The highest id that retention has removed."""

    @property
    def newest(self) -> date | None:
        return self.streams[-1].day if self.streams else None

    def of(self, day: date) -> list[DayStream]:
        """The streams of a day: the compressed one first."""
        return [stream for stream in self.streams if stream.day == day]

    def after(self, day: date) -> date | None:
        """The next day that has begun."""
        return next((stream.day for stream in self.streams if stream.day > day), None)


def _noted_id(jobset: JobSet, text: bytes) -> EventId:
    try:
        return parse_id(text)
    except ValueError as error:
        raise FormatError(str(error), path=shown(jobset.expired)) from None


def read_index(server: RedisClient, jobset: JobSet) -> Index:
    members, expired = look(server, ("SMEMBERS", jobset.index), ("GET", jobset.expired))
    return Index(jobset, members, expired)


def last_ids(server: RedisClient, streams: Sequence[DayStream]) -> list[EventId | None]:
    """The highest id that each stream has ever had; None for one that does not exist, or is no stream.

    Of a compressed stream the last batch has to be fetched, for its id; a hot one is only asked about.
    """
    commands = [
        ("XINFO STREAM", stream.key) if stream.is_hot else ("XREVRANGE", stream.key, "+", "-", "COUNT", 1)
        for stream in streams
    ]
    found: list[EventId | None] = []
    for stream, reply in zip(streams, ask(server, commands), strict=True):
        if is_wrong_type(reply):
            found.append(None)
        elif stream.is_hot:
            found.append(stream_state(reply).last)
        elif isinstance(reply, Exception):
            raise reply
        else:
            found.append(parse_id(reply[0][0]) if reply else None)
    return found


def first_id(server: RedisClient, streams: Sequence[DayStream]) -> EventId | None:
    """The lowest id that these streams have, which are in the order of their days; None if they have nothing."""
    for stream in streams:
        [reply] = ask(server, [("XRANGE", stream.key, "-", "+", "COUNT", 1)])
        if isinstance(reply, Exception) and not is_wrong_type(reply):
            raise reply
        for entry_id, values in [] if is_wrong_type(reply) else entries_in(reply):
            return parse_id(entry_id) if stream.is_hot else unpack_entry(stream.key, entry_id, values)[0].id
    return None


def last_id(server: RedisClient, index: Index) -> EventId | None:
    """The highest id that a job set has or had: of the newest day that has any."""
    for day in sorted({stream.day for stream in index.streams}, reverse=True):
        found = [each for each in last_ids(server, index.of(day)) if each is not None]
        if found:
            return max(found if index.expired is None else [*found, index.expired])
    return index.expired
