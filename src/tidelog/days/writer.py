"""Writes messages into the streams of their days, many in one transaction, each once.

What becomes of a message follows from its id and its day alone:

    its id is higher than all of the job set, and its day
        is the newest, or later                              written
        is compressed, or lies before one that has begun     late
        or its id lies too far ahead of the clock            late
        has a key that is not a stream                       late
    its id is not higher
        its day has it, also in a compressed batch           duplicate: it was written before, which is a success
        its day does not have it                             late: out of order

So days only grow at their end, a later day closes all earlier ones, and readers meet ids in increasing order over all
days. A day or an id from the far future would end the job set, because everything after it would be late; so it is
late itself. The clock is the writer's.

Late messages go to the stream `{...}_late` (fields `id`, `timestamp_ms`, `event`, `reason`), where somebody can look at
them; one that is retried is not put there again while it is among the newest there. Entries of another stream that are
not messages go there too, with their own fields and `stream`, `entry` and `reason`. If the key of that stream holds
something else, that is renamed, so that neither is lost.

A chunk is one MULTI with its XADDs and one SADD a day. The index, the hot streams of its days and of the newest day and
the late stream are watched, so it holds also while others write, compress or expire; if one of them was first, the
chunk is decided anew. A chunk whose reply got lost may be written again: what it wrote are duplicates then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.days.batch import unpack_entry
from tidelog.days.exchange import RedisClient, ask, bytes_server, decide, entries_in, fields, is_wrong_type, look
from tidelog.days.index import Index, last_id, read_index
from tidelog.days.inputs import BadEntry
from tidelog.days.jobset import JobSet
from tidelog.days.message import ZERO, EventId, Message, checked, chunked, fields_of, parse_id, shown

_ABOVE_ALL: Final = EventId(2**64, 0)
_LateIdentity = tuple[EventId | bytes, int | bytes]
"""The id and time of a message; the stream and the id of an entry that is no message."""


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

    def __init__(
        self,
        server: RedisClient,
        jobset: JobSet,
        *,
        max_ahead_s: float = limits.DAYS_AHEAD_S_MAX,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = bytes_server(server)
        self._jobset = jobset
        self._max_ahead_s = max_ahead_s
        """A message whose time or id lies further ahead of the clock is late; `inf`: none is."""
        self._wall = wall
        self._sleep = sleep

    def write(self, messages: Iterable[Message]) -> Written:
        """Write messages, in the order given. All are in the server, or its dead letters, when it returns."""
        total = Written()
        for chunk in chunks(map(checked, messages)):
            total = total.plus(self._write_chunk(chunk))
        return total

    def set_aside(self, entries: Sequence[BadEntry]) -> Written:
        """Put entries that are not messages to the late ones, each once."""

        def decision(pipeline: Any) -> Written:
            late = [((each.stream, each.entry_id), _bad_fields(each)) for each in entries]
            pipeline.multi()
            self._add_late(pipeline, late)
            return Written(late=len(entries))

        what = f"setting aside {len(entries)} entries for {self._jobset!r}"
        return decide(self._server, what, [self._jobset.late], decision, sleep=self._sleep) if entries else Written()

    def _write_chunk(self, chunk: list[Message]) -> Written:
        jobset = self._jobset
        days = sorted({message.day for message in chunk})
        keys = [jobset.index, jobset.expired, jobset.late, *(jobset.hot(day).key for day in days)]

        def decision(pipeline: Any) -> Written:
            index, unusable = self._look(days)
            if index.newest is not None and index.newest not in days:
                pipeline.watch(jobset.hot(index.newest).key)
                index, unusable = self._look(days)
            latest_ms = 1000 * (self._wall() + self._max_ahead_s)
            plan = _planned(chunk, index, last_id(self._server, index) or ZERO, latest_ms, unusable)
            exist = self._existing(plan.doubtful)
            late = [*plan.late, *((each, "out of order") for each in plan.doubtful if each.id not in exist)]
            duplicate = len(plan.duplicates) + sum(each.id in exist for each in plan.doubtful)
            pipeline.multi()
            self._add(pipeline, plan.fresh.values())
            self._add_late(pipeline, [((each.id, each.timestamp_ms), _late_fields(each, why)) for each, why in late])
            return Written(len(plan.fresh), duplicate, len(late))

        what = f"writing {len(chunk)} messages into {jobset!r}"
        return decide(self._server, what, keys, decision, sleep=self._sleep)

    def _look(self, days: Sequence[date]) -> tuple[Index, dict[date, str]]:
        """The index, and which of these days cannot be written because their keys hold something else."""
        keys = [self._jobset.hot(day).key for day in days]
        types = (("TYPE", key) for key in keys)
        members, expired, *found = look(
            self._server, ("SMEMBERS", self._jobset.index), ("GET", self._jobset.expired), *types
        )
        unusable = {
            day: f"{shown(key)} is not a stream"
            for day, key, kind in zip(days, keys, found, strict=True)
            if kind not in (b"stream", b"none")
        }
        return Index(self._jobset, members, expired), unusable

    def _add(self, pipeline: Any, messages: Iterable[Message]) -> None:
        keys: dict[date, bytes] = {}
        for message in messages:
            key = keys.setdefault(message.day, self._jobset.hot(message.day).key)
            pipeline.execute_command("XADD", key, str(message.id), *fields_of(message))
        for key in keys.values():
            pipeline.execute_command("SADD", self._jobset.index, key)

    def _add_late(self, pipeline: Any, late: Sequence[tuple[_LateIdentity, list[Any]]]) -> None:
        if not late:
            return
        known = self._known_late()
        if known is None:
            aside = b"%b_%d" % (self._jobset.late, int(1000 * self._wall()))
            pipeline.execute_command("RENAME", self._jobset.late, aside)
        known = known or set()
        for identity, words in late:
            if identity not in known:
                known.add(identity)
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
                if not is_wrong_type(reply):
                    raise reply
            elif reply:
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
                [reply] = look(self._server, ("XRANGE", key, str(message.id), "+", "COUNT", 1))
                day, highest, ids = message.day, _ABOVE_ALL, set()
                for entry_id, values in [] if is_wrong_type(reply) else entries_in(reply):
                    highest = parse_id(entry_id)
                    ids = {each.id for each in unpack_entry(key, entry_id, values)}
            if message.id in ids:
                found.add(message.id)
        return found

    def _known_late(self) -> set[_LateIdentity] | None:
        """The newest late messages; None: what the key holds is not a stream."""
        known: set[_LateIdentity] = set()
        end = b"+"
        for _ in range(limits.DAYS_LATE_LOOKED_THROUGH // limits.DAYS_LATE_AT_ONCE):
            [reply] = look(self._server, ("XREVRANGE", self._jobset.late, end, "-", "COUNT", limits.DAYS_LATE_AT_ONCE))
            if is_wrong_type(reply):
                return None
            entries = entries_in(reply)
            for _, values in entries:
                with suppress(KeyError, ValueError):  # others may put things there, too
                    known.add(_late_identity(fields(values)))
            if len(entries) < limits.DAYS_LATE_AT_ONCE:
                break
            end = b"(" + entries[-1][0]
        return known


def _late_fields(message: Message, reason: str) -> list[Any]:
    return ["id", str(message.id), "timestamp_ms", message.timestamp_ms, "event", message.event, "reason", reason]


def _bad_fields(entry: BadEntry) -> list[Any]:
    """Its own fields, as they are; ours are last, where they win over others of the same name."""
    own = [word for pair in entry.values.items() for word in pair]
    return [*own, "stream", entry.stream, "entry", entry.entry_id, "reason", entry.reason]


def _late_identity(values: Mapping[bytes, bytes]) -> _LateIdentity:
    if b"entry" in values:
        return values[b"stream"], values[b"entry"]
    return parse_id(values[b"id"]), int(values[b"timestamp_ms"])


def chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Messages as they are written together."""
    return chunked(messages, count_max=limits.DAYS_WRITE_MESSAGES_MAX, bytes_max=limits.DAYS_WRITE_BYTES_MAX)


def _planned(
    chunk: list[Message], index: Index, last: EventId, latest_ms: float, unusable: Mapping[date, str]
) -> _Plan:
    plan = _Plan({}, [], [], [])
    newest = index.newest
    for message in chunk:
        if message.id in plan.fresh:
            plan.duplicates.append(message)
        elif message.id <= last:
            plan.doubtful.append(message)
        elif max(message.timestamp_ms, message.id.ms) > latest_ms:
            what = "timestamp_ms" if message.timestamp_ms > latest_ms else "id"
            plan.late.append((message, f"its {what} lies too far in the future"))
        elif message.day in index.compressed:
            plan.late.append((message, f"{message.day} is compressed"))
        elif newest is not None and message.day < newest:
            plan.late.append((message, f"{newest} has begun"))
        elif message.day in unusable:
            plan.late.append((message, unusable[message.day]))
        else:
            plan.fresh[message.id] = message
            last, newest = message.id, message.day
    return plan
