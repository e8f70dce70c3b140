"""What compression saves, in the memory of the server, and the days that it left hot because it would save too little.

    {<queue>_<jobset>}_left_hot    hash: day -> "<entries of the hot stream> <share of its memory that it would save>"

A stream of a few events takes as much memory as a batch of them, and events that are packed already do not shrink. So
it is MEMORY USAGE that decides, not the bytes of events and batches. A day that is left hot is noted, so that the next
run does not read and pack all of it for the same result: it is tried again if it has other entries by then, or if a
smaller saving is enough. A note goes with its day.

A server that refuses MEMORY USAGE says nothing about its memory: there, days are compressed whatever that saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from itertools import islice
from typing import Any, NamedTuple

from tidelog import limits
from tidelog.days.exchange import RedisClient, ask, is_wrong_type, look
from tidelog.days.jobset import DayStream, JobSet
from tidelog.days.listing import scan_indexes


class MemoryChange(NamedTuple):
    """How many bytes of memory a day takes before and after; None: the server does not say."""

    hot_bytes: int | None
    compressed_bytes: int | None

    @property
    def saving(self) -> float | None:
        """The share of memory that is saved; negative if it takes more afterwards."""
        if not self.hot_bytes or self.compressed_bytes is None:
            return None
        return 1 - self.compressed_bytes / self.hot_bytes


def memory_change(server: RedisClient, hot: DayStream, compressed: DayStream) -> MemoryChange:
    return MemoryChange(*memory_bytes(server, [hot.key, compressed.key], samples=0))


def memory_bytes(server: RedisClient, keys: Sequence[bytes], *, samples: int = 5) -> list[int | None]:
    """The memory that keys take; None for a key that does not exist, or if the server does not say."""
    replies = ask(server, [("MEMORY USAGE", key, "SAMPLES", samples) for key in keys])
    return [int(reply) if isinstance(reply, int) else None for reply in replies]


# --- notes ------------------------------------------------------------------------------------------------------------


def forget_left_hot(server: RedisClient, pipeline: Any, jobset: JobSet, day: date) -> None:
    """Add what removes the note of a day, if there is one, to a transaction."""
    [is_noted] = look(server, ("HEXISTS", jobset.left_hot, day.isoformat()))
    if not is_wrong_type(is_noted) and is_noted:
        pipeline.execute_command("HDEL", jobset.left_hot, day.isoformat())


def note_left_hot(server: RedisClient, pipeline: Any, jobset: JobSet, day: date, entries: int, saving: float) -> None:
    """Add the note of a day to a transaction."""
    [reply] = look(server, ("HEXISTS", jobset.left_hot, day.isoformat()))
    if is_wrong_type(reply):
        pipeline.execute_command("UNLINK", jobset.left_hot)
    pipeline.execute_command("HSET", jobset.left_hot, day.isoformat(), f"{entries} {saving:.4f}")


class HotStream(NamedTuple):
    """A hot day that may be compressed."""

    jobset: JobSet
    stream: DayStream
    memory_bytes: int | None
    """About; None: the server does not say."""


def hot_days(server: RedisClient, before: date, saving_min: float | None) -> Iterator[HotStream]:
    """The hot days of all job sets before a day, a few at a time; without those that would save too little."""
    found = (
        (index.jobset, stream)
        for index in scan_indexes(server)
        for stream in index.streams
        if stream.is_hot and stream.day < before
    )
    while some := list(islice(found, limits.DAYS_SCAN_INDEXES)):
        worth = some if saving_min is None else _worth_trying(server, some, saving_min)
        memory = memory_bytes(server, [stream.key for _, stream in worth])
        yield from (HotStream(*each, size) for each, size in zip(worth, memory, strict=True))


def _worth_trying(
    server: RedisClient, some: Sequence[tuple[JobSet, DayStream]], saving_min: float
) -> list[tuple[JobSet, DayStream]]:
    commands = [("HGET", jobset.left_hot, stream.day.isoformat()) for jobset, stream in some]
    noted = {
        stream.key: note
        for (_, stream), note in zip(some, ask(server, commands), strict=True)
        if isinstance(note, bytes)
    }
    lengths = dict(zip(noted, ask(server, [("XLEN", key) for key in noted]), strict=True))
    kept = {key for key, note in noted.items() if _still_holds(note, lengths[key], saving_min)}
    return [each for each in some if each[1].key not in kept]


def _still_holds(note: bytes, entries: Any, saving_min: float) -> bool:
    with suppress(ValueError):  # a note of somebody else
        noted_entries, saving = note.split(b" ", 1)
        return int(noted_entries) == entries and float(saving) < saving_min
    return False
