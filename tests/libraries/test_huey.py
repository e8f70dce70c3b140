"""Huey on a list (RedisHuey) and on a sorted set (PriorityRedisHuey).

A consumer takes a task off the queue with BRPOP or BZPOPMIN and keeps no other record of it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
import redis
from huey import Huey
from huey.exceptions import TaskException

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.huey_app import KIND_VARIABLE, KINDS, make_app
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = [pytest.mark.library("huey"), pytest.mark.parametrize("kind", KINDS)]

PROMISE: Final = (
    "At most once after a task was taken: a task in the hands of a killed consumer is lost, and so is one whose server "
    "died between taking it off the queue and telling the consumer. redis-py sends a command again whose reply was "
    "lost, so a task may be queued twice."
)
REPLY_S_MAX: Final = 60


def start_consumer(workers: Workers, kind: str, count: int = 2) -> WorkerProcess:
    words = ["tests.libraries.huey_app.huey", "--workers", str(count), "--scheduler-interval", "1"]
    return workers.start("-m", "huey.bin.huey_consumer", *words, **{KIND_VARIABLE: kind})


def result_of(huey: Huey, result: Any) -> object:
    """What there is; an error that a retry replaces is nothing yet."""
    try:
        return huey.result(result.id, preserve=True)
    except TaskException:
        return None


def test_tasks(kind: str, server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Tasks succeed, fail, are tried again, wait for their time and follow each other; a lock lets one in at a time."""
    app = make_app(kind, url_of(server))
    start_consumer(workers, kind)
    sent = [app.double(number) for number in range(20)]
    failing, recovering = app.fail("bad"), app.recover("shaky")
    later = app.double.schedule((100,), delay=1)
    for number in range(5):
        app.alone(f"alone-{number}")

    assert [each.get(blocking=True, timeout=REPLY_S_MAX) for each in sent] == [2 * number for number in range(20)]
    with pytest.raises(TaskException, match="bad fails"):
        failing.get(blocking=True, timeout=REPLY_S_MAX)
    wait_until(lambda: result_of(app.huey, recovering) == "recovered", "the task has recovered")
    assert later.get(blocking=True, timeout=REPLY_S_MAX) == 200
    chained = app.huey.enqueue(app.double.s(3000).then(app.double))
    assert chained.get(blocking=True, timeout=REPLY_S_MAX) == [6000, 12000]
    revoked = app.work.schedule(("revoked",), delay=1)
    revoked.revoke()
    wait_until(lambda: app.huey.scheduled_count() == 0, "nothing is scheduled any more")
    wait_until(lambda: app.huey.pending_count() == 0, "nothing is queued any more")

    wait_until(lambda: len(jobs.counts("out")) == 5, "all locked tasks are done")
    assert jobs.total("done") == 23
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}
    assert jobs.order("in", "out") == ["in", "out"] * 5


def test_killed_consumer(kind: str, server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A consumer is killed with a task in its hands: that task is lost; all others run once."""
    app = make_app(kind, url_of(server))
    first = start_consumer(workers, kind, count=1)
    app.work("held", 60)
    wait_until(lambda: jobs.counts("begun")["held"], "the task has begun")
    for number in range(20):
        app.work(f"job-{number}")
    first.kill()
    start_consumer(workers, kind)
    wait_until(lambda: jobs.total("done") == 20, "all others are done")
    assert app.huey.pending_count() == 0
    assert set(jobs.counts("begun").values()) == {1}
    assert not jobs.counts("done")["held"]


@pytest.mark.long
def test_killed_server(kind: str, server: BackingServer, workers: Workers, jobs: JobLog, record: Record) -> None:
    """The server is killed three times under load: no task is lost or done twice beyond the promise."""
    app = make_app(kind, url_of(server))
    consumers, kills = 2, 3
    start_consumer(workers, kind, count=consumers)
    handed_in = hand_in_during_outages(server, kills, workers, jobs, app.work, redis.RedisError)
    wait_until(lambda: app.huey.pending_count() == 0, "the queue is empty")
    wait_until(lambda: len(handed_in.lost()) <= consumers * kills, "nearly all tasks are done")
    record("counts", handed_in.tally())
    assert len(handed_in.twice()) <= kills
