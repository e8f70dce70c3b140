"""Retention: whole days go, and everything of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.days.days_of_events import DAY_1, DAY_2, DAY_3, JOBSET, at, everything, index_of, on
from tidelog.days.compressor import compress_day
from tidelog.days.fence import raise_fence
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer
from tidelog.errors import ClientError, FencedOff


@pytest.fixture
def three_days(any_server: Any) -> Any:
    Writer(any_server, JOBSET).write([*on(1, range(5)), *on(2, range(5)), *on(3, range(5))])
    compress_day(any_server, JOBSET, DAY_1, 1)
    return any_server


@pytest.mark.parametrize(
    ("keep_days", "removed"), [(3, []), (2, [DAY_1]), (1, [DAY_1, DAY_2]), (0, [DAY_1, DAY_2, DAY_3])]
)
def test_days_older_than_so_many_go(three_days: Any, keep_days: int, removed: list[date]) -> None:
    assert expire_days(three_days, JOBSET, keep_days=keep_days, today=date(2024, 5, 4)) == removed
    kept = [day for day in (DAY_1, DAY_2, DAY_3) if day not in removed]
    assert everything(three_days) == [at(day.day, n) for day in kept for n in range(5)]
    for day in removed:
        assert not three_days.exists(JOBSET.hot(day).key)
        assert not three_days.exists(JOBSET.compressed(day).key)
    assert len(index_of(three_days)) == len(kept)
    if removed:
        assert three_days.get(JOBSET.expired) == str(at(removed[-1].day, 4).id).encode()


def test_half_written_streams_go_with_their_day(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(5)))
    server.xadd(JOBSET.compressed(DAY_1).key, {"batch": b"half"}, id="1-1")
    assert expire_days(server, JOBSET, keep_days=0, today=DAY_2) == [DAY_1]
    assert not server.exists(JOBSET.compressed(DAY_1).key)


def test_nothing_is_nothing(any_server: Any) -> None:
    assert expire_days(any_server, JOBSET, keep_days=0, today=DAY_3) == []
    assert any_server.dbsize() in (0, {}) or not any_server.exists(JOBSET.index)


def test_late_messages_go_when_they_have_lain_as_long(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write(on(1, [1, 3]))
    server.xadd(JOBSET.late, {"id": "1-1", "timestamp_ms": 1, "event": "{}", "reason": "old"}, id=str(at(1, 5).id))
    writer.write(on(1, [2]))  # whose place there is the time of now
    expire_days(server, JOBSET, keep_days=1, today=DAY_3)
    assert [values[b"reason"] for _, values in server.xrange(JOBSET.late)] == [b"out of order"]


def test_a_job_that_was_replaced_removes_nothing(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(5)))
    raise_fence(server, JOBSET, 8)
    with pytest.raises(FencedOff, match="token 7"):
        expire_days(server, JOBSET, keep_days=0, today=DAY_3, token=7)
    assert everything(server) == on(1, range(5))
    assert expire_days(server, JOBSET, keep_days=0, today=DAY_3, token=8) == [DAY_1]


def test_a_fence_that_an_earlier_version_left_goes_with_a_day(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(5)))
    server.set(JOBSET.fence, 3)
    expire_days(server, JOBSET, keep_days=0, today=DAY_3, token=8)
    assert not server.exists(JOBSET.fence)


@pytest.mark.parametrize("wrong", [JOBSET.hot(DAY_1).key, JOBSET.hot(DAY_2).key, JOBSET.compressed(DAY_1).key])
def test_a_day_whose_key_is_of_another_type_goes_and_blocks_no_other(any_server: Any, wrong: bytes) -> None:
    Writer(any_server, JOBSET).write([*on(1, range(5)), *on(2, range(5)), *on(3, range(5))])
    any_server.set(wrong, "x")
    any_server.sadd(JOBSET.index, wrong)
    assert expire_days(any_server, JOBSET, keep_days=0, today=DAY_3, token=1) == [DAY_1, DAY_2]
    assert everything(any_server) == on(3, range(5))
    assert not any_server.exists(wrong)


@pytest.mark.parametrize("wrong", [JOBSET.expired, JOBSET.late, JOBSET.fence, JOBSET.left_hot])
def test_a_note_of_another_type_keeps_no_day(any_server: Any, wrong: bytes) -> None:
    Writer(any_server, JOBSET).write([*on(1, range(5)), *on(2, range(5))])
    any_server.zadd(wrong, {"x": 1})
    assert expire_days(any_server, JOBSET, keep_days=0, today=DAY_2, token=1) == [DAY_1]
    assert everything(any_server) == on(2, range(5))


def test_a_negative_number_of_days_is_refused_and_a_large_one_keeps_all(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(5)))
    with pytest.raises(ClientError, match="negative"):
        expire_days(server, JOBSET, keep_days=-1, today=DAY_3)
    assert expire_days(server, JOBSET, keep_days=10**9, today=DAY_3) == []
