"""`tidelog view show` against a real server, with hashes as the job writes them."""

from __future__ import annotations

import pytest

from tests.cli.command_line import invoke
from tests.cli.view_hashes import Kept


def test_rows_are_shown(kept: Kept) -> None:
    kept.put("orders", new={"state": "new", "n": "2"}, old={"state": "old"}, **{"%": {"n": "1"}})
    kept.put("orders2", other={"n": "9"})
    outcome = kept.view("show", "orders")
    assert outcome.status == 0
    header, *rows = (line.split() for line in outcome.stdout.splitlines())
    assert set(header) == {"key", "state", "n"}
    assert [row[0] for row in rows] == ["%", "new", "old"]
    objects = kept.view("show", "orders", "--json").objects
    assert objects[1] == {"kind": "row", "key": "new", "fields": {"state": "new", "n": "2"}}
    assert len(objects) == 3
    outcome = kept.view("show", "orders", "--limit", "1")
    assert outcome.stdout.splitlines()[-1] == "and 2 more: see --limit"
    assert len(kept.view("show", "orders", "--limit", "1", "--json").objects) == 1


def test_a_view_without_rows_is_one_and_another_name_is_none(kept: Kept) -> None:
    kept.put("empty")
    assert kept.view("show", "empty").status == 0
    outcome = kept.view("show", "nobody")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "there is no view 'nobody'" in outcome.stderr


@pytest.mark.parametrize("name", ["*", "o*", "order?", "[o]rders", "orders\\", "\\*"])
def test_a_name_is_no_pattern(kept: Kept, name: str) -> None:
    kept.put("orders", new={"state": "new"})
    outcome = kept.view("show", name)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "there is no view" in outcome.stderr
    kept.put(name, row={"n": "1"})
    assert [each["key"] for each in kept.view("show", name, "--json").objects] == ["row"]


def test_without_a_server_nothing_is_shown() -> None:
    for words in (["ls"], ["show", "v"]):
        outcome = invoke("view", *words, "--url", "redis://127.0.0.1:1")
        assert (outcome.status, outcome.stdout) == (2, "")
        assert outcome.stderr
