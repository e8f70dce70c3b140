"""What `tidelog pipeline view` refuses, before Spark is started or anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import invoke
from tests.cli.view_hashes import Kept

VIEWS = """
[views.orders_by_state]
source = "prefix:order:"
sql = "select state, count(*) as n from source group by state"
key = ["state"]
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "declares no view"),
        ("views = 1", "declares no view"),
        (VIEWS.replace("count(*)", "median(x)"), "median() is not supported"),
        (VIEWS.replace('["state"]', '["other"]'), "not an output"),
        (VIEWS.replace("prefix:order:", "prefix:view:"), "would read what it writes"),
        (VIEWS.replace("group by state", "group by"), "GROUP BY names no column"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_touched(
    kept: Kept, tmp_path: Path, text: str, reason: str
) -> None:
    file, lake = tmp_path / "views.toml", tmp_path / "lake"
    file.write_text(text)
    before = kept.client.execute_command("FEED", "POSITION")
    outcome = invoke("pipeline", "view", "--file", str(file), "--to", str(lake), "--url", kept.url, "--once")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert str(file) in outcome.stderr
    assert reason in " ".join(outcome.stderr.split())
    assert not lake.exists()
    assert kept.client.execute_command("FEED", "POSITION") == before


@pytest.mark.parametrize("place", ["file", "file/lake", "ftp://host/lake"])
def test_a_lake_that_cannot_be_written_to_is_told_before_anything_is_touched(
    kept: Kept, tmp_path: Path, place: str
) -> None:
    file = tmp_path / "views.toml"
    file.write_text(VIEWS)
    (tmp_path / "file").write_text("x")
    to = place if "://" in place else str(tmp_path / place)
    before = kept.client.execute_command("FEED", "POSITION")
    outcome = invoke("pipeline", "view", "--file", str(file), "--to", to, "--url", kept.url, "--once")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert to in "".join(outcome.stderr.split())
    assert kept.client.execute_command("FEED", "POSITION") == before
