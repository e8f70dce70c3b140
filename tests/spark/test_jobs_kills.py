"""Jobs that are stopped or killed at any moment: run again, and nothing is lost, doubled or out of order.

Readers read everything throughout, and compare it with a ledger of what was written. By default a cluster runs a job
once; `--long` kills `--kills` times on each server.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.server_process import ServerProcess
from tests.spark.days_ledger import JobProcess, Ledger, wait_until
from tests.spark.standalone import Standalone, command_of, descendants

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1800)]

SLOW: Final = ("--bytes-per-second", "150000", "--lease-seconds", "2")
"""Some streams a second, and a lease that does not outlive its job for long."""


@pytest.fixture
def ledgers(tidelog_process: ServerProcess, redis_port: int) -> Iterator[dict[str, Ledger]]:
    made = {"tidelog": Ledger(tidelog_process.port), "redis": Ledger(redis_port)}
    for ledger in made.values():
        with ledger.client() as client:
            client.flushall()
    yield made
    for ledger in made.values():
        ledger.stop_readers()


def run_to_end(ledger: Ledger, folder: Path, *more: str) -> None:
    with ledger.client() as client:
        wait_until("the end of the lease", lambda: not client.exists("tidelog:pipeline:lease:days"))
    with JobProcess(ledger.port, folder, "--lease-seconds", "2", *more) as job:
        status, out = job.wait()
    assert status == 0, (out, job.errors.read_text())
    ledger.check_end()


def kill_driver(ledger: Ledger, folder: Path, draw: random.Random) -> None:
    with ledger.client() as client:
        wait_until("the end of the lease", lambda: not client.exists("tidelog:pipeline:lease:days"))
    hot, _ = ledger.streams()
    left = draw.randrange(max(3, hot - 3), hot)
    with JobProcess(ledger.port, folder, *SLOW) as job:
        wait_until("work", lambda: ledger.streams()[0] <= left or job.process.poll() is not None)
        time.sleep(draw.uniform(0, 0.7))  # anywhere in the middle of what follows: there is nothing to wait for
        assert job.process.poll() is None, job.errors.read_text()
        job.kill()


def kill_workers(ledger: Ledger, folder: Path, draw: random.Random) -> None:
    """The Python processes that do the work, and their parent, while the driver lives on."""
    with ledger.client() as client:
        wait_until("the end of the lease", lambda: not client.exists("tidelog:pipeline:lease:days"))
    hot, _ = ledger.streams()
    with JobProcess(ledger.port, folder, *SLOW) as job:
        for kill in range(2):
            wait_until("work", lambda kill=kill: ledger.streams()[0] < hot - kill)  # type: ignore[misc]
            workers = [pid for pid in descendants([job.process.pid]) if "pyspark" in command_of(pid)]
            workers = [pid for pid in workers if "daemon" in command_of(pid)]
            if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
        status, out = job.wait()
    assert status == 0, (out, job.errors.read_text())


@pytest.mark.long
def test_a_killed_job_is_run_again(ledgers: dict[str, Ledger], tmp_path: Path) -> None:
    ledger = ledgers["tidelog"]
    ledger.fill("once", jobsets=2, days=3, events=300)
    ledger.start_readers()
    kill_driver(ledger, tmp_path, random.Random(1))
    assert sum(ledger.streams()) == 6
    run_to_end(ledger, tmp_path)
    assert ledger.passes > 3


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_job_in_order(ledgers: dict[str, Ledger], tmp_path: Path, number: signal.Signals) -> None:
    ledger = ledgers["redis"]
    ledger.fill("stopped", jobsets=2, days=10, events=300)
    ledger.start_readers()
    with JobProcess(ledger.port, tmp_path, *SLOW) as job, ledger.client() as client:
        wait_until("work", lambda: ledger.streams()[1] >= 2)
        with JobProcess(ledger.port, tmp_path, "--lease-seconds", "2") as second:
            assert second.wait()[0] == 3
        job.process.send_signal(number)
        status, out = job.wait()
        objects = [json.loads(line) for line in out.splitlines()]
        assert status == 128 + number
        summary = objects[-1]
        assert summary["stopped"] == ("terminated" if number == signal.SIGTERM else "interrupted")
        assert 2 <= summary["streams"] == len(objects) - 1 < 20
        assert not client.exists("tidelog:pipeline:lease:days")
        assert client.hget("tidelog:pipeline:compress", "state") == b"stopped"
    hot, compressed = ledger.streams()
    assert hot + compressed == 20
    assert compressed >= summary["streams"]
    ledger.stop_readers()
    assert not ledger.problems


@pytest.mark.long
@pytest.mark.parametrize("server", ["tidelog", "redis"])
def test_jobs_and_workers_are_killed_again_and_again(
    ledgers: dict[str, Ledger], server: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    ledger, draw = ledgers[server], random.Random(7)
    ledger.start_readers()
    for kill in range(pytestconfig.getoption("--kills") // 2):
        if ledger.streams()[0] < 6:
            ledger.fill(f"filling {kill}", jobsets=3, days=6, events=300)
        (kill_workers if kill % 4 == 3 else kill_driver)(ledger, tmp_path, draw)
        assert not ledger.problems, (kill, ledger.problems[:3])
    run_to_end(ledger, tmp_path)


# --- on a cluster -----------------------------------------------------------------------------------------------------

ON_LOOPBACK: Final = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m")


@pytest.mark.long
def test_a_cluster_runs_the_job(ledgers: dict[str, Ledger], tmp_path: Path) -> None:
    ledger = ledgers["redis"]
    ledger.fill("cluster", jobsets=2, days=3, events=100)
    with Standalone(tmp_path) as cluster:
        run_to_end(ledger, tmp_path, "--master", cluster.url, *ON_LOOPBACK)
        assert list(cluster.work.glob("0/app-*/*/tidelog/days/compressor.py")), "the worker did not get our sources"


@pytest.mark.long
@pytest.mark.parametrize("server", ["tidelog", "redis"])
def test_executors_of_a_cluster_are_killed(ledgers: dict[str, Ledger], server: str, tmp_path: Path) -> None:
    ledger, draw = ledgers[server], random.Random(3)
    ledger.fill("cluster", jobsets=4, days=6, events=300)
    ledger.start_readers()
    with Standalone(tmp_path, workers=2) as cluster:
        options = ("--master", cluster.url, *ON_LOOPBACK)
        with JobProcess(ledger.port, tmp_path, *SLOW, *options) as job:
            for kill in range(3):
                wait_until("work", lambda kill=kill: ledger.streams()[1] > 4 * kill)  # type: ignore[misc]
                executors = wait_until("an executor", cluster.executors)
                os.kill(draw.choice(executors), signal.SIGKILL)
            status, out = job.wait()
        assert status == 0, (out, job.errors.read_text())
        for number in (0, 1):
            assert list(cluster.work.glob(f"{number}/app-*/*/tidelog")), f"worker {number} did nothing"
    ledger.check_end()
    assert ledger.passes > 3
