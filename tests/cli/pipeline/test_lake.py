"""What `tidelog pipeline lake` says of itself."""

from __future__ import annotations

from tests.cli.command_line import invoke


def test_help_says_how_to_keep_a_secret() -> None:
    outcome = invoke("pipeline", "lake", "--help")
    assert outcome.status == 0
    assert "AWS_SECRET_ACCESS_KEY" in outcome.stdout
