"""`tidelog restore --lazy`: a new database that serves while its old entries are still in the copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import ENVIRONMENT, run
from tests.cli.copies import iso, shipped_history
from tests.integration.server_process import ServerProcess
from tests.integration.test_tiered_history import (
    ENTRIES,
    Place,
    folder,
    info,
    let_drop,
    place,
    require_all,
    wait_for,
    write,
)
from tidelog.system.object_store import open_object_store

__all__ = ["folder", "place"]


def wait_until_shipped(server: ServerProcess) -> None:
    with server.client() as client:
        wait_for(lambda: info(client, "shipping")["shipping_shipped_ts"] >= info(client, "tidelog")["last_ts"])


def database_of(data: Path) -> str:
    found: str = json.loads((data / "meta.json").read_text())["database_id"]
    return found


def test_a_new_database_serves_before_its_history_is_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.env.items():
        monkeypatch.setitem(ENVIRONMENT, name, value)
    data, new, other = tmp_path / "data", tmp_path / "new", f"{place.url}-other"
    with place.leader(data) as original, original.client() as client:
        write(client)
        let_drop(client)
        wait_until_shipped(original)

        plan = run("restore", "--from", place.url, "--data", new, "--lazy", "--dry-run", "--json")
        assert plan.status == 0, plan.stderr
        assert "nodes" not in [part["part"] for part in plan.of_kind("part")]
        outcome = run("restore", "--from", place.url, "--data", new, "--lazy", "--json")
        assert outcome.status == 0, outcome.stderr
        [told] = outcome.of_kind("restored")
        assert told["left_files"] == len(list(new.glob("shard-*/*.remote"))) > 0
        assert told["left_bytes"] > 0
        assert not list(new.glob("shard-*/nodes-*.bin"))
        assert not (new / "restored.json").exists()
        assert "database_id" not in json.loads((new / "meta.json").read_text())

        place.set("slow", to=True)
        with place.server(new, "--ship-to", other) as server, server.client() as copy:
            assert info(copy)["history_remote_files"] > 0, "it serves before"
            assert len(copy.xrange("s", count=20)) == 20, "from the copy"
            write(copy, ENTRIES + 1, 20)
            place.set("slow", to=False)
            wait_for(lambda: info(copy)["history_remote_files"] == 0, lambda: info(copy))
            require_all(copy, ENTRIES + 20)
            copy.save()
            wait_until_shipped(server)
            assert server.terminate() == 0
        assert database_of(new) != database_of(data)
        verified = run("journal", "verify", new, "--json")
        assert verified.status == 0, verified

        write(client, ENTRIES + 1, 5)
        wait_until_shipped(original)
        assert info(client, "shipping")["shipping_state"] == "shipping", "nobody has taken the copy over"
        require_all(client, ENTRIES + 5)
        assert original.terminate() == 0
    again = run("restore", "--from", other, "--data", tmp_path / "again", "--json")
    assert again.status == 0, again.stderr
    with place.server(tmp_path / "again") as server, server.client() as client:
        require_all(client, ENTRIES + 20)


def test_a_copy_in_a_folder_is_found_from_anywhere(tmp_path: Path) -> None:
    shipped_history(open_object_store(str(tmp_path / "copy")))
    outcome = run("restore", "--from", "copy", "--data", "new", "--lazy", cwd=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert "left in the copy" in outcome.stdout
    described = [json.loads(path.read_text()) for path in (tmp_path / "new").glob("shard-*/*.remote")]
    assert {each["url"] for each in described} <= {str(tmp_path / "copy")}
    assert run("journal", "verify", tmp_path / "new").status == 0


def test_moments_whose_history_goes_on_in_the_copy_are_refused(tmp_path: Path) -> None:
    shipped = shipped_history(open_object_store(str(tmp_path / "copy")))
    command = "restore", "--from", str(tmp_path / "copy"), "--data", tmp_path / "new", "--lazy"
    outcome = run(*command, "--at", iso(list(shipped.states)[-9]))
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert "Leave out --lazy" in outcome.stderr
    assert not (tmp_path / "new").exists()
    assert run(*command, "--at", iso(shipped.newest.lineages[-1].ts)).status == 0, "that is the newest"
