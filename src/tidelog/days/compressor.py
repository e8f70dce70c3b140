"""Compresses one day: rewrites its hot stream as batches, proves that they hold the same, and swaps the two.

    1. raise the fence to our token                                    earlier jobs can change nothing more
    2. remove a half-written compressed stream                         one that the index lacks
    3. read the hot stream in pages, write batches                     each under WATCH of fence, index and both streams
    4. read the batches back, compare number and digest of (id, time, event)
    5. compare memory: if it saves too little, remove the batches      and note that (`saving.py`)
    6. swap: index loses hot and gains compressed, hot is removed      one MULTI under the same WATCH
    7. lower the fence

Until the last step, nothing that counts has changed: killed at any point, the day is as it was, and the next run begins
anew. A day that was appended to meanwhile is begun anew by this one; readers notice nothing but the swap, after which
they go on in the compressed stream behind the last id they had.

Two tasks of one job may work on the same day, with the same token: if a scheduler loses a machine, it starts the task
again elsewhere, and the first may still run. So each write, and the swap, must find the compressed stream as this task
left it. A task that finds it changed gives up, so only verified batches are ever swapped in.

Whether a day is old enough is the caller's business: once compressed, later messages for it are late.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import date
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from tidelog import limits
from tidelog.days.batch import FIELD, pack, sealed, unpack_entry
from tidelog.days.exchange import RedisClient, StreamState, bytes_server, decide, state_of
from tidelog.days.fence import check_fence, lower_fence, raise_fence
from tidelog.days.index import Index, read_index
from tidelog.days.jobset import DayStream, JobSet
from tidelog.days.message import ZERO, EventId, Message, chunked, message_of_entry, parse_id, shown
from tidelog.days.saving import MemoryChange, forget_left_hot, memory_change, note_left_hot
from tidelog.errors import Contended, Corruption, FormatError, TidelogError


class Outcome(Enum):
    """What happened to a day."""

    COMPRESSED = "compressed"
    ALREADY = "already compressed"
    LEFT_HOT = "left hot"
    """It would save too little memory."""
    EMPTY = "empty"
    """There is a hot stream without entries: left as it is."""
    MISSING = "missing"
    """The index has no such day."""


class Compressed(NamedTuple):
    """The result of one day."""

    outcome: Outcome
    messages: int = 0
    batches: int = 0
    event_bytes: int = 0
    packed_bytes: int = 0
    memory: MemoryChange = MemoryChange(None, None)
    """Of the day's stream, on the server."""


class _Changed(Exception):
    """The hot stream is not what was read: begin anew."""


class _Sum:
    """Number and digest of messages in their order."""

    def __init__(self) -> None:
        self.messages = 0
        self.event_bytes = 0
        self.last = ZERO
        self._digest = hashlib.blake2b(digest_size=32)

    def add(self, message: Message) -> None:
        self.messages += 1
        self.event_bytes += len(message.event)
        self.last = message.id
        head = struct.pack("<QQQQ", *message.id, message.timestamp_ms, len(message.event))
        self._digest.update(head)
        self._digest.update(message.event)

    def of(self, messages: Iterable[Message]) -> _Sum:
        for message in messages:
            self.add(message)
        return self

    def is_same(self, other: _Sum) -> bool:
        return (self.messages, self._digest.digest()) == (other.messages, other._digest.digest())


