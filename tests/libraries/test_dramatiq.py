"""Dramatiq's broker, results and rate limits on Redis.

One Lua script does everything with a queue: it moves messages to a set of what a worker has fetched, and removes them
when they are acknowledged. With its heartbeat gone, a worker's messages are queued again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed

from tests.libraries.backing_server import BackingServer, client_of, url_of
from tests.libraries.dramatiq_app import make_broker
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("dramatiq")

PROMISE: Final = (
    "At least once: messages of a worker without a heartbeat are queued again. A fetch whose reply was lost is found "
    "again when that worker has ended. Failed messages are retried, then kept in a dead letter queue."
)
REPLY_MS_MAX: Final = 60_000


@pytest.fixture
def broker(server: BackingServer) -> Iterator[RedisBroker]:
    made = make_broker(url_of(server))
    yield made
    made.close()


def start_worker(workers: Workers, threads: int = 2) -> WorkerProcess:
    app = "tests.libraries.dramatiq_app:broker"
    return workers.start("-m", "dramatiq", app, "--processes", "1", "--threads", str(threads))


def unsettled(server: BackingServer) -> int:
    """Messages that are queued, delayed or fetched."""
    with client_of(server) as client:
        return sum(map(client.hlen, ("dramatiq:default.msgs", "dramatiq:default.DQ.msgs")))


def test_messages(broker: RedisBroker, server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Messages succeed, fail, are retried and delayed; groups and pipelines; a limiter lets one in at a time."""
    start_worker(workers)
    double = broker.get_actor("double")
    sent = [double.send(number) for number in range(20)]
    broker.get_actor("fail").send("bad")
    recovering = broker.get_actor("recover").send("shaky", 2)
    later = double.send_with_options(args=(100,), delay=300)
    for number in range(5):
        broker.get_actor("alone").send(f"alone-{number}")

    assert [each.get_result(block=True, timeout=REPLY_MS_MAX) for each in sent] == [2 * number for number in range(20)]
    assert recovering.get_result(block=True, timeout=REPLY_MS_MAX) == "recovered"
    assert later.get_result(block=True, timeout=REPLY_MS_MAX) == 200
    together = dramatiq.group([double.message(number) for number in (1000, 1001)])
    together.add_completion_callback(broker.get_actor("work").message("after-the-group"))
    assert list(together.run().get_results(block=True, timeout=REPLY_MS_MAX)) == [2000, 2002]
    chained = dramatiq.pipeline([double.message(3000), double.message()])
    assert chained.run().get_result(block=True, timeout=REPLY_MS_MAX) == 12000

    wait_until(lambda: jobs.counts("done")["after-the-group"], "the callback of the group has run")
    wait_until(lambda: len(jobs.counts("out")) == 5, "all limited jobs are done")
    wait_until(lambda: unsettled(server) == 0, "everything is acknowledged")
    assert jobs.total("done") == 26
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 2, "shaky": 3}
    assert jobs.order("in", "out") == ["in", "out"] * 5
    with client_of(server) as client:
        assert client.zcard("dramatiq:default.XQ") == 1


def test_killed_worker(broker: RedisBroker, server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A worker is killed with messages in its hands: another runs them; all others run once."""
    first = start_worker(workers)
    work = broker.get_actor("work")
    for name in ("held-1", "held-2"):
        work.send(name, 60)
    wait_until(lambda: len(jobs.counts("begun")) == 2, "both have begun")
    for number in range(20):
        work.send(f"job-{number}")
    first.kill()
    second = start_worker(workers, threads=4)
    wait_until(lambda: jobs.total("begun") == 24, "the two have begun again")
    wait_until(lambda: jobs.total("done") == 20, "all others are done")
    assert {job for job, times in jobs.counts("begun").items() if times > 1} == {"held-1", "held-2"}
    assert set(jobs.counts("done").values()) == {1}
    second.kill()


@pytest.mark.long
def test_killed_server(
    broker: RedisBroker, server: BackingServer, workers: Workers, jobs: JobLog, record: Record
) -> None:
    """The server is killed three times under load: no message is lost; only those in flight may run twice."""
    work = broker.get_actor("work")
    started = [start_worker(workers) for _ in range(2)]
    kills, held = 3, 8  # each of the two workers has two threads and prefetches two messages for each
    handed_in = hand_in_during_outages(server, kills, workers, jobs, work.send, redis.RedisError, ConnectionClosed)
    # What a worker fetched without getting the reply is queued again once the worker is gone.
    wait_until(lambda: len(handed_in.lost()) <= held * kills, "nearly all messages are done")
    for worker in started:
        worker.stop()
    start_worker(workers)
    wait_until(lambda: not handed_in.lost(), "all messages are done")
    wait_until(lambda: unsettled(server) == 0, "everything is acknowledged")
    record("counts", handed_in.tally())
    assert len(handed_in.twice()) <= held * kills
