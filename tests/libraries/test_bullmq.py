"""BullMQ's Python client: every step of a job is a Lua script, and workers wait with BZPOPMIN."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis
from bullmq import Job, Queue

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.bullmq_worker import QUEUE
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("bullmq")

PROMISE: Final = (
    "At least once: a job whose lock is not renewed counts as stalled and runs again, once; a job that stalls twice "
    "fails."
)
STATES: Final = ("waiting", "active", "delayed", "prioritized", "waiting-children")


@pytest.fixture
def queue(server: BackingServer, runner: asyncio.Runner) -> Iterator[Queue]:
    async def make() -> Queue:
        return Queue(QUEUE, {"connection": url_of(server)})

    made = runner.run(make())
    yield made
    runner.run(made.close())


def start_worker(workers: Workers) -> WorkerProcess:
    return workers.start("-m", "tests.libraries.bullmq_worker")


def unsettled(queue: Queue, runner: asyncio.Runner) -> int:
    counts: dict[str, int] = runner.run(queue.getJobCounts(*STATES))
    return sum(counts.values())


def test_jobs(queue: Queue, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """Jobs succeed, fail, are tried again, delayed and prioritized; results come back."""
    start_worker(workers)

    async def add(kind: str, name: object, more: dict[str, Any] | None = None, **options: Any) -> Job:
        return await queue.add(kind, {"name": name, **(more or {})}, options)

    async def add_all() -> tuple[list[Job], Job, Job]:
        sent = [await add("double", number) for number in range(18)]
        sent += [await add("double", 18, delay=300), await add("double", 19, priority=5)]
        retry = {"attempts": 3, "backoff": {"type": "fixed", "delay": 100}}
        return sent, await add("fail", "bad"), await add("recover", "shaky", {"failures": 2}, **retry)

    async def result_of(job: Job) -> tuple[str, object, object]:
        state = await queue.getJobState(job.id)
        ended = await Job.fromId(queue, job.id)
        assert ended is not None
        return state, ended.returnvalue, ended.failedReason

    sent, failing, recovering = runner.run(add_all())
    wait_until(lambda: unsettled(queue, runner) == 0, "all jobs have ended")
    assert [runner.run(result_of(job)) for job in sent] == [("completed", 2 * number, None) for number in range(20)]
    assert runner.run(result_of(failing)) == ("failed", None, "bad fails")
    assert runner.run(result_of(recovering))[:2] == ("completed", "recovered")
    assert jobs.total("done") == 20
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}


def test_killed_worker(queue: Queue, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """A worker is killed with jobs in its hands: another worker runs them; all others run once."""
    first = start_worker(workers)
    for name in ("held-1", "held-2"):
        runner.run(queue.add("work", {"name": name, "seconds": 1}, {}))
    wait_until(lambda: len(jobs.counts("begun")) == 2, "both jobs have begun")
    for number in range(20):
        runner.run(queue.add("work", {"name": f"job-{number}"}, {}))
    first.kill()
    start_worker(workers)
    wait_until(lambda: unsettled(queue, runner) == 0, "all jobs have ended")
    assert {job for job, times in jobs.counts("begun").items() if times > 1} == {"held-1", "held-2"}
    assert jobs.total("done") == 22
    assert set(jobs.counts("done").values()) == {1}


@pytest.mark.long
def test_killed_server(
    queue: Queue, server: BackingServer, workers: Workers, jobs: JobLog, runner: asyncio.Runner, record: Record
) -> None:
    """The server is killed three times under load: no job is lost; only those in flight may run twice."""
    kills, at_once = 3, 2
    start_worker(workers)
    handed_in = hand_in_during_outages(
        server,
        kills,
        workers,
        jobs,
        lambda name: runner.run(queue.add("work", {"name": name}, {})),
        redis.RedisError,
        OSError,
    )

    def rest_is_done() -> bool:
        workers.start_again_ended()
        return unsettled(queue, runner) == 0

    wait_until(rest_is_done, "all jobs have ended")
    record("counts", handed_in.tally())
    assert not handed_in.lost()
    assert len(handed_in.twice()) <= kills * at_once + len(handed_in.in_doubt)