def compress_day(
    server: RedisClient,
    jobset: JobSet,
    day: date,
    token: int,
    *,
    batch_bytes_max: int | None = None,
    saving_min: float | None = None,
    on_step: Callable[[str], object] = lambda _: None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Compressed:
    """Compress a day as the holder of a token of the lease `days`. `FencedOff`: a later job has taken over, nothing was
    changed.

    The day is left hot if that would not save the share `saving_min` of its memory (0.1: a tenth). `on_bytes` is told
    the size of whatever was read or is about to be written; it may take its time, to go slower.
    """
    steps = compression(
        server, jobset, day, token, batch_bytes_max=batch_bytes_max, saving_min=saving_min, on_bytes=on_bytes
    )
    while True:
        try:
            on_step(next(steps))
        except StopIteration as end:
            result: Compressed = end.value
            return result


def compression(
    server: RedisClient,
    jobset: JobSet,
    day: date,
    token: int,
    *,
    batch_bytes_max: int | None = None,
    saving_min: float | None = None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Generator[str, None, Compressed]:
    """The same in steps: it pauses after everything that changes the server, and before the swap."""
    most = batch_bytes_max or limits.DAYS_BATCH_BYTES_MAX
    work = _Compression(bytes_server(server), jobset, day, token, most, saving_min, on_bytes)
    raise_fence(server, jobset, token)
    yield "fence raised"
    try:
        result = yield from _attempts(work)
    except TidelogError:
        lower_fence(server, jobset, token)
        raise
    lower_fence(server, jobset, token)
    return result


def _attempts(work: _Compression) -> Generator[str, None, Compressed]:
    for _ in range(limits.DAYS_COMPRESS_ATTEMPTS_MAX):
        try:
            return (yield from work.attempt())
        except _Changed:
            yield "begun anew"
    raise Contended(f"{shown(work.hot.key)} changed during every attempt to compress it: is its day over?")


class _Compression:
    def __init__(
        self,
        server: RedisClient,
        jobset: JobSet,
        day: date,
        token: int,
        batch_bytes_max: int,
        saving_min: float | None,
        on_bytes: Callable[[int], object],
    ) -> None:
        self._server = server
        self._jobset = jobset
        self._token = token
        self._batch_bytes_max = batch_bytes_max
        self._saving_min = saving_min
        self._on_bytes = on_bytes
        self.hot: DayStream = jobset.hot(day)
        self._compressed = jobset.compressed(day)
        self._written: StreamState | None = None
        """How we left the compressed stream; None: it is not ours yet."""

    def attempt(self) -> Generator[str, None, Compressed]:
        """One pass. `_Changed` if the day was appended to, compressed or removed meanwhile."""
        streams = read_index(self._server, self._jobset).streams
        before = state_of(self._server, self.hot.key)
        if self._compressed in streams:
            if self.hot not in streams:
                return Compressed(Outcome.ALREADY)
            return (yield from self._finish(before))
        if self.hot not in streams:
            return Compressed(Outcome.MISSING)
        if not before.length:
            return Compressed(Outcome.EMPTY)
        self._written = None
        self._change(before, lambda pipeline: pipeline.execute_command("UNLINK", self._compressed.key))
        self._written = StreamState(0, None)
        yield "half-written stream removed"
        read, batches, packed_bytes = _Sum(), 0, 0
        for batch in self._batches():
            packed, highest = sealed(pack(batch)), batch[-1].id
            read.of(batch)
            self._on_bytes(len(packed))
            self._change(before, partial(self._add_batch, highest, packed))
            batches, packed_bytes = batches + 1, packed_bytes + len(packed)
            self._written = StreamState(batches, highest)
            yield "batch written"
        if read.messages != before.length:
            raise _Changed
        self._verify(before, read)
        yield "verified"
        memory = memory_change(self._server, self.hot, self._compressed)
        saving = memory.saving
        if saving is not None and self._saving_min is not None and saving < self._saving_min:
            self._change(before, partial(self._leave_hot, before.length, saving))
            yield "left hot"
            return Compressed(Outcome.LEFT_HOT)
        self._change(before, self._swap)
        yield "swapped"
        return Compressed(Outcome.COMPRESSED, read.messages, batches, read.event_bytes, packed_bytes, memory)

    def _finish(self, before: StreamState) -> Generator[str, None, Compressed]:
        """Both streams count: somebody else swaps in two steps, and stopped between them."""
        self._written = state_of(self._server, self._compressed.key)
        read = _Sum().of(self._hot_messages())
        if before.last is not None:  # otherwise it was removed before the index was told: there is nothing to compare
            self._verify(before, read, is_swapped=True)
        memory = memory_change(self._server, self.hot, self._compressed)
        self._change(before, self._swap, is_swapped=True)
        yield "swapped"
        return Compressed(Outcome.COMPRESSED, read.messages, 0, read.event_bytes, 0, memory)

    # --- changes ------------------------------------------------------------------------------------------------------

    def _change(self, before: StreamState, change: Callable[[Any], Any], *, is_swapped: bool = False) -> None:
        """Change something, if we are still the latest job and the day is still what it was."""

        def decision(pipeline: Any) -> None:
            check_fence(self._server, pipeline, self._jobset, self._token)
            streams = Index(self._jobset, pipeline.smembers(self._jobset.index), None).streams
            is_as_it_was = self.hot in streams and (self._compressed in streams) == is_swapped
            if not is_as_it_was or state_of(self._server, self.hot.key) != before:
                raise _Changed
            if self._written is not None and state_of(self._server, self._compressed.key) != self._written:
                raise Contended(f"{shown(self._compressed.key)} is being written by another run of the same job")
            pipeline.multi()
            change(pipeline)

        keys = [self._jobset.fence, self._jobset.index, self.hot.key, self._compressed.key]
        decide(self._server, f"compressing {shown(self.hot.key)}", keys, decision)

    def _add_batch(self, highest: EventId, packed: bytes, pipeline: Any) -> None:
        pipeline.execute_command("XADD", self._compressed.key, str(highest), FIELD, packed)

    def _swap(self, pipeline: Any) -> None:
        pipeline.execute_command("SREM", self._jobset.index, self.hot.key)
        pipeline.execute_command("SADD", self._jobset.index, self._compressed.key)
        pipeline.execute_command("UNLINK", self.hot.key)
        forget_left_hot(self._server, pipeline, self._jobset, self.hot.day)

    def _leave_hot(self, entries: int, saving: float, pipeline: Any) -> None:
        pipeline.execute_command("UNLINK", self._compressed.key)
        note_left_hot(self._server, pipeline, self._jobset, self.hot.day, entries, saving)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _hot_messages(self) -> Iterator[Message]:
        """In pages. A large page makes the next one smaller."""
        at, count = ZERO, limits.DAYS_PAGE_ENTRIES_MAX // 8
        while entries := self._server.xrange(self.hot.key, f"({at}", "+", count=count):
            size_bytes = 1
            self._on_bytes(sum(len(value) for _, values in entries for value in values.values()))
            for entry_id, values in entries:
                message = message_of_entry(self.hot.key, entry_id, values)
                if not values.keys() <= {b"event", b"timestamp_ms"}:
                    raise FormatError(
                        f"entry {message.id} has fields that a batch cannot keep: {sorted(values)}",
                        path=shown(self.hot.key),
                    )
                size_bytes += len(message.event)
                at = message.id
                yield message
            fitting = limits.DAYS_PAGE_BYTES * len(entries) // size_bytes
            count = max(1, min(fitting, limits.DAYS_PAGE_ENTRIES_MAX))

    def _batches(self) -> Iterator[list[Message]]:
        return chunked(self._hot_messages(), count_max=limits.DAYS_BATCH_MESSAGES_MAX, bytes_max=self._batch_bytes_max)

    def _verify(self, before: StreamState, read: _Sum, *, is_swapped: bool = False) -> None:
        """Read back what was written; `Corruption` if it is not what was read."""
        written = _Sum()
        at = ZERO
        while entries := self._server.xrange(self._compressed.key, f"({at}", "+", count=1):
            self._on_bytes(sum(map(len, entries[0][1].values())))
            written.of(unpack_entry(self._compressed.key, *entries[0]))
            at = parse_id(entries[0][0])
        if not written.is_same(read):
            # Unless the day was removed meanwhile, or a later job has begun anew.
            self._change(before, lambda _: None, is_swapped=is_swapped)
            raise Corruption(
                f"its {written.messages} messages up to {written.last} are not the {read.messages} up to {read.last} "
                f"of {shown(self.hot.key)}, which was left as it is",
                path=shown(self._compressed.key),
            )
