"""`tidelog backups ls`: databases, lineages, moments and gaps, snapshots, and what is announced to go."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command_line import invoke, run_on_terminal
from tests.cli.copies import Place, iso, place, ship_another_database, shipped_history
from tests.shipping.copies import Shipped, succeeded
from tidelog.shipping.lineage import total_bytes
from tidelog.shipping.moments import covered_moments

__all__ = ["place"]


def test_what_there_is_to_restore(place: Place) -> None:
    shipped = shipped_history(place.objects)
    newest = shipped.newest
    outcome = invoke("backups", "ls", place.url, *place.key, "--json")
    assert outcome.status == 0, outcome.stderr
    [database] = outcome.of_kind("database")
    assert (database["database"], database["manifest"]) == (newest.database_id, newest.number)
    assert database["bytes"] == total_bytes(newest.lineages)
    assert database["is_encrypted"] is (place.key_file is not None)
    assert database["shipped_us"] == newest.made_us
    moments = [(each["from_ts"], each["to_ts"]) for each in outcome.of_kind("moments") if each["state"] == "covered"]
    assert moments == [(run.first, run.last) for run in covered_moments(newest)]
    lineages = outcome.of_kind("lineage")
    assert [each["lineage"] for each in lineages] == [each.name for each in newest.lineages]
    assert lineages[0]["ends_ts"] == newest.lineages[0].ends_ts
    assert len(outcome.of_kind("snapshot")) == sum(len(each.snapshots) for each in newest.lineages)
    going = outcome.of_kind("going")
    assert sum(each["objects"] for each in going) == sum(each.names_count for each in newest.going)

    table = invoke("backups", "ls", place.url, *place.key).stdout
    assert newest.database_id in table
    assert "the beginning" in table
    assert iso(covered_moments(newest)[-1].last) in table
    assert ("yes" in table) is (place.key_file is not None)
    shown = run_on_terminal("backups", "ls", place.url, *place.key)
    assert shown.status == 0
    assert "grows" in shown.stdout


def test_a_gap_is_seen(place: Place) -> None:
    first = Shipped(place.objects)
    first.begin()
    first.change(20)
    first.ship()
    second = succeeded(first, finishes=False)
    second.change(10)
    second.save()

    outcome = invoke("backups", "ls", place.url, *place.key, "--json")
    before, gap, after = outcome.of_kind("moments")
    assert [each["state"] for each in (before, gap, after)] == ["covered", "gap", "covered"]
    assert (gap["from_ts"], gap["to_ts"], gap["lineage"]) == (before["to_ts"] + 1, after["from_ts"] - 1, None)
    assert "(a gap)" in invoke("backups", "ls", place.url, *place.key).stdout
    refused = invoke("restore", "--from", place.url, *place.key, "--data", "new", "--at", str(gap["to_ts"]))
    assert refused.status == 2
    assert iso(after["from_ts"]) in refused.stderr


def test_several_databases(place: Place) -> None:
    one = shipped_history(place.objects).newest.database_id
    other = ship_another_database(place.objects)
    outcome = invoke("backups", "ls", place.url, *place.key, "--json")
    assert {each["database"] for each in outcome.of_kind("database")} == {one, other}
    assert other in invoke("backups", "ls", place.url, *place.key).stdout
    outcome = invoke("backups", "ls", place.url, *place.key, "--database", other, "--json")
    assert {each["database"] for each in outcome.objects} == {other}


def test_nothing_there_is_one_line_and_2(place: Place, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for url, options, reason in (
        (str(tmp_path / "empty"), (), "no copy of a database"),
        (str(tmp_path / "nowhere"), (), "does not exist"),
        (place.url, place.key, "no copy" if place.url.startswith("s3") else "does not exist"),
        ("ftp://x", (), "ftp://"),
    ):
        outcome = invoke("backups", "ls", url, *options)
        assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1), outcome.stderr
        assert reason in outcome.stderr
    assert not (tmp_path / "nowhere").exists()
    shipped_history(place.objects)
    outcome = invoke("backups", "ls", place.url, *place.key, "--database", "x")
    assert outcome.status == 2
    assert "has no database x" in outcome.stderr
