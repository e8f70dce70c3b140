"""`tidelog ship`: the directory of a stopped server is copied, also after a kill, and a server goes on with it."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run_on_terminal
from tests.cli.copies import Place, found, place
from tests.integration.server_process import ServerProcess
from tests.integration.test_lost_machines import shipping, wait_until_shipped
from tests.store.changes import change, open_store, run, state
from tidelog.journal.layout import LOCK
from tidelog.replication.message import LinkRole
from tidelog.replication.role_file import RoleFile, StoredRole
from tidelog.system.disk import SystemDisk

__all__ = ["place"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    store = open_store(SystemDisk(), 2, str(tmp_path / "data"))
    rng = random.Random(4)
    for _ in range(200):
        change(store, rng)
    store.journal.close()
    return tmp_path / "data"


def test_a_directory_is_copied_and_restored(place: Place, data: Path, tmp_path: Path) -> None:
    command: tuple[str | Path, ...] = ("ship", "--data", data, "--to", place.url, *place.key)
    outcome = invoke(*command, "--ship-keep", "0", "--ship-bandwidth", "50mb", "--json")
    assert outcome.status == 0, outcome.stderr
    [told] = outcome.of_kind("shipped")
    assert (told["begins_ts"], told["snapshot_ts"]) == (0, told["ts"])
    assert told["objects"] > 4

    again = invoke(*command, "--json").of_kind("shipped")[0]
    assert again["bytes"] < 200, "a list of objects that are needed no more, at most"
    assert again["ts"] == told["ts"]
    assert again["begins_ts"] == told["ts"], "it was written years ago: of what is that old, the newest state is kept"
    restored = invoke("restore", "--from", place.url, *place.key, "--data", tmp_path / "new")
    assert restored.status == 0, restored.stderr
    assert found(tmp_path / "new") == found(data)
    shown = run_on_terminal(*command)
    assert shown.status == 0, shown.stdout
    assert "snapshot" in shown.stdout


def test_killed_and_run_again(place: Place, tmp_path: Path) -> None:
    store = open_store(SystemDisk(), 2, str(tmp_path / "data"))
    rng = random.Random(4)
    for number in range(60):
        run(store, [b"SET", b"key%d" % number, rng.randbytes(20_000)])
    kept = state(store)
    store.journal.close()
    command = ("ship", "--data", str(tmp_path / "data"), "--to", place.url, *place.key)
    for pause_s in (0.4, 0.9, 1.6):
        with subprocess.Popen(
            [*COMMAND, *command, "--ship-bandwidth", "300kb"], env=ENVIRONMENT, stdout=subprocess.DEVNULL
        ) as process:
            time.sleep(pause_s)
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS_MAX)
    assert invoke(*command).status == 0
    assert invoke("restore", "--from", place.url, *place.key, "--data", tmp_path / "new").status == 0
    assert found(tmp_path / "new") == kept


def test_ctrl_c_is_130_and_leaves_the_directory_in_order(place: Place, data: Path) -> None:
    command = ["ship", "--data", str(data), "--to", place.url, *place.key, "--ship-bandwidth", "1kb"]
    with subprocess.Popen(
        [*COMMAND, *command], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + SECONDS_MAX
        while not (data / LOCK).exists() or not list((data / "snapshots").glob("snapshot-????????????????")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
    store = open_store(SystemDisk(), 1, str(data))
    assert len(store.journal.epochs) == 1, "the stop was a clean one"
    store.journal.close()


def test_what_cannot_be_is_one_line_and_2(place: Place, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    to = ("--to", place.url)
    assert invoke("snapshot", "--data", data, "--to", tmp_path / "backup").status == 0
    cases: tuple[tuple[tuple[str | Path, ...], str], ...] = (
        (("--data", tmp_path / "nowhere", *to), "not a data directory"),
        (("--data", tmp_path / "backup", *to), "is a snapshot"),
        (("--data", data, "--to", "s4://x"), "s4://"),
        (("--data", data, "--to", tmp_path / "file"), "file"),
        (("--data", data), "--to"),
        (to, "--data"),
        (("--data", data, *to, "--ship-keep", "soon"), "--ship-keep"),
        (("--data", data, *to, "--ship-bandwidth", "fast"), "--ship-bandwidth"),
        (("--data", data, *to, "--ship-key-file", tmp_path / "no-key"), "no-key"),
        (("--data", data, *to, "status"), "do not belong to"),
    )
    for arguments, reason in cases:
        outcome = invoke("ship", *arguments)
        assert outcome.status == 2, arguments
        assert reason in outcome.stderr, arguments
        assert "Traceback" not in outcome.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_directory_of_a_follower_is_refused(data: Path, tmp_path: Path) -> None:
    RoleFile(SystemDisk(), str(data)).store(StoredRole(LinkRole.FOLLOWER, ("127.0.0.1", 1)))
    outcome = invoke("ship", "--data", data, "--to", tmp_path / "copy")
    assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
    assert "follows another one" in outcome.stderr


def test_a_server_has_it_open_and_one_goes_on_later(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options: list[Any] = ["--ship-to", place.url, *place.key]
    env: dict[str, Any] = {name: value for name, value in ENVIRONMENT.items() if name.startswith("AWS_")}
    command: tuple[str | Path, ...] = ("ship", "--data", data, "--to", place.url, *place.key)
    with ServerProcess(data) as server:
        server.client().set("key", "one")
        outcome = invoke(*command)
        assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
        assert "--ship-to" in outcome.stderr
        assert server.terminate() == 0
    assert invoke(*command).status == 0
    with ServerProcess(data, *options, **env) as server:
        server.client().set("key", "two")
        wait_until_shipped(server)
        status = invoke("ship", "status", "--url", f"redis://127.0.0.1:{server.port}", "--json")
        assert status.status == 0, status.stdout
        assert server.terminate() == 0
    listed = invoke("backups", "ls", place.url, *place.key, "--json")
    assert len(listed.of_kind("lineage")) == 1, "the same lineage grows"

    with ServerProcess(
        tmp_path / "other", "--restore-from", place.url, "--restore-wait", "1s", *options, **env
    ) as heir:
        assert heir.client().get("key") == b"two"
        wait_until_shipped(heir)
        outcome = invoke(*command)
        assert outcome.status == 2, "the server that went on elsewhere wins"
        assert "another server has gone on" in outcome.stderr
        assert shipping(heir)["shipping_state"] == "shipping"
        assert heir.terminate() == 0
