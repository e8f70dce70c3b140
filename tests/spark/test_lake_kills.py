"""`tidelog pipeline lake` as a process: stopped by signals, killed under load, and refused in one line.

`--long` kills it `--kills` times, now the driver alone and now the process of a task before it. What a kill at each
commit leaves behind is tried in `test_lake`, quickly.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import run
from tests.integration.server_process import SOURCES, ServerProcess
from tests.spark.days_ledger import JOB_S_MAX, wait_until
from tests.spark.lake_check import Lake, check
from tests.spark.load import Load
from tests.spark.standalone import command_of, descendants
from tests.spark.test_lake import write

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1800)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as running:
        yield running


class LakeProcess:
    """The job in a process group of its own."""

    def __init__(self, port: int, folder: Path, *more: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELOG_", "SPARK_"))}
        environment |= {"PYTHONPATH": SOURCES, "XDG_CACHE_HOME": str(folder), "PYSPARK_PYTHON": sys.executable}
        words = ["--url", f"redis://127.0.0.1:{port}", "--to", str(folder / "lake"), "--lease-seconds", "2"]
        self.errors = folder / "job.stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tidelog.cli", "pipeline", "lake", *words, "--output", "json", *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def wait(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit status and what it printed."""
        out, _ = self.process.communicate(timeout=JOB_S_MAX)
        return self.process.returncode, [json.loads(line) for line in out.decode().splitlines()]

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=JOB_S_MAX)

    def __enter__(self) -> LakeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


class LakeLoad(Load):
    """Changes keys and appends entries."""

    def __init__(self, server: ServerProcess, draw: random.Random) -> None:
        super().__init__(server)
        self._draw = draw

    def _write(self) -> None:
        write(self._client, self._draw, 50)


def commits(folder: Path) -> int:
    return len(list((folder / "lake" / "changes" / "_delta_log").glob("*.json")))


def run_to_end(server: ServerProcess, folder: Path) -> list[dict[str, Any]]:
    with server.client() as client:
        wait_until("the end of the lease", lambda: not list(client.scan_iter("tidelog:pipeline:lease:*")))
    with LakeProcess(server.port, folder, "--once") as job:
        status, said = job.wait()
    assert status == 0, job.errors.read_text()
    return said


@pytest.mark.long
def test_a_lake_is_killed_under_load(server: ServerProcess, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    draw = random.Random(11)
    kills = pytestconfig.getoption("--kills")
    with server.client() as client:
        with LakeLoad(server, random.Random(12)):
            for number in range(kills):
                wait_until("the end of the lease", lambda: not list(client.scan_iter("tidelog:pipeline:lease:*")))
                before = commits(tmp_path)
                with LakeProcess(server.port, tmp_path, "--continuous", "--trigger-seconds", "0.2") as job:
                    wait_until("work", lambda before=before: commits(tmp_path) > before + 2)  # type: ignore[misc]
                    time.sleep(draw.uniform(0, 1.0))  # anywhere in what follows: there is nothing to wait for
                    if number % 2:
                        kill_a_worker(job, draw)
                        before = commits(tmp_path)
                        wait_until("more work", lambda before=before: commits(tmp_path) > before)  # type: ignore[misc]
                    assert job.process.poll() is None, job.errors.read_text()
                    job.kill()
        run_to_end(server, tmp_path)
        check(server.port, client, tmp_path / "lake")


def kill_a_worker(job: LakeProcess, draw: random.Random) -> None:
    """A Python process of a task; Spark does the task again."""
    workers = [pid for pid in descendants([job.process.pid]) if "pyspark" in command_of(pid)]
    workers = [pid for pid in workers if "daemon" in command_of(pid)]
    if workers:
        os.kill(draw.choice(workers), signal.SIGKILL)


@pytest.mark.long
def test_a_signal_stops_it_in_order(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        write(client, random.Random(1), 100)
        with LakeProcess(server.port, tmp_path, "--continuous") as job:
            wait_until("work", lambda: commits(tmp_path) > 2)
            job.process.send_signal(signal.SIGTERM)
            status, said = job.wait()
        assert status == 0, job.errors.read_text()
        assert [line["kind"] for line in said[-2:]] == ["batch", "summary"]
        assert said[-1]["stopped"] == "terminated"
        assert client.hget("tidelog:pipeline:lake", "state") == b"stopped"
        assert not list(client.scan_iter("tidelog:pipeline:lease:*"))
        said = run_to_end(server, tmp_path)
        assert said[-1]["kind"] == "summary"
        check(server.port, client, tmp_path / "lake")


# --- refused ----------------------------------------------------------------------------------------------------------


def lake(*more: str) -> tuple[int, str]:
    outcome = run("pipeline", "lake", *more)
    return outcome.status, outcome.stderr


@pytest.mark.long
def test_what_cannot_be_is_said_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{server.port}"
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "changes").mkdir(parents=True)
    (tmp_path / "full" / "changes" / "thesis.txt").write_text("all my work")
    to = str(tmp_path / "lake")
    for words, said in (
        (("--to", str(tmp_path / "full"), "--url", url), "is not a Delta table (thesis.txt): give another folder"),
        (("--to", str(tmp_path / "file"), "--url", url), "file"),
        (("--to", "", "--url", url), "--to is empty"),
        (("--to", to, "--url", "redis://127.0.0.1:1"), "127.0.0.1:1"),
        (("--to", to, "--url", "http://127.0.0.1"), "no URL of a server"),
        (("--to", to, "--url", url, "--prefix", "tidelog:pipeline:x"), "does not hold the reports of jobs"),
        (("--to", to, "--url", url, "--storage", "key"), "is not NAME=VALUE"),
        (("--to", to, "--url", url, "--storage", "key=1"), "is for object stores"),
        (("--to", to, "--url", url, "--password-file", str(tmp_path / "none")), "--password-file"),
        (("--to", to, "--url", url, "--conf", "nothing"), "--conf"),
    ):
        status, error = lake("--once", *words)
        assert (status, said in error) == (2, True), (words, error)
        assert error.count("\n") == 1, error
    assert not (tmp_path / "lake").exists()
    assert (tmp_path / "full" / "changes" / "thesis.txt").read_text() == "all my work"


def test_a_plain_redis_has_no_feed(redis_port: int, tmp_path: Path) -> None:
    status, error = lake("--once", "--to", str(tmp_path), "--url", f"redis://127.0.0.1:{redis_port}")
    assert (status, "is not a Tidelog" in error) == (2, True), error


@pytest.mark.long
def test_a_password_is_passed_on(spark: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3 cr:t/@\n")
    secret.chmod(0o600)
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(secret)) as server:
        with server.client(password="s3 cr:t/@") as client:
            client.set("a", "1")
        words = ("--once", "--to", str(tmp_path / "lake"), "--url", f"redis://127.0.0.1:{server.port}")
        status, error = lake(*words)
        assert (status, "let" in error or "NOAUTH" in error or "uthentication" in error) == (2, True), error
        status, error = lake(*words, "--password-file", str(secret))
        assert status == 0, error
    assert list(Lake(tmp_path / "lake").current()) == [(b"a", None)]
