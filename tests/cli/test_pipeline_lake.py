"""What `tidelog pipeline lake` prints while it runs, and whether anybody hears it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.cli.command_line import invoke
from tidelog.cli.output import Output
from tidelog.cli.pipeline_lake import _is_heard


def test_a_reader_that_has_seen_enough_does_not_end_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `head -1` does."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        output = Output(as_json=True)
        assert _is_heard(output, {"ts": 1})
        assert json.loads(os.read(reading, 1000)) == {"kind": "batch", "ts": 1}
        os.close(reading)
        assert not _is_heard(output, {"ts": 2})
        assert _is_heard(output, {"ts": 3}), "what is printed later goes nowhere"


def test_help_says_how_to_keep_a_secret() -> None:
    outcome = invoke("pipeline", "lake", "--help")
    assert outcome.status == 0
    assert "AWS_SECRET_ACCESS_KEY" in outcome.stdout
