"""What the demo compares its views with."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from demo.views import EVENTS, JOBS, PROFILE, TOML, jobs_of, ledger_rows
from demo.week import PROFILES, Profile, Week
from tidelog.spark.views.sql.definition import read_views
from tidelog.spark.views.sql.query import plan_view

MONDAY = date(2024, 5, 6)
MONDAY_MS = int(datetime(2024, 5, 6, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 24 * 3600 * 1000
OTHER = PROFILES[0]


def week_of(*events: tuple[Profile, int, str, str, str | None]) -> Week:
    """Of profile, time in ms of the week, job, what happened, and where."""
    week = Week(MONDAY)
    for profile, at_ms, job, name, node in events:
        event: dict[str, Any] = {"event": name, "job_id": job}
        week.add(profile, MONDAY_MS + at_ms, event if node is None else {**event, "node": node}, None)
    return week


def test_the_ledger_has_events_by_day_and_jobs_by_their_last_state() -> None:
    week = week_of(
        (PROFILE, 1, "a", "submitted", None),
        (PROFILE, 2, "b", "submitted", None),
        (OTHER, 3, "c", "submitted", None),
        (PROFILE, 4, "a", "running", "n1"),
        (PROFILE, 5, "b", "running", "n1"),
        (PROFILE, DAY_MS, "b", "running", "n2"),
    )
    assert jobs_of(week) == {
        "a": (PROFILE.queue, "running"),
        "b": (PROFILE.queue, "running"),
        "c": (OTHER.queue, "submitted"),
    }
    assert ledger_rows(week) == {
        EVENTS: {
            "2024-05-06:submitted": {"day": "2024-05-06", "event": "submitted", "n": "2", "nodes": "0"},
            "2024-05-06:running": {"day": "2024-05-06", "event": "running", "n": "2", "nodes": "1"},
            "2024-05-07:running": {"day": "2024-05-07", "event": "running", "n": "1", "nodes": "1"},
        },
        JOBS: {
            f"{PROFILE.queue}:running": {"queue": PROFILE.queue, "state": "running", "n": "2"},
            f"{OTHER.queue}:submitted": {"queue": OTHER.queue, "state": "submitted", "n": "1"},
        },
    }


def test_the_views_can_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "views.toml"
    file.write_text(TOML)
    views = read_views(str(file))
    assert [view.name for view in views] == [EVENTS, JOBS]
    for view in views:
        assert set(view.key) < {name for name, _ in plan_view(view).outputs}
