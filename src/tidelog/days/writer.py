"""Writes messages into the streams of their days, many in one transaction, each once.

What becomes of a message follows from its id and its day alone:

    its id is higher than all of the job set, and its day
        is the newest, or later                              written
        is compressed, or lies before one that has begun     late
    its id is not higher
        its day has it, also in a compressed batch           duplicate: it was written before, which is a success
        its day does not have it                             late: out of order

So days only grow at their end, a later day closes all earlier ones, and readers meet ids in increasing order over all
days. Late messages go to the stream `{...}_late` (fields `id`, `timestamp_ms`, `event`, `reason`), where somebody can
look at them; one that is retried is not put there again while it is among the newest there.

A chunk is one MULTI with its XADDs and one SADD a day. The index, the hot streams of its days and of the newest day and
the late stream are watched, so it holds also while others write, compress or expire; if one of them was first, the
chunk is decided anew. A chunk whose reply got lost may be written again: what it wrote are duplicates then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.days.batch import unpack_entry
from tidelog.days.exchange import RedisClient, ask, bytes_server, decide, fields
from tidelog.days.index import Index, last_id, read_index
from tidelog.days.jobset import JobSet
from tidelog.days.message import ZERO, EventId, Message, checked, chunked, fields_of, parse_id

_ABOVE_ALL: Final = EventId(2**64, 0)


class Written(NamedTuple):
    """The outcome of a write: how many messages went where."""

    written: int = 0
    duplicate: int = 0
    late: int = 0

    def plus(self, other: Written) -> Written:
        return Written(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _Plan(NamedTuple):
    """The plan for a chunk of messages."""

    fresh: dict[EventId, Message]
    duplicates: list[Message]
    doubtful: list[Message]
    """Not higher than the last id: duplicates if their day has them."""
    late: list[tuple[Message, str]]
    """With the reason."""


class Writer:
    """Writes into one job set. Several may do so at the same time, also in several processes."""

    def __init__(self, server: RedisClient, jobset: JobSet, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._server = bytes_server(server)
        self._jobset = jobset
        self._sleep = sleep

    def write(self, messages: Iterable[Message]) -> Written:
        """Write messages, in the order given. All are in the server, or its dead letters, when it returns."""
        total = Written()
        for chunk in chunks(map(checked, messages)):
            total = total.plus(self._write_chunk(chunk))
        return total

    def _write_chunk(self, chunk: list[Message]) -> Written:
        jobset = self._jobset
        days = sorted({message.day for message in chunk})
        keys = [jobset.index, jobset.expired, jobset.late, *(jobset.hot(day).key for day in days)]

        def decision(pipeline: Any) -> Written:
            index = read_index(self._server, jobset)
            if index.newest is not None and index.newest not in days:
                pipeline.watch(jobset.hot(index.newest).key)
                index = read_index(self._server, jobset)
            plan = _planned(chunk, index, last_id(self._server, index) or ZERO)
            exist = self._existing(plan.doubtful)
            late = [*plan.late, *((each, "out of order") for each in plan.doubtful if each.id not in exist)]
            duplicate = len(plan.duplicates) + sum(each.id in exist for each in plan.doubtful)
            known = self._known_late() if late else set()
            pipeline.multi()
            self._add(pipeline, plan.fresh.values())
            for message, reason in late:
                if (message.id, message.timestamp_ms) not in known:
                    known.add((message.id, message.timestamp_ms))
                    self._add_late(pipeline, message, reason)
            return Written(len(plan.fresh), duplicate, len(late))

        what = f"writing {len(chunk)} messages into {jobset!r}"
        return decide(self._server, what, keys, decision, sleep=self._sleep)

    def _add(self, pipeline: Any, messages: Iterable[Message]) -> None:
        keys: dict[date, bytes] = {}
        for message in messages:
            key = keys.setdefault(message.day, self._jobset.hot(message.day).key)
            pipeline.execute_command("XADD", key, str(message.id), *fields_of(message))
        for key in keys.values():
            pipeline.execute_command("SADD", self._jobset.index, key)

    def _add_late(self, pipeline: Any, message: Message, reason: str) -> None:
        words = ["id", str(message.id), "timestamp_ms", message.timestamp_ms, "event", message.event, "reason", reason]
        pipeline.execute_command("XADD", self._jobset.late, "*", *words)

    # --- what exists ----------------------------------------------------------------------------------------------

    def _existing(self, messages: list[Message]) -> set[EventId]:
        """Those that their days have, hot or compressed."""
        if not messages:
            return set()
        commands = [("XRANGE", self._jobset.hot(m.day).key, str(m.id), str(m.id), "COUNT", 1) for m in messages]
        found = set()
        for message, reply in zip(messages, ask(self._server, commands), strict=True):
            if isinstance(reply, Exception):
                raise reply
            if reply:
                found.add(message.id)
        index = read_index(self._server, self._jobset)
        rest = [each for each in messages if each.id not in found and each.day in index.compressed]
        return found | self._existing_compressed(sorted(rest, key=lambda message: (message.day, message.id)))

    def _existing_compressed(self, messages: list[Message]) -> set[EventId]:
        """The same for compressed days. In the order of ids, so that each batch is opened once."""
        found = set()
        day, highest, ids = None, ZERO, set[EventId]()
        for message in messages:
            if message.day != day or message.id > highest:
                key = self._jobset.compressed(message.day).key
                entries = self._server.xrange(key, str(message.id), "+", count=1)
                day, highest, ids = message.day, _ABOVE_ALL, set()
                if entries:
                    highest = parse_id(entries[0][0])
                    ids = {each.id for each in unpack_entry(key, *entries[0])}
            if message.id in ids:
                found.add(message.id)
        return found

    def _known_late(self) -> set[tuple[EventId, int]]:
        """The newest late messages."""
        known: set[tuple[EventId, int]] = set()
        end = b"+"
        for _ in range(limits.DAYS_LATE_LOOKED_THROUGH // limits.DAYS_LATE_AT_ONCE):
            entries = self._server.xrevrange(self._jobset.late, end, "-", count=limits.DAYS_LATE_AT_ONCE)
            for _, values in entries:
                found = fields(values)
                with suppress(KeyError, ValueError):  # others may put things there, too
                    known.add((parse_id(found[b"id"]), int(found[b"timestamp_ms"])))
            if len(entries) < limits.DAYS_LATE_AT_ONCE:
                break
            end = b"(" + entries[-1][0]
        return known


def chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Messages as they are written together."""
    return chunked(messages, count_max=limits.DAYS_WRITE_MESSAGES_MAX, bytes_max=limits.DAYS_WRITE_BYTES_MAX)


def _planned(chunk: list[Message], index: Index, last: EventId) -> _Plan:
    plan = _Plan({}, [], [], [])
    newest = index.newest
    for message in chunk:
        if message.id in plan.fresh:
            plan.duplicates.append(message)
        elif message.id <= last:
            plan.doubtful.append(message)
        elif message.day in index.compressed:
            plan.late.append((message, f"{message.day} is compressed"))
        elif newest is not None and message.day < newest:
            plan.late.append((message, f"{newest} has begun"))
        else:
            plan.fresh[message.id] = message
            last, newest = message.id, message.day
    return plan
