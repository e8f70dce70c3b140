"""`tidelog restore --from` on a copy: any moment, every option, and what is said if it cannot be."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run, run_on_terminal
from tests.cli.copies import KEY, Place, found, iso, place, ship_another_database, shipped_history
from tidelog.journal.layout import RESTORING
from tidelog.shipping.moments import covered_moments
from tidelog.system.counted_store import CountedStore

__all__ = ["place"]


def test_the_newest_moment_with_another_number_of_shards(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    new = tmp_path / "new"

    outcome = invoke("restore", "--from", place.url, *place.key, "--data", new, "--shards", "3", "--json")

    assert outcome.status == 0, outcome.stderr
    [told] = outcome.of_kind("restored")
    newest = shipped.newest
    assert (told["shards"], told["database"], told["manifest"]) == (3, newest.database_id, newest.number)
    assert told["ts"] == newest.lineages[-1].ts
    assert told["fetched_bytes"] > 0
    assert newest.database_id not in (new / "meta.json").read_text(), "it can never ship over the original"
    assert found(new) == shipped.at(newest.lineages[-1].ts)


def test_moments_of_both_lineages_between_manifests(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    for number, ts in enumerate(list(shipped.states)[11::31]):
        at = iso(ts) if number % 2 else str(ts)
        new = tmp_path / f"new-{number}"
        outcome = invoke("restore", "--from", place.url, *place.key, "--data", new, "--at", at, "--json")
        assert outcome.status == 0, outcome.stderr
        assert found(new) == shipped.at(ts)


def test_the_earlier_spelling_means_the_same(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    ts = list(shipped.states)[70]
    outcome = run_on_terminal("restore", place.url, *place.key, "--data", tmp_path / "new", "--until", iso(ts))
    assert outcome.status == 0, outcome.stdout
    assert found(tmp_path / "new") == shipped.at(ts)


def test_a_dry_run_fetches_only_the_manifest(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = shipped_history(place.objects)
    asked: list[str] = []
    get, read = CountedStore.get, CountedStore.read

    def noted_get(store: CountedStore, name: str) -> bytes:
        asked.append(name)
        return get(store, name)

    def noted_read(store: CountedStore, name: str, position: int, length: int) -> bytes:
        asked.append(name)
        return read(store, name, position, length)

    monkeypatch.setattr(CountedStore, "get", noted_get)
    monkeypatch.setattr(CountedStore, "read", noted_read)
    command: tuple[str | Path, ...] = (
        "restore",
        "--from",
        place.url,
        *place.key,
        "--data",
        tmp_path / "new",
        "--dry-run",
    )

    outcome = invoke(*command, "--json")
    early = invoke(*command, "--json", "--at", str(list(shipped.states)[3]))
    table = invoke(*command)

    assert (outcome.status, early.status, table.status) == (0, 0, 0)
    assert not (tmp_path / "new").exists()
    assert {name.partition("/")[2].partition("-")[0].partition(".")[0] for name in asked} <= {"manifest", "base"}
    [plan], [before] = outcome.of_kind("plan"), early.of_kind("plan")
    newest = shipped.newest
    assert plan["lineage"] == newest.lineages[-1].name != before["lineage"] == newest.lineages[0].name
    assert plan["snapshot_ts"] == max(newest.lineages[-1].snapshots)
    assert before["snapshot_ts"] == 0
    assert sum(part["bytes"] for part in outcome.of_kind("part")) == plan["bytes"] > 0
    assert plan["ts"] == newest.lineages[-1].ts
    for word in ("lineage", "snapshot", "nodes", "journal", "total", "moment", newest.database_id):
        assert word in table.stdout


def test_a_moment_that_is_not_covered_is_refused_with_dates(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    last = covered_moments(shipped.newest)[-1].last
    outcome = invoke(
        "restore", "--from", place.url, *place.key, "--data", tmp_path / "new", "--at", "2031-01-01T00:00:00Z"
    )
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert "2031-01-01T00:00:00.000000Z" in outcome.stderr
    assert iso(last) in outcome.stderr
    assert not (tmp_path / "new").exists()


def test_several_databases_have_to_be_told_apart(place: Place, tmp_path: Path) -> None:
    one = shipped_history(place.objects)
    other = ship_another_database(place.objects)
    command: tuple[str | Path, ...] = ("restore", "--from", place.url, *place.key, "--data", tmp_path / "new")

    outcome = invoke(*command)
    assert outcome.status == 2
    for word in ("--database", other, one.newest.database_id):
        assert word in outcome.stderr
    outcome = invoke(*command, "--database", "nonsense")
    assert outcome.status == 2
    assert "has no database nonsense" in outcome.stderr
    assert invoke(*command, "--database", one.newest.database_id).status == 0
    assert found(tmp_path / "new") == one.at(one.newest.lineages[-1].ts)


def test_keys_that_are_missing_or_wrong(tmp_path: Path) -> None:
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    key.write_bytes(KEY)
    wrong.write_bytes(bytes(32))
    (tmp_path / "no-key").write_text("nothing")
    sealed, plain = Place(str(tmp_path / "sealed"), str(key)), Place(str(tmp_path / "plain"))
    shipped_history(sealed.objects)
    shipped_history(plain.objects)
    for url, key_file, reason in (
        (sealed.url, None, "is encrypted, with key"),
        (sealed.url, wrong, "encrypted with another key"),
        (plain.url, key, "is not encrypted"),
        (plain.url, tmp_path / "nowhere", "nowhere"),
        (plain.url, tmp_path / "no-key", "no-key"),
    ):
        option = () if key_file is None else ("--ship-key-file", key_file)
        commands: tuple[tuple[str | Path, ...], ...] = (
            ("restore", "--from", url, "--data", tmp_path / "new"),
            ("backups", "ls", url),
        )
        for command in commands:
            outcome = invoke(*command, *option)
            assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1), outcome.stderr
            assert reason in outcome.stderr
    assert not (tmp_path / "new").exists()


def test_bad_input_is_one_line_or_usage(place: Place, tmp_path: Path) -> None:
    shipped_history(place.objects)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    new = ("--data", str(tmp_path / "new"))
    source = ("--from", place.url, *place.key)
    cases: tuple[tuple[tuple[str | Path, ...], str], ...] = (
        ((*source, "--data", tmp_path / "full"), "not empty"),
        ((*source, "--data", tmp_path / "no" / "where"), "does not exist"),
        ((*source, *new, "--at", "soon"), "neither a number"),
        ((*source, *new, "--lazy", "--shards", "2"), "leave out"),
        ((*source, *new, "--at", "5", "--until", "5"), "twice"),
        ((*source, place.url, *new), "twice"),
        (new, "--from"),
        (("--from", tmp_path / "full", *new), "no copy of a database"),
        (("--from", tmp_path / "nowhere", *new), "not a data directory"),
        (("--from", "s4://bucket/x", *new), "s4://"),
        (("--from", "s3://", *new), "names no bucket"),
    )
    for arguments, reason in cases:
        outcome = invoke("restore", *arguments)
        assert outcome.status == 2, arguments
        assert reason in outcome.stderr, arguments
        assert "Traceback" not in outcome.stderr
        assert not (tmp_path / "new").exists()


def test_what_is_about_copies_is_refused_of_backups(tmp_path: Path) -> None:
    from tests.cli.test_restore import Filled

    filled = Filled(tmp_path)
    for option in (("--dry-run",), ("--lazy",), ("--database", "x"), ("--ship-key-file", "x")):
        outcome = invoke("restore", "--from", filled.path, "--data", tmp_path / "new", *option)
        assert outcome.status == 2
        assert "for copies" in outcome.stderr
    outcome = invoke("restore", "--from", f"file://{filled.path}", "--data", tmp_path / "new")
    assert outcome.status == 0, outcome.stderr
    assert found(tmp_path / "new") == filled.last


def test_one_that_did_not_finish_is_refused_and_begun_anew(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    new = tmp_path / "new"
    (new / "shard-0").mkdir(parents=True)
    (new / RESTORING).touch()
    (new / "shard-0" / "journal-0000000000000000.dj0").write_bytes(b"half")
    refused = run("ship", "--data", new, "--to", tmp_path / "other")
    assert refused.status == 2
    outcome = invoke("restore", "--from", place.url, *place.key, "--data", new)
    assert outcome.status == 0, outcome.stderr
    assert found(new) == shipped.at(shipped.newest.lineages[-1].ts)


def test_a_killed_restore_never_leaves_half_of_the_data(
    place: Place, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    shipped = shipped_history(place.objects)
    newest = shipped.at(shipped.newest.lineages[-1].ts)
    command: tuple[str | Path, ...] = ("restore", "--from", place.url, *place.key, "--data")
    began = time.monotonic()
    subprocess.run(
        [*COMMAND, *command, str(tmp_path / "whole")], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
    )
    took_s = time.monotonic() - began
    for part in range(1, 8, 1 if pytestconfig.getoption("--long") else 3):
        new = tmp_path / f"new-{part}"
        with subprocess.Popen([*COMMAND, *command, str(new)], env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
            time.sleep(took_s * part / 8)
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS_MAX)
        assert list(tmp_path.glob("tmp*")) == [], "nothing is left beside it"
        if (new / RESTORING).exists() or not (new / "meta.json").exists():
            assert invoke(*command, new).status == 0
        assert found(new) == newest


def test_damage_of_the_copy_is_1(place: Place, tmp_path: Path) -> None:
    shipped = shipped_history(place.objects)
    lineage = shipped.newest.lineages[0]
    for name in lineage.objects():
        if "/shard-0/" in name and "snapshots/" not in name:
            place.objects.delete(f"{shipped.newest.database_id}/{name}")
    at = str(list(shipped.states)[10])
    outcome = invoke("restore", "--from", place.url, *place.key, "--data", tmp_path / "new", "--at", at)
    assert (outcome.status, outcome.stderr.count("\n")) == (1, 1), outcome.stderr
    assert "deleted by something else than Tidelog" in outcome.stderr
    assert not (tmp_path / "new" / "meta.json").exists()
