"""The week of the demo: the same for a seed, in order, and believable as far as that can be counted."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import date
from itertools import pairwise
from typing import Any

import pytest

from demo.week import Week, make_week

FIRST_DAY = date(2024, 5, 6)


@pytest.fixture(scope="module")
def week() -> Week:
    return make_week(FIRST_DAY, 8000, seed=3)


def events_of(week: Week) -> dict[str, list[dict[str, Any]]]:
    """The events of each job, in order."""
    jobs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for messages in week.by_queue.values():
        for _, message in messages:
            event = json.loads(message.event)
            jobs[event["job_id"]].append({**event, "ms": message.timestamp_ms})
    return jobs


def test_a_seed_gives_one_week(week: Week) -> None:
    assert make_week(FIRST_DAY, 8000, seed=3).seen == week.seen
    assert make_week(FIRST_DAY, 8000, seed=4).seen != week.seen


def test_it_has_the_events_that_were_asked_for_on_every_day_and_in_every_job_set(week: Week) -> None:
    assert 8000 <= week.events < 8020
    assert {cell.day for cell in week.cells} == set(week.days)
    assert len(week.days) == 7
    assert sum(figures.events for figures in week.cells.values()) == week.events
    assert len(week.cells) == 7 * len(week.seen)


def test_ids_increase_in_every_job_set(week: Week) -> None:
    for queue, messages in week.by_queue.items():
        for jobset in {jobset for jobset, _ in messages}:
            ids = [message.id for name, message in messages if name == jobset]
            assert all(first < second for first, second in pairwise(ids)), (queue, jobset)


def test_jobs_go_through_their_states(week: Week) -> None:
    followers = {
        "submitted": {"queued"},
        "queued": {"leased"},
        "leased": {"pending"},
        "pending": {"running", "failed"},
        "running": {"succeeded", "failed", "preempted"},
        "preempted": {"queued"},
    }
    names = set()
    for events in events_of(week).values():
        assert events[0]["event"] == "submitted"
        for first, second in pairwise(events):
            assert second["event"] in followers[first["event"]]
            assert first["ms"] < second["ms"]
        names |= {event["event"] for event in events}
        assert all(event["reason"] for event in events if event["event"] == "failed")
    assert names == set(followers) | {"succeeded", "failed"}


def test_its_figures_are_those_of_its_events(week: Week) -> None:
    jobs = events_of(week)
    assert any(names.count("running") > 1 for names in ([each["event"] for each in job] for job in jobs.values()))
    runs_ms: list[int] = []
    failed = 0
    for events in jobs.values():
        *before, last = events
        failed += last["event"] == "failed"
        began_ms = [event["ms"] for event in before if event["event"] == "running"]
        if last["event"] in ("succeeded", "failed") and began_ms:
            runs_ms.append(last["ms"] - began_ms[-1])
    assert sorted(runs_ms) == sorted(run for figures in week.cells.values() for run in figures.runs_ms)
    assert failed == sum(figures.failed for figures in week.cells.values())
