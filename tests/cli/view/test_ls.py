"""`tidelog view ls` against a real server, with hashes as the job writes them."""

from __future__ import annotations

from tests.cli.view_hashes import Kept


def test_views_are_listed(kept: Kept) -> None:
    assert kept.view("ls").stdout.startswith("there are no views")
    assert kept.view("ls", "--json").stdout == ""
    kept.put("orders", new={"state": "new", "n": "2"})
    kept.put("b")
    outcome = kept.view("ls")
    assert (outcome.status, outcome.stderr) == (0, "")
    header, first, second = outcome.stdout.splitlines()
    assert header.split() == ["view", "state", "version", "rows", "source", "key", "sql"]
    assert first.split()[:4] == ["b", "done", "3", "0"]
    assert second.split()[:6] == ["orders", "done", "3", "1", "prefix:order:", "state"]
    assert "select state, count(*) as n from source" in second
    [_, found] = kept.view("ls", "--json").of_kind("view")
    age = found.pop("age_seconds")
    assert 0 <= age < 60
    sql = "select  state,\n count(*) as n from source"
    assert found == {
        "kind": "view",
        "view": "orders",
        "state": "done",
        "version": 3,
        "view_rows": 1,
        "source_rows": 7,
        "ts": 5,
        "source": "prefix:order:",
        "sql": sql,
        "key": ["state"],
    }


def test_a_view_that_says_little_is_listed_too(kept: Kept) -> None:
    kept.client.hset("tidelog:pipeline:view:v", "state", "running")
    kept.client.sadd("tidelog:pipeline:jobs", "view:v", "view:gone")
    [found] = kept.view("ls", "--json").objects
    assert (found["view"], found["version"], found["key"]) == ("v", None, [])
    assert kept.view("ls").status == 0
