"""`tidelog ship status`: a server that ships, falls behind, fails, or keeps no copy; and the copy itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.cli.command_line import Outcome, invoke, run_on_terminal
from tests.cli.copies import Place, place, shipped_history
from tests.integration.server_process import ServerProcess
from tests.integration.test_lost_machines import WAIT_S_MAX, shipping, wait_until_shipped

__all__ = ["place"]


def ask(server: ServerProcess, *options: str) -> Outcome:
    return invoke("ship", "status", "--url", f"redis://127.0.0.1:{server.port}", *options)


def test_a_server_that_ships_is_fine(place: Place, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--ship-to", place.url, *place.key) as server:
        server.client().set("key", "x")
        wait_until_shipped(server)
        outcome = ask(server, "--json")
        assert outcome.status == 0, outcome.stdout
        [told] = outcome.of_kind("shipping")
        assert (told["state"], told["is_fine"], told["error"], told["url"]) == ("shipping", True, "", place.url)
        assert told["lag_seconds"] < 30
        assert told["objects"] > 0
        assert told["bytes_per_second"] >= 0
        shown = run_on_terminal("ship", "status", "--url", f"redis://127.0.0.1:{server.port}")
        assert shown.status == 0
        for word in ("state", "behind", "up to", "bytes/s", "failures"):
            assert word in shown.stdout
        from_copy = invoke("ship", "status", "--from", place.url, *place.key, "--json")
        assert from_copy.status == 0, from_copy.stdout
        [told] = from_copy.of_kind("copy")
        assert told["age_seconds"] < 30
        assert told["ts"] > 0
        assert told["moments"][0]["from_ts"] == 0
        assert server.terminate() == 0


def test_a_server_that_fails_or_keeps_no_copy(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "alone") as server:
        outcome = ask(server)
        assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
        assert "without --ship-to" in outcome.stderr
        assert server.terminate() == 0
    nowhere: dict[str, Any] = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "a-secret-that-is-not-told",
        "AWS_REGION": "us-east-1",
    }
    with ServerProcess(tmp_path / "data", "--ship-to", "s3://bucket/copy", **nowhere) as server:
        deadline = time.monotonic() + WAIT_S_MAX
        while shipping(server)["shipping_state"] != "failing":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        outcome = ask(server, "--json")
        assert outcome.status == 1
        [told] = outcome.of_kind("shipping")
        assert (told["state"], told["is_fine"]) == ("failing", False)
        assert told["failures"] > 0
        assert told["error"]
        assert "a-secret" not in outcome.stdout
        assert server.terminate() == 0


def test_a_copy_that_nobody_ships_to_any_more(place: Place) -> None:
    shipped_history(place.objects)
    outcome = invoke("ship", "status", "--from", place.url, *place.key, "--json")
    assert outcome.status == 1, "it was made long ago"
    [told] = outcome.of_kind("copy")
    assert told["is_fine"] is False
    assert len(told["moments"]) == 2
    assert told["age_seconds"] > 24 * 3600
    shown = invoke("ship", "status", "--from", place.url, *place.key)
    assert "moments" in shown.stdout


def test_bad_input(place: Place, tmp_path: Path) -> None:
    for arguments, reason in (
        (("--from", tmp_path / "nowhere"), "does not exist"),
        (
            ("--from", place.url, *place.key),
            "no copy of a database" if place.url.startswith("s3") else "does not exist",
        ),
        (("--database", "x"), "--from"),
        (("--url", "redis://127.0.0.1:9"), "no server answers"),
        (("--url", "nonsense://x"), "nonsense"),
    ):
        outcome = invoke("ship", "status", *arguments)
        assert outcome.status == 2, arguments
        assert reason in outcome.stderr, outcome.stderr
        assert "Traceback" not in outcome.stderr
