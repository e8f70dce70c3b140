"""What a job that follows a server prints while it runs, and whether anybody hears it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tidelog.cli.output import Output
from tidelog.cli.pipeline_follow import Following


@pytest.mark.parametrize("is_once", [True, False])
def test_a_reader_that_has_seen_enough_does_not_end_a_batch(monkeypatch: pytest.MonkeyPatch, is_once: bool) -> None:
    """As `head -1` does; a run without an end of its own is over then."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        following = Following("lake", Output(as_json=True), is_once=is_once)
        following.tell_batch({"ts": 1})
        assert json.loads(os.read(reading, 1000)) == {"kind": "batch", "ts": 1}
        assert not following.stop.is_set()
        os.close(reading)
        following.tell_batch({"ts": 2})
        assert following.stop.is_set() is not is_once
        following.tell_batch({"ts": 3})  # what is printed later goes nowhere


def test_people_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    Following("lake", Output(as_json=False), is_once=True).tell_batch({"ts": 1})
    assert capsys.readouterr().out == ""
