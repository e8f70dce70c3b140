"""The list of job sets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.days.days_of_events import DAY_1, DAY_2, JOBSET, at, on
from tidelog import limits
from tidelog.days.compressor import compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.listing import find_jobsets, list_jobsets, scan_indexes
from tidelog.days.writer import Writer


def test_job_sets_with_their_days(any_server: Any) -> None:
    Writer(any_server, JOBSET).write([*on(1, range(5)), *on(2, [1, 3]), at(2, 2)])
    compress_day(any_server, JOBSET, DAY_1, 1)
    odd = JobSet("a_{queue}", "100%")
    Writer(any_server, odd).write([at(1, 1)])
    any_server.set("{other}_streams", "x")
    any_server.set("{another_one}_streams", "no set, so no index")
    assert [(each.queue, each.jobset) for each in find_jobsets(any_server)] == [
        ("a_{queue}", "100%"),
        ("queue", "jobs"),
    ]
    first, second = list_jobsets(any_server)
    assert (first.days, first.late) == ([(odd.hot(DAY_1), 1)], 0)
    assert (second.days, second.late) == ([(JOBSET.compressed(DAY_1), 1), (JOBSET.hot(DAY_2), 2)], 1)


def test_a_key_of_another_type_hides_no_other(server: Any) -> None:
    Writer(server, JOBSET).write([*on(1, range(2)), at(2, 1)])
    server.set(JOBSET.hot(DAY_1).key, "x")
    server.set(JOBSET.late, "x")
    [(_, days, late)] = list_jobsets(server)
    assert (days, late) == ([(JOBSET.hot(DAY_1), None), (JOBSET.hot(DAY_2), 1)], None)


def test_an_empty_server_has_none(server: Any) -> None:
    assert list(list_jobsets(server)) == []


def test_indexes_are_found_a_few_at_a_time(any_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_SCAN_INDEXES", 3)
    jobsets = [JobSet("queue", f"set {number}") for number in range(8)]
    for jobset in jobsets:
        Writer(any_server, jobset).write(on(1, range(2)))
    any_server.set("{a_b}_streams", "a string")
    any_server.sadd("{c}_streams", "no job set")
    found = {index.jobset.jobset: index.streams for index in scan_indexes(any_server)}
    assert found == {jobset.jobset: [jobset.hot(DAY_1)] for jobset in jobsets}
