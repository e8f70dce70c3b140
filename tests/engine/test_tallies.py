"""What is counted of each command."""

from __future__ import annotations

import pytest

from tidelog.engine.hot_commands import Commands
from tidelog.engine.tallies import TalliedRun, Tallies, Tally


def run_all(commands: Commands, _at: int, _out: list[bytes]) -> int:
    return len(commands)


def test_time_of_hot_calls_is_told_from_samples() -> None:
    tally = Tally()
    hot = TalliedRun(run_all, tally)
    assert hot.untimed == 1  # the first run is timed
    hot.add_sample(10, 0.001)
    tally.hot_calls = 1000
    tally.add(0.5)
    assert tally.calls == 1001
    assert tally.seconds == pytest.approx(0.5 + 0.1)


def test_without_samples_calls_are_taken_to_be_like_the_others() -> None:
    tally = Tally()
    tally.hot_calls = 3
    assert tally.seconds == 0
    tally.add(0.5)
    assert tally.seconds == 2


def test_the_time_of_a_transaction_is_that_of_one_exec() -> None:
    tallies = Tallies()
    runs = tallies.runs({b"MULTI": run_all, b"multi": run_all, b"get": run_all})
    runs[b"multi"].add_sample(5, 0.25)
    runs[b"get"].add_sample(5, 0.25)
    assert tallies.of("EXEC").sampled_calls == 1
    assert tallies.of("GET").sampled_calls == 5
    assert tallies.of("MULTI").sampled_calls == 0


def test_resetting_keeps_the_objects_that_others_count_on() -> None:
    tallies = Tallies()
    (hot,) = tallies.runs({b"GET": run_all}).values()
    hot.tally.hot_calls = 5
    tallies.of("SET").rejected = 1
    tallies.of("TTL")
    assert [name for name, _ in tallies.counted()] == ["GET", "SET"]
    tallies.reset()
    assert tallies.counted() == []
    hot.tally.hot_calls += 1
    assert [(name, tally.calls) for name, tally in tallies.counted()] == [("GET", 1)]
