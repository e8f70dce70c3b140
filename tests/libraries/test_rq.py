"""RQ with its forking worker.

A worker moves a job from the queue to an intermediate queue (BLMOVE), and then to the registry of started jobs, where
heartbeats keep it. Any worker's maintenance moves jobs without a heartbeat to the registry of failed jobs, or
back to the queue if they may be retried.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
import redis
from rq import Queue, Retry
from rq.command import send_stop_job_command
from rq.exceptions import DuplicateJobError
from rq.job import Job

from tests.libraries import rq_app
from tests.libraries.backing_server import BackingServer, client_of
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import URL_VARIABLE, WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("rq")

PROMISE: Final = (
    "At most once: maintenance finds a job of a killed worker, which fails with AbandonedJobError, or runs again if it "
    "was given a Retry. No job disappears: it is queued, started, finished or failed."
)


@pytest.fixture
def queue(server: BackingServer) -> Iterator[Queue]:
    with client_of(server, decode_responses=False) as client:
        yield Queue(connection=client)


def start_worker(workers: Workers, *more: str) -> WorkerProcess:
    words = f"import os, sys; sys.argv[1:1] = ['worker', '--url', os.environ['{URL_VARIABLE}']]"
    return workers.start("-c", f"{words}; from rq.cli import main; main()", *more)


def ends(job: Job) -> str:
    """How the job ended, as RQ knows it."""
    wait_until(lambda: job.get_status(refresh=True) in ("finished", "failed", "stopped"), f"{job} ends")
    return str(job.get_status(refresh=False).value)


def test_jobs(queue: Queue, workers: Workers, jobs: JobLog) -> None:
    """Jobs succeed, fail, are tried again, wait for others or for their time; one is stopped; unique ids."""
    start_worker(workers, "--with-scheduler")
    sent = [queue.enqueue(rq_app.double, number) for number in range(10)]
    after = queue.enqueue(rq_app.double, 100, depends_on=sent)
    later = queue.enqueue_in(timedelta(seconds=1), rq_app.double, 200)
    failing = queue.enqueue(rq_app.fail, "bad")
    recovering = queue.enqueue(rq_app.recover, "shaky", retry=Retry(max=2))
    once = queue.enqueue(rq_app.double, 300, job_id="only", unique=True)
    with pytest.raises(DuplicateJobError):
        queue.enqueue(rq_app.double, 301, job_id="only", unique=True)

    assert [ends(job) for job in [*sent, after, later, recovering, once]] == ["finished"] * 14
    assert [job.return_value() for job in sent] == [2 * number for number in range(10)]
    assert recovering.return_value() == "recovered"
    assert ends(failing) == "failed"
    result: Any = failing.latest_result()
    assert "bad fails" in result.exc_string

    stopped = queue.enqueue(rq_app.work, "endless", 60)
    wait_until(lambda: jobs.counts("begun")["endless"], "the job has begun")
    wait_until(lambda: Job.fetch(stopped.id, queue.connection).worker_name, "its worker is known")
    send_stop_job_command(queue.connection, stopped.id)
    assert ends(stopped) == "stopped"

    assert sorted(jobs.counts("done")) == sorted(map(str, [*range(10), 100, 200, 300]))
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}
    assert set(queue.failed_job_registry.get_job_ids()) == {failing.id, stopped.id}
    assert len(queue.finished_job_registry) == 14


def test_killed_horse(queue: Queue, workers: Workers, jobs: JobLog) -> None:
    """The process that runs a job is killed: the job has failed, and the worker goes on with the next."""
    start_worker(workers)
    held, after = queue.enqueue(rq_app.work, "held", 60), queue.enqueue(rq_app.work, "after")
    wait_until(lambda: jobs.counts("begun")["held"], "the job has begun")
    os.kill(jobs.pid_of("begun", "held"), signal.SIGKILL)
    assert ends(held) == "failed"
    assert ends(after) == "finished"
    assert jobs.counts("done") == {"after": 1}


def test_killed_worker(queue: Queue, workers: Workers, jobs: JobLog) -> None:
    """Workers are killed with jobs in their hands: maintenance finds both, and one runs again as it may."""
    killed = [start_worker(workers), start_worker(workers)]
    lost = queue.enqueue(rq_app.work, "lost", 3)
    again = queue.enqueue(rq_app.work, "again", 3, retry=Retry(max=1))
    others = [queue.enqueue(rq_app.work, f"job-{number}") for number in range(5)]
    wait_until(lambda: len(jobs.counts("begun")) == 2, "both jobs have begun")
    wait_until(lambda: len(queue.started_job_registry.get_job_ids(cleanup=False)) == 2, "both are known as begun")
    for worker in killed:
        worker.kill()
    # What the maintenance of any worker does, as of the time when no heartbeat can come any more.
    queue.started_job_registry.cleanup(timestamp=time.time() + 3600)
    assert ends(lost) == "failed"
    result: Any = lost.latest_result()
    assert "AbandonedJobError" in result.exc_string
    start_worker(workers)
    assert [ends(job) for job in [again, *others]] == ["finished"] * 6
    assert jobs.counts("begun") == {"lost": 1, "again": 2, **{f"job-{number}": 1 for number in range(5)}}
    assert jobs.counts("done") == {"again": 1, **{f"job-{number}": 1 for number in range(5)}}


@pytest.mark.long
def test_killed_server(queue: Queue, server: BackingServer, workers: Workers, jobs: JobLog, record: Record) -> None:
    """The server is killed three times under load: no job disappears, none runs twice."""
    kills, started = 3, [start_worker(workers), start_worker(workers)]
    handed_in = hand_in_during_outages(
        server, kills, workers, jobs, lambda name: queue.enqueue(rq_app.work, name, job_id=name), redis.RedisError
    )

    def accounted_for() -> set[str]:
        begun = set(queue.started_job_registry.get_job_ids(cleanup=False)) | set(queue.intermediate_queue.get_job_ids())
        return begun | set(queue.failed_job_registry.get_job_ids()) | set(jobs.counts("done"))

    wait_until(lambda: queue.count == 0, "the queue is empty")
    wait_until(lambda: not set(handed_in.sure) - accounted_for(), "every job is accounted for")
    record("counts", handed_in.tally())
    assert not handed_in.twice()
    # What a worker had in its hands is abandoned.
    assert len(handed_in.lost()) <= kills * len(started)
