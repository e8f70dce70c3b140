"""Celery with kombu's transport for Redis and Celery's result backend for Redis.

A worker takes a message with BRPOP and puts it into the hash `unacked`, two commands; with `acks_late` it is removed
when the task has ended. Messages of killed workers are handed out again after `visibility_timeout`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from celery import chain, chord, group
from kombu.exceptions import OperationalError

from tests.libraries.backing_server import BackingServer, client_of, url_of
from tests.libraries.celery_app import make_app
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("celery", "kombu")

PROMISE: Final = (
    "With acks_late, at least once: a task of a killed worker runs again after visibility_timeout. A message is lost "
    "if the server or the worker dies between the BRPOP and the write that remembers the message, at most one for each "
    "worker and each kill."
)
REPLY_S_MAX: Final = 60


def start_worker(workers: Workers, *more: str) -> WorkerProcess:
    return workers.start("-m", "celery", "-A", "tests.libraries.celery_app", "worker", *(more or ("--pool", "solo")))


def queued(server: BackingServer) -> int:
    """Messages that wait, or are in the hands of a worker."""
    with client_of(server) as client:
        waiting: Any = client.llen("celery")
        held: Any = client.hlen("unacked")
        return int(waiting) + int(held)


def test_tasks(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Tasks succeed, fail, and are tried again; groups, chains and chords; a worker answers remote control."""
    app = make_app(url_of(server))
    start_worker(workers)
    double, add = app.tasks["double"], app.tasks["add"]
    sent = [double.delay(number) for number in range(20)]
    failing, recovering = app.tasks["fail"].delay("bad"), app.tasks["recover"].delay("shaky", 2)
    later = double.apply_async((100,), countdown=0.5)

    assert [each.get(timeout=REPLY_S_MAX) for each in sent] == [2 * number for number in range(20)]
    with pytest.raises(ValueError, match="bad fails"):
        failing.get(timeout=REPLY_S_MAX)
    assert recovering.get(timeout=REPLY_S_MAX) == 2
    assert later.get(timeout=REPLY_S_MAX) == 200
    assert chain(double.s(3000), double.s())().get(timeout=REPLY_S_MAX) == 12000
    assert group(double.s(n) for n in (1000, 1001))().get(timeout=REPLY_S_MAX) == [2000, 2002]
    assert chord((double.s(n) for n in (2000, 2001)), add.s())().get(timeout=REPLY_S_MAX) == 8002
    assert len(app.control.ping(timeout=5, limit=1)) == 1

    assert set(jobs.counts("done").values()) == {1}
    assert jobs.total("done") == 27
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}
    wait_until(lambda: queued(server) == 0, "everything is acknowledged")
    app.close()


@pytest.mark.long
def test_killed_worker(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A worker is killed with a task in its hands: another worker runs it; all others run once."""
    app = make_app(url_of(server))
    first = start_worker(workers)
    work = app.tasks["work"]
    work.delay("held", 2)
    wait_until(lambda: jobs.counts("begun")["held"], "the task has begun")
    for number in range(20):
        work.delay(number)
    first.kill()
    start_worker(workers)
    wait_until(lambda: len(jobs.counts("done")) == 21, "all tasks are done")
    wait_until(lambda: queued(server) == 0, "everything is acknowledged")
    assert jobs.counts("begun")["held"] == 2
    assert set(jobs.counts("done").values()) == {1}
    app.close()


@pytest.mark.long
def test_killed_server_while_workers_work(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed while all workers are busy: every task that was acknowledged runs."""
    app = make_app(url_of(server))
    work = app.tasks["work"]
    start_worker(workers)
    work.delay("held", 2)
    for number in range(50):
        work.delay(number)
    wait_until(lambda: jobs.counts("begun")["held"], "the task has begun")
    server.kill()
    server.start_again()
    wait_until(lambda: len(jobs.counts("done")) == 51, "all tasks are done")
    wait_until(lambda: queued(server) == 0, "everything is acknowledged")
    # The one whose acknowledgement found no server may run again.
    twice = {job for job, times in jobs.counts("done").items() if times > 1}
    assert twice <= {"held"}
    app.close()


@pytest.mark.long
def test_killed_server(server: BackingServer, workers: Workers, jobs: JobLog, record: Record) -> None:
    """The server is killed three times under load: no task is lost or done twice beyond the promise."""
    app = make_app(url_of(server))
    work = app.tasks["work"]
    count, kills = 2, 3
    for _ in range(count):
        start_worker(workers)
    handed_in = hand_in_during_outages(server, kills, workers, jobs, work.delay, OperationalError, least=300)
    wait_until(lambda: len(handed_in.lost()) <= count * kills, "nearly all tasks are done")
    wait_until(lambda: queued(server) == 0, "everything is acknowledged")
    record("counts", handed_in.tally())
    # Each worker had one task in its hands, and Celery hands in again what was in doubt.
    assert len(handed_in.twice()) <= (count + 1) * kills
    app.close()
