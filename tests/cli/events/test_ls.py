"""`tidelog events ls`: job sets and their days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from tests.cli.command_line import run
from tests.cli.day_streams import KINDS, DaysServer, line
from tests.days.days_of_events import DAY_MS, MAY_MS
from tests.days.servers import Servers
from tidelog.days.compressor import compress_day
from tidelog.days.jobset import JobSet


@pytest.fixture(params=KINDS)
def days(request: pytest.FixtureRequest, servers: Servers) -> Iterator[DaysServer]:
    made = DaysServer(servers, request.param)
    yield made
    made.close()


def test_days_with_their_state(days: DaysServer) -> None:
    lines = [line(MAY_MS), line(MAY_MS + 1), line(MAY_MS + DAY_MS), line(5)]
    days.put("q_1", "j", lines)
    compress_day(days.redis, JobSet("q_1", "j"), date(2024, 5, 1), 1)
    name = {"queue": "q_1", "jobset": "j"}
    assert run("events", "ls", *days.options, "--json").objects == [
        {"kind": "day", **name, "day": "2024-05-01", "state": "compressed", "entries": 1},
        {"kind": "day", **name, "day": "2024-05-02", "state": "hot", "entries": 1},
        {"kind": "late", **name, "entries": 1},
    ]
    table = run("events", "ls", *days.options).stdout.splitlines()
    assert [row.split() for row in table] == [
        ["queue", "jobset", "day", "state", "entries"],
        ["q_1", "j", "2024-05-01", "compressed", "1"],
        ["q_1", "j", "2024-05-02", "hot", "1"],
        ["q_1", "j", "-", "late", "1"],
    ]


def test_an_empty_server(days: DaysServer) -> None:
    assert run("events", "ls", *days.options, "--json") == (0, "", "")
