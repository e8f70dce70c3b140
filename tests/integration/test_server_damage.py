"""What a server makes of torn and damaged files: cut and told, or refused with the place; never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.integration.server_process import COMMAND, ServerProcess, environment
from tidelog.ids import ShardId
from tidelog.journal.journal import Journal, Settings
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

WAIT_S_MAX = 30.0
FIRST_SEGMENT = "shard-0/journal-0000000000000000.dj0"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(arguments), cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


def try_to_serve(data: Path) -> subprocess.CompletedProcess[str]:
    ports = ["--port", "auto", "--http-port", "0", "--flight-port", "0"]
    return run(*COMMAND, "--data", str(data), *ports, cwd=data.parent)


def verify(data: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-P", "-m", "tidelog.cli", "journal", "verify", str(data), cwd=data.parent)


def facts(server: ServerProcess) -> dict[str, Any]:
    with server.client() as client:
        return dict(client.info("tidelog"))


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_rot_in_what_was_fsynced_last_is_refused_although_nothing_followed(tmp_path: Path, policy: str) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--fsync", policy) as server:
        with server.client() as client:
            before = written = 0
            while written != before + 1:  # else the server has vouched for something meanwhile
                before = facts(server)["cycle"]
                client.set("key", "v" * 50)
                written = facts(server)["cycle"]
        wait_for(lambda: bool(facts(server)["synced_cycle"] > written))
        rested = facts(server)["cycle"]
        time.sleep(1.5)
        assert facts(server)["cycle"] == rested, "an idle server goes on writing"
        server.kill()
    path = data / FIRST_SEGMENT
    content = bytearray(path.read_bytes())
    content[content.rindex(b"v" * 50) + 20] ^= 4  # of the last key
    path.write_bytes(content)
    for result in (try_to_serve(data), verify(data)):
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        assert f"{FIRST_SEGMENT}, frame 0, position" in result.stderr + result.stdout
        assert "was fsynced" in result.stderr + result.stdout
    assert path.read_bytes() == content


def test_a_torn_tail_is_set_aside_and_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--fsync", "never") as server, server.client() as client:
        client.set("first", "kept")
        size = (data / FIRST_SEGMENT).stat().st_size
        client.set("second", "torn")
        server.kill()
    path = data / FIRST_SEGMENT
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    with ServerProcess(data, has_http=True) as server, server.client() as client:
        assert client.get("first") == b"kept"
        assert client.get("second") is None
        told = client.info("persistence")
        assert (told["cut_tails"], told["cut_tail_bytes"], told["cut_tail_records"]) == (1, len(torn) - size, 1)
        assert told["cut_tail_first_ts"] == told["cut_tail_last_ts"] > 1_600_000_000_000_000
        assert Path(told["cut_tail_path"]) == data / "cut-tails/tail-1"
        assert (data / f"cut-tails/tail-1/{FIRST_SEGMENT}.from-{size}").read_bytes() == torn[size:]
        assert f"{len(torn) - size} bytes with 1 records (from ts {told['cut_tail_first_ts']}" in server.stderr
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
        assert f"\ntidelog_cut_tail_bytes {len(torn) - size}\n" in metrics
        assert "\ntidelog_cut_tail_records 1\n" in metrics
        assert "\ntidelog_cut_tails_total 1\n" in metrics
    with ServerProcess(data) as server, server.client() as client:
        told = client.info("persistence")
        assert (told["cut_tails"], told["cut_tail_bytes"], told["cut_tail_path"]) == (1, 0, "")


def test_an_unknown_opcode_is_refused_with_its_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server, server.client() as client:
        client.set("a", "1")
        assert server.terminate() == 0
    journal = Journal.open(
        SystemDisk(), str(data), SystemClock(), Settings(), apply=lambda _, __: None, new_epoch_id=lambda: 7
    )
    end = journal.writer.written.ends[0]
    assert end is not None
    journal.writer.append_one(ShardId(0), journal.hlc.next(), 0x3E, b"of a later version")
    journal.close()
    before = (data / FIRST_SEGMENT).read_bytes()
    place = f"{FIRST_SEGMENT}, frame 0, position {end.at}: opcode 0x3e is unknown: made by a newer version?"
    for result in (try_to_serve(data), verify(data)):
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        assert place in result.stderr + result.stdout
    repair = run(sys.executable, "-P", "-m", "tidelog.cli", "journal", "repair", str(data), cwd=tmp_path)
    assert (repair.returncode, place in repair.stderr) == (1, True), "it is no damage, and nothing is cut"
    assert (data / FIRST_SEGMENT).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2, but this version reads only 1: made by a newer version of Tidelog?"),
        ({"frame_bytes": 1 << 20}, "its frame_bytes is 1048576, but shard 0 was made with 2097152"),
        ({"slots": [[0, 16382]]}, "its slot ranges are not those of 1 shards"),
    ],
)
def test_a_meta_file_that_does_not_fit_is_refused_although_its_checksum_is_right(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server, server.client() as client:
        client.set("a", "1")
        assert server.terminate() == 0
    members = json.loads((data / "meta.json").read_text())
    members.pop("crc32c")
    members |= change
    crc = crc32c(json.dumps(members, sort_keys=True).encode())
    (data / "meta.json").write_text(json.dumps({**members, "crc32c": f"{crc:08x}"}))
    for result in (try_to_serve(data), verify(data)):
        assert result.returncode in (1, 2)
        assert "Traceback" not in result.stderr
        assert said in result.stderr + result.stdout
