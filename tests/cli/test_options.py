"""Options that commands about streams, feeds and jobs share."""

from __future__ import annotations

import pytest

from tests.cli.command_line import invoke

PLACE = "127.0.0.1:1"
NOBODY = f"redis://{PLACE}"


@pytest.mark.parametrize("words", [("stream", "ls"), ("feed", "--until-now"), ("view", "ls"), ("pipeline", "status")])
def test_the_environment_says_where_the_server_is(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("TIDELOG_URL", NOBODY)
    outcome = invoke(*words)
    assert outcome.status == 2
    assert PLACE in outcome.stderr


def test_an_option_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_URL", "redis://127.0.0.2:2")
    assert PLACE in invoke("stream", "ls", "--url", NOBODY).stderr
