"""The lake and the views with SIGKILL under load: drivers with their Java, Python workers, executors of a cluster.

20 times here, and as often on a cluster. When it strikes is drawn from a seed; where it finds the job is up to the
machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.integration.server_process import ServerProcess, environment
from tests.spark.load import Load
from tests.spark.pipeline_world import PipelineLoad, PipelineProcess, check_all, wait_until
from tests.spark.standalone import Standalone

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3600), pytest.mark.long]

KILLS: Final = 20
KILL_S_MAX: Final = 3.0
JOBS: Final = ("lake", "view")


class Pipeline:
    """Both jobs, each begun again when it was killed."""

    def __init__(self, server: ServerProcess, folder: Path, *more: str) -> None:
        self.url = f"redis://127.0.0.1:{server.port}"
        self._client: Any = server.client()
        self._folder = folder
        self._more = more
        self.jobs: dict[str, PipelineProcess] = {}
        self._seen: dict[str, tuple[bytes | None, int]] = {}

    def begin(self) -> None:
        """Those that do not run."""
        for name in JOBS:
            if name not in self.jobs:
                self._wait_for_lease(name)
                more = ("--continuous", "--no-progress", *self._more)
                self.jobs[name] = PipelineProcess(name, self.url, self._folder, *more)

    def _wait_for_lease(self, name: str) -> None:
        pattern = f"tidelog:pipeline:lease:{name}:*"
        wait_until(lambda: not any(map(self._client.exists, self._client.scan_iter(pattern))), f"the lease of {name}")

    def wait_for_batches(self) -> None:
        """Each job has done something since it began, and since this was last asked."""
        for name, job in self.jobs.items():
            wait_until(lambda name=name: self._has_moved(name), f"a batch of {name}", job)  # type: ignore[misc]

    def _has_moved(self, name: str) -> bool:
        token, batches, state = self._client.hmget(f"tidelog:pipeline:{name}", "token", "batches", "state")
        seen = self._seen.get(name, (None, 0))
        if state != b"running" or not batches:
            return False
        if token == seen[0] and int(batches) <= seen[1]:
            return False
        if token != seen[0] and int(batches) < 1:
            return False
        self._seen[name] = (token, int(batches))
        return True

    def kill(self, name: str) -> None:
        self.jobs.pop(name).kill()

    def close(self) -> None:
        for job in self.jobs.values():
            job.kill()

    def finish(self) -> None:
        """End what runs in order, then take up all that is left."""
        for job in self.jobs.values():
            assert job.terminate() == 0, job.tail()
        self.jobs = {}
        for name in ("view", "lake"):  # what views write is in the lake, too
            self._wait_for_lease(name)
            last = PipelineProcess(name, self.url, self._folder, "--once")
            try:
                last.end()
            finally:
                last.kill()


def check_views(url: str, folder: Path) -> None:
    words = ["view", "check", "--url", url, "--to", str(folder / "lake"), "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidelog.cli", *words],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.count('"right":true') == 3


def run_and_kill(pipeline: Pipeline, rng: Random, kills: int) -> Counter[str]:
    numbers = Counter[str]()
    for number in range(kills):
        pipeline.begin()
        pipeline.wait_for_batches()
        time.sleep(KILL_S_MAX * rng.random() ** 2)
        victim = JOBS[number % 2]
        if number % 3 == 2 and pipeline.jobs[victim].kill_worker(rng):
            numbers[f"workers of {victim}"] += 1
            continue
        pipeline.kill(victim)
        numbers[f"drivers of {victim}"] += 1
    return numbers


def settle(pipeline: Pipeline, load: Load) -> None:
    """The load ends while the jobs run, and they take all of it."""
    pipeline.begin()
    pipeline.wait_for_batches()
    load.finish()
    pipeline.finish()


def check_both(pipeline: Pipeline, server: ServerProcess, folder: Path) -> None:
    with server.client() as client:
        check_all(client, pipeline.url, folder)
    check_views(pipeline.url, folder)


def test_all_is_there_once_however_often_jobs_are_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as server:
        with closing(Pipeline(server, tmp_path)) as pipeline, PipelineLoad(server, 1) as load:
            numbers = run_and_kill(pipeline, Random(1), KILLS)
            settle(pipeline, load)
        print(f"{dict(numbers)}, {load.count} writes")
        check_both(pipeline, server, tmp_path)


def test_executors_of_a_cluster_are_killed(tmp_path: Path) -> None:
    rng = Random(2)
    with (
        Standalone(tmp_path, workers=2, cores=2) as cluster,
        ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as server,
    ):
        limits = ("--conf", "spark.cores.max=2", "--conf", "spark.executor.memory=512m")
        jobs = Pipeline(server, tmp_path, "--master", cluster.url, *limits)
        with closing(jobs) as pipeline, PipelineLoad(server, 2) as load:
            for number in range(KILLS):
                pipeline.begin()
                pipeline.wait_for_batches()
                time.sleep(KILL_S_MAX * rng.random() ** 2)
                if number % 4 == 3:
                    pipeline.kill(rng.choice(JOBS))
                    continue
                executors = cluster.executors()
                assert executors
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(executors), signal.SIGKILL)
            settle(pipeline, load)
        print(f"{load.count} writes")
        check_both(pipeline, server, tmp_path)
