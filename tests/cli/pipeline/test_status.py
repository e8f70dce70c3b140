"""`tidelog pipeline status` against a real server, with hashes as jobs write them, and as nobody should."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, Outcome, invoke, run_on_terminal
from tests.cli.running_command import RunningCommand
from tests.days.servers import Servers
from tests.integration.server_process import ServerProcess


class Reported(NamedTuple):
    """A server, and jobs that reported to it."""

    url: str
    client: Any

    def report(self, job: str | bytes, **fields: Any) -> None:
        name = job.encode() if isinstance(job, str) else job
        told = {"state": "running", "updated_ms": time.time_ns() // 1_000_000, "token": 3, "last_error": ""}
        self.client.hset(b"tidelog:pipeline:" + name, mapping={**told, **fields})
        self.client.sadd("tidelog:pipeline:jobs", name)

    def visible(self) -> int:
        return int(self.client.execute_command("FEED", "POSITION")[0][1])

    def status(self, *more: str) -> Outcome:
        return invoke("pipeline", "status", "--url", self.url, *more)


@pytest.fixture
def server(servers: Servers) -> Iterator[Reported]:
    client = servers.client("tidelog-RESP2")
    yield Reported(f"redis://127.0.0.1:{servers.port('tidelog-RESP2')}", client)
    client.close()


def test_a_table_of_all_jobs(server: Reported) -> None:
    figures = {"rows": 1204000, "rows_per_second": 20310.4, "batches": 12, "batch_seconds": 0.382}
    server.client.set("k", "v")
    server.report("lake", ts=server.visible(), lag_seconds=99, lag_records=99, **figures)
    server.report("compress", state="done", streams=6, last_error="x" * 100)
    server.report("view", updated_ms=time.time_ns() // 1_000_000 - 11_000)
    outcome = server.status()
    assert (outcome.status, outcome.stderr) == (0, "")
    header, compress, lake, view = (line.split() for line in outcome.stdout.splitlines())
    assert header == ["job", "state", "heard", "lag", "records", "rows", "rows/s", "batch", "days", "last", "error"]
    assert compress[:2] == ["compress", "done"]
    assert compress[-1] == "x" * 60 + "…"
    assert lake[:2] == ["lake", "running"]
    assert lake[6:] == ["6", "1204000", "20310", "0.38", "s", "-", "-"], "two records for each report"
    assert view[:2] == ["view", "silent"]


def test_what_was_done_to_days(server: Reported) -> None:
    server.report("compress", state="done", streams=1200, events=9, ratio=9.14, left_hot=3, failed=2, skipped=1)
    server.report("expire", state="done", jobsets=4, days=12, failed=0)
    text = server.status().stdout
    assert "1,200 compressed, 3 left hot, 2 failed, 9.14 times smaller" in text
    assert "12 removed  " in text


def test_lag_is_of_the_moment(server: Reported) -> None:
    server.client.set("k", "v")
    ts = server.visible()
    for number in range(20):
        server.client.set("k", number)
    server.report("lake", ts=ts, lag_seconds=0, lag_records=0)
    server.report("expire", state="done", lag_records=5)
    expire, lake = server.status("--json").objects
    assert lake["lag_records"] == 24  # two for each report
    assert 0 < lake["lag_seconds"] <= (server.visible() - ts) / 1e6
    assert expire["lag_records"] == 5
    server.client.hset("tidelog:pipeline:lake", "ts", 0)
    assert server.status("lake", "--json").objects[0]["lag_seconds"] < 3600, "longer than there is a journal"
    server.client.hset("tidelog:pipeline:lake", "ts", server.visible() + 10**9)
    assert [server.status("lake", "--json").objects[0][f"lag_{name}"] for name in ("seconds", "records")] == [0, 0]


def test_json_has_all_fields(server: Reported) -> None:
    server.report("lake", rows=3, ratio=1.5, nothing="", table="changes", kind="lie", big=2**60, odd="nan")
    server.client.hset("tidelog:pipeline:lake", "job", "lie")
    [told] = server.status("--json").of_kind("job")
    assert told["job"] == "lake"
    assert (told["rows"], told["ratio"], told["nothing"], told["table"], told["big"], told["odd"]) == (
        3, 1.5, None, "changes", 2**60, "nan",
    )  # fmt: skip
    assert (told["state"], told["token"], told["last_error"]) == ("running", 3, None)
    assert 0 <= told["age_seconds"] < 10


def test_jobs_are_chosen_with_their_parts(server: Reported) -> None:
    for job in ("view", "view:a", "view:b", "viewer", "lake"):
        server.report(job)

    def jobs(*names: str) -> list[str]:
        return [told["job"] for told in server.status(*names, "--json").objects]

    assert jobs() == ["lake", "view", "view:a", "view:b", "viewer"]
    assert jobs("view") == ["view", "view:a", "view:b"]
    assert jobs("view:b", "lake") == ["lake", "view:b"]
    outcome = server.status("nothing")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "no job 'nothing' has reported" in outcome.stderr


def test_there_are_no_jobs(server: Reported) -> None:
    assert server.status().stdout == "no job has reported to this server, in this database\n"
    assert server.status("--json").stdout == ""
    server.report("lake")
    assert "no job" in server.status("--database", "3").stdout


def test_bad_content(server: Reported) -> None:
    server.client.sadd("tidelog:pipeline:jobs", "string", "gone")
    server.client.set("tidelog:pipeline:string", "x")
    server.report(b"\x1b[2J\xff", rows="many", updated_ms="soon", ts="-5", lag_seconds="inf", last_error=b"\xfe\n")
    server.report("ts", ts="9" * 30, rows="1e400")
    outcome = server.status()
    assert outcome.status == 0
    assert "\x1b" not in outcome.stdout
    lines = outcome.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[1:8] == ["silent", "-", "-", "-", "-", "-", "-"]
    first, second = server.status("--json").objects
    assert (first["job"], first["rows"], first["age_seconds"]) == ("\x1b[2J\\xff", "many", None)
    assert second["ts"] == int("9" * 30)
    server.client.delete("tidelog:pipeline:jobs")
    server.client.set("tidelog:pipeline:jobs", "x")
    assert server.status().status == 2


def test_any_redis_will_do(servers: Servers) -> None:
    client = servers.client("redis-RESP2")
    redis = Reported(f"redis://127.0.0.1:{servers.port('redis-RESP2')}", client)
    redis.report("compress", streams=6, ts=5, lag_seconds=7)
    [told] = redis.status("--json").objects
    assert (told["streams"], told["lag_seconds"]) == (6, 7)


def test_no_server() -> None:
    outcome = invoke("pipeline", "status", "--url", "redis://127.0.0.1:1")
    assert outcome.status == 2
    assert "no server answers" in outcome.stderr


def test_silence_is_red_on_a_terminal(server: Reported) -> None:
    server.report("lake", updated_ms=1, rows=1234567)
    server.report("view")
    shown = run_on_terminal("pipeline", "status", "--url", server.url).stdout
    assert "\x1b[1;31msilent" in shown
    assert "\x1b[32mrunning" in shown
    assert "1,234,567" in shown


def test_watching_in_a_pipe_prints_lines(server: Reported) -> None:
    server.report("lake", rows=1)
    with subprocess.Popen(
        [*COMMAND, "pipeline", "status", "--watch", "--json", "--url", server.url],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 1
        server.report("lake", rows=2)
        assert any(json.loads(process.stdout.readline())["rows"] == 2 for _ in range(10))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_watching_on_a_terminal_redraws(server: Reported) -> None:
    server.report("lake", rows=1111)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "pipeline", "status", "lake", "-w", "--url", server.url],
        env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while b"1,111" not in seen:
            seen += os.read(ours, 65536)
        server.report("lake", rows=2222)
        while b"2,222" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        os.close(ours)


def test_watching_goes_on_when_the_server_is_back(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        url = f"redis://127.0.0.1:{server.port}"
        Reported(url, server.client()).report("lake", rows=1)
        with RunningCommand("pipeline", "status", "--watch", "--json", "--url", url) as watching:
            assert watching.line()["rows"] == 1
            server.terminate()
            assert watching.told().startswith("tidelog: connection lost (")
            with ServerProcess(tmp_path / "data", instead_of=server):
                assert watching.told() == "tidelog: connected again\n"
                assert watching.line()["rows"] == 1
