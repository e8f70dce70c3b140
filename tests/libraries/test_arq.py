"""Arq: a sorted set of job ids by due time, a key for each job, and one that says that a worker is at it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis
from arq.connections import ArqRedis, RedisSettings, create_pool
from arq.jobs import JobStatus

from tests.libraries.arq_app import JOB_S_MAX
from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("arq")

PROMISE: Final = (
    "At least once: a job stays queued until it has ended, and one of a killed worker runs again ten seconds after the "
    "time that it may take. A worker ends when its server is away, and its supervisor starts it again."
)
REPLY_S_MAX: Final = 60


@pytest.fixture
def pool(server: BackingServer, runner: asyncio.Runner) -> Iterator[ArqRedis]:
    made = runner.run(create_pool(RedisSettings.from_dsn(url_of(server))))
    yield made
    runner.run(made.aclose())


def start_worker(workers: Workers) -> WorkerProcess:
    return workers.start("-m", "arq", "tests.libraries.arq_app.WorkerSettings")


def queued(pool: ArqRedis, runner: asyncio.Runner) -> int:
    async def count() -> int:
        return int(await pool.zcard(pool.default_queue_name))

    return runner.run(count())


def test_jobs(pool: ArqRedis, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """Jobs succeed, fail, are tried again and deferred; an id is queued once; results come back."""
    start_worker(workers)

    async def results() -> tuple[list[int], int, str, object]:
        sent: list[Any] = [await pool.enqueue_job("double", number) for number in range(20)]
        failing: Any = await pool.enqueue_job("fail", "bad")
        recovering: Any = await pool.enqueue_job("recover", "shaky", 2)
        later: Any = await pool.enqueue_job("double", 100, _defer_by=0.5, _job_id="later")
        assert await pool.enqueue_job("double", 101, _job_id="later") is None
        with pytest.raises(ValueError, match="bad fails"):
            await failing.result(timeout=REPLY_S_MAX, poll_delay=0.05)
        doubled = [await each.result(timeout=REPLY_S_MAX, poll_delay=0.05) for each in sent]
        return (
            doubled,
            await later.result(timeout=REPLY_S_MAX, poll_delay=0.05),
            await recovering.result(timeout=REPLY_S_MAX, poll_delay=0.05),
            await failing.status(),
        )

    doubled, later, recovered, status = runner.run(results())
    assert doubled == [2 * number for number in range(20)]
    assert (later, recovered, status) == (200, "recovered", JobStatus.complete)
    wait_until(lambda: queued(pool, runner) == 0, "nothing is queued any more")
    assert jobs.total("done") == 21
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}


@pytest.mark.long
def test_killed_worker(pool: ArqRedis, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """A worker is killed with a job in its hands: another worker runs it; all others run once."""
    first = start_worker(workers)
    runner.run(pool.enqueue_job("work", "held", JOB_S_MAX - 1))
    wait_until(lambda: jobs.counts("begun")["held"], "the job has begun")
    first.kill()
    for number in range(20):
        runner.run(pool.enqueue_job("work", f"job-{number}"))
    start_worker(workers)
    wait_until(lambda: jobs.total("done") == 21, "all jobs are done")
    wait_until(lambda: queued(pool, runner) == 0, "nothing is queued any more")
    assert {job for job, times in jobs.counts("begun").items() if times > 1} == {"held"}
    assert set(jobs.counts("done").values()) == {1}


@pytest.mark.long
def test_killed_server(
    pool: ArqRedis, server: BackingServer, workers: Workers, jobs: JobLog, runner: asyncio.Runner, record: Record
) -> None:
    """The server is killed three times under load: no job is lost; only those in flight may run twice."""
    kills, at_once = 3, 4
    start_worker(workers)

    async def enqueue(name: str) -> None:
        # Arq answers None instead of raising when the server goes away under a job that it checks for duplicates.
        if await pool.enqueue_job("work", name) is None:
            raise redis.ConnectionError("not enqueued")

    handed_in = hand_in_during_outages(
        server, kills, workers, jobs, lambda name: runner.run(enqueue(name)), redis.RedisError
    )

    def rest_is_done() -> bool:
        workers.start_again_ended()
        return queued(pool, runner) == 0

    wait_until(rest_is_done, "all jobs are done")
    record("counts", handed_in.tally())
    assert not handed_in.lost()
    assert len(handed_in.twice()) <= kills * at_once
