"""What compression saves: in memory, and days that would save too little."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

import pytest

from tests.days.days_of_events import DAY_1, DAY_2, DAY_3, JOBSET, at, everything, index_of, on
from tidelog.days.compressor import Compressed, Outcome, compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.message import Message
from tidelog.days.retention import expire_days
from tidelog.days.saving import MemoryChange, hot_days
from tidelog.days.writer import Writer

HOT = JOBSET.hot(DAY_1).key
SMALL = on(1, range(3))
LARGE = [at(1, n, b'{"n": %d, "text": "%s"}' % (n, b"x" * 200)) for n in range(1000)]


def packed(day: int) -> list[Message]:
    """Events that do not shrink."""
    random = Random(day)
    return [at(day, n, random.randbytes(300)) for n in range(500)]


def found(server: Any, saving_min: float | None = 0.1, before: date = DAY_3) -> list[tuple[str, date]]:
    return [(each.jobset.jobset, each.stream.day) for each in hot_days(server, before, saving_min)]


@pytest.mark.parametrize("messages", [SMALL, packed(1)], ids=["few", "packed"])
def test_a_day_that_would_not_shrink_is_left_hot_and_not_tried_again(any_server: Any, messages: list[Message]) -> None:
    Writer(any_server, JOBSET).write(messages)
    assert found(any_server) == [("jobs", DAY_1)]
    assert compress_day(any_server, JOBSET, DAY_1, 1, saving_min=0.2) == Compressed(Outcome.LEFT_HOT)
    assert index_of(any_server) == {HOT}
    assert not any_server.exists(JOBSET.compressed(DAY_1).key)
    assert everything(any_server) == messages
    assert found(any_server, 0.2) == []
    assert found(any_server, -10.0) == [("jobs", DAY_1)], "a smaller saving is enough"
    assert found(any_server, None) == [("jobs", DAY_1)]
    Writer(any_server, JOBSET).write([at(1, 9999)])
    assert found(any_server, 0.2) == [("jobs", DAY_1)], "it has other entries now"


def test_a_day_that_shrinks_is_compressed_and_its_memory_told(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(LARGE)
    before = any_server.memory_usage(HOT, samples=0)
    result = compress_day(any_server, JOBSET, DAY_1, 1, saving_min=0.5)
    assert result.outcome is Outcome.COMPRESSED
    after = any_server.memory_usage(JOBSET.compressed(DAY_1).key, samples=0)
    assert result.memory == MemoryChange(before, after)
    assert result.memory.saving == 1 - after / before > 0.5


def test_what_is_noted_of_a_day_goes_with_it(any_server: Any) -> None:
    Writer(any_server, JOBSET).write([*SMALL, *on(2, range(3))])
    for day in (DAY_1, DAY_2):
        compress_day(any_server, JOBSET, day, 1, saving_min=0.9)
    assert set(any_server.hgetall(JOBSET.left_hot)) == {b"2024-05-01", b"2024-05-02"}
    expire_days(any_server, JOBSET, keep_days=0, today=DAY_2, token=1)
    assert set(any_server.hgetall(JOBSET.left_hot)) == {b"2024-05-02"}
    compress_day(any_server, JOBSET, DAY_2, 1)
    assert not any_server.exists(JOBSET.left_hot)


def test_a_note_that_is_none_does_not_count(any_server: Any) -> None:
    for number, note in enumerate([b"", b"3", b"x y", b"3 0.01"]):
        jobset = JobSet("queue", f"set {number}")
        Writer(any_server, jobset).write(SMALL)
        any_server.hset(jobset.left_hot, "2024-05-01", note)
    other = JobSet("queue", "other type")
    Writer(any_server, other).write(SMALL)
    any_server.set(other.left_hot, "x")
    assert sorted(name for name, _ in found(any_server)) == ["other type", "set 0", "set 1", "set 2"]
    assert compress_day(any_server, other, DAY_1, 1, saving_min=0.9).outcome is Outcome.LEFT_HOT
    assert sorted(name for name, _ in found(any_server)) == ["set 0", "set 1", "set 2"]
