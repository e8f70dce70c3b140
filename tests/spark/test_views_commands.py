"""`tidelog pipeline view` and `tidelog view check` as processes: what they leave behind, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, Outcome
from tests.spark.conftest import Peer

pytestmark = pytest.mark.xdist_group("spark")

SECONDS_MAX = 200
VIEWS = """
[views.by_state]
source = "prefix:order:"
sql = "select state, count(*) as n, sum(cast(amount as double)) as total from source group by state"
key = ["state"]

[views.all]
source = "prefix:order:"
sql = "select count(*) as n from source"
key = []
"""


def tidelog(*words: str) -> Outcome:
    done = subprocess.run(
        [*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_views_are_kept_until_the_command_is_stopped_and_can_be_checked(tide: Peer, tmp_path: Path) -> None:
    file, lake = tmp_path / "views.toml", str(tmp_path / "lake")
    file.write_text(VIEWS)
    tide.call("HSET", "order:1", "state", "new", "amount", "1.5")
    words = ["pipeline", "view", "--file", str(file), "--to", lake, "--url", tide.url, "--continuous", "--json"]
    client: Any = tide.client
    with subprocess.Popen(
        [*COMMAND, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: client.hget("view:by_state:new", "total") == b"1.5", process)
            tide.call("SET", "order:2", '{"state": "new", "amount": 2}')
            tide.call("HSET", "order:1", "state", "paid")
            wait_for(lambda: client.hget("view:by_state:paid", "n") == b"1", process)
            assert client.hgetall("view:by_state:new") == {b"state": b"new", b"n": b"1", b"total": b"2.0"}
            tide.call("DEL", "order:2")
            wait_for(lambda: not client.exists("view:by_state:new"), process)
            wait_for(lambda: client.hget("view:all:", "n") == b"1", process)
            busy = tidelog(*words[:-2], "--once")
            assert (busy.status, busy.stdout) == (3, "")
            assert "another job has the lease" in busy.stderr
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    assert process.returncode == 0, stderr
    found = [json.loads(line) for line in stdout.splitlines()]
    assert [each["kind"] for each in found] == ["view", "view", "summary"]
    assert found[0]["view_rows"] == 1
    assert client.hget("tidelog:pipeline:view", "state") == b"stopped"
    # What somebody spoils is found, and right again after the next run.
    tide.call("HSET", "view:by_state:paid", "n", "7")
    tide.call("HSET", "view:by_state:never", "n", "7")
    check = tidelog("view", "check", "--to", lake, "--url", tide.url, "--json")
    assert check.status == 1, check.stderr
    by_view = {each["view"]: each for each in check.objects}
    assert by_view["by_state"]["hashes"] == {"missing": [], "wrong": ["paid"], "extra": ["never"]}
    assert by_view["by_state"]["table"] == {"missing": [], "wrong": [], "extra": []}
    assert by_view["all"]["right"]
    # So is a view whose definition has changed: it is built anew, and the other one goes on.
    file.write_text(VIEWS.replace('count(*) as n from source"', 'max(cast(amount as double)) as most from source"'))
    again = tidelog(*words[:-2], "--once", "--json")
    assert again.status == 0, again.stderr
    versions = {each["view"]: each["version"] for each in again.objects if each["kind"] == "view"}
    assert versions == {"by_state": 1, "all": 2}
    assert client.hgetall("view:all:") == {b"most": b"1.5"}
    check = tidelog("view", "check", "--to", lake, "--url", tide.url)
    assert check.status == 0, check.stdout
    assert "right" in check.stdout
