"""What a job that follows a server prints while it runs, and whether anybody hears it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tidelog.cli.output.stdout import Output
from tidelog.cli.pipeline.runner import JobRun


@pytest.mark.parametrize("is_once", [True, False])
def test_a_reader_that_has_seen_enough_does_not_end_a_batch(monkeypatch: pytest.MonkeyPatch, is_once: bool) -> None:
    """As `head -1` does; a run without an end of its own is over then."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        run = JobRun("lake", Output(as_json=True), is_endless=not is_once)
        run.tell_batch({"ts": 1})
        assert json.loads(os.read(reading, 1000)) == {"kind": "batch", "ts": 1}
        assert not run.stop.is_set()
        os.close(reading)
        run.tell_batch({"ts": 2})
        assert run.stop.is_set() is not is_once
        run.tell_batch({"ts": 3})  # what is printed later goes nowhere


def test_people_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    JobRun("lake", Output(as_json=False)).tell_batch({"ts": 1})
    assert capsys.readouterr().out == ""
