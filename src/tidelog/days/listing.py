"""Which job sets a server has, and how their days stand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from tidelog import limits
from tidelog.days.exchange import RedisClient, ask, bytes_server, is_wrong_type
from tidelog.days.index import Index, read_index
from tidelog.days.jobset import DayStream, JobSet, jobset_of_index


class ListedDay(NamedTuple):
    """A stream of a job set that counts."""

    stream: DayStream
    entries: int | None
    """Messages of a hot one, batches of a compressed one; None: the key of that name is not a stream."""


class ListedJobSet(NamedTuple):
    """A job set."""

    jobset: JobSet
    days: list[ListedDay]
    late: int | None
    """Messages that came too late."""


def find_jobsets(server: RedisClient) -> list[JobSet]:
    """All job sets, by their names. It goes through all keys."""
    keys = set(bytes_server(server).scan_iter(match=rb"{*_*}_streams", count=limits.DAYS_SCAN_KEYS, _type="set"))
    found = [jobset for jobset in map(jobset_of_index, keys) if jobset is not None]
    return sorted(found, key=lambda jobset: (jobset.queue, jobset.jobset))


def scan_indexes(server: RedisClient) -> Iterator[Index]:
    """The indexes of all job sets, in no order, some at a time: memory does not grow with their number.

    A server that resizes its table of keys meanwhile may name one twice.
    """
    keys = bytes_server(server).scan_iter(match=rb"{*_*}_streams", count=limits.DAYS_SCAN_KEYS, _type="set")
    jobsets = (jobset for jobset in map(jobset_of_index, keys) if jobset is not None)
    while some := list(islice(jobsets, limits.DAYS_SCAN_INDEXES)):
        for jobset, members in zip(some, ask(server, [("SMEMBERS", each.index) for each in some]), strict=True):
            if isinstance(members, Exception) and not is_wrong_type(members):
                raise members
            yield Index(jobset, [] if is_wrong_type(members) else members, None)  # it is no index any more


def list_jobsets(server: RedisClient) -> Iterator[ListedJobSet]:
    """All job sets with their days."""
    for jobset in find_jobsets(server):
        streams = read_index(server, jobset).streams
        replies = ask(server, [*(("XLEN", stream.key) for stream in streams), ("XLEN", jobset.late)])
        *lengths, late = map(_length, replies)
        yield ListedJobSet(jobset, list(map(ListedDay, streams, lengths)), late)


def _length(reply: Any) -> int | None:
    if is_wrong_type(reply):
        return None  # a key of the wrong type must not hide the others
    if isinstance(reply, Exception):
        raise reply
    return int(reply)
