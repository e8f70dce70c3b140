"""Taskiq on a list (ListQueueBroker) and on a stream with a consumer group (RedisStreamBroker).

The first takes messages off with BRPOP. The second reads with XREADGROUP, acknowledges when the result is saved, and
takes over with XAUTOCLAIM what others have left idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis
from taskiq.exceptions import TaskiqError

from tests.libraries.backing_server import BackingServer, client_of, url_of, waiting_clients
from tests.libraries.job_log import JobLog
from tests.libraries.outages import hand_in_during_outages
from tests.libraries.results import Record
from tests.libraries.taskiq_app import KIND_VARIABLE, App, make_app
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("taskiq-redis", "taskiq")

PROMISE: Final = (
    "On a list at most once after a message was taken: what a killed worker, or the reply of a killed server, held is "
    "lost. On a stream at least once: what is not acknowledged is taken over after idle_timeout, when the next "
    "message has come. A worker ends when its server is away, and its supervisor starts it again."
)
REPLY_S_MAX: Final = 60
QUEUE: Final = "taskiq"


@pytest.fixture(params=["list", "stream"])
def app(request: pytest.FixtureRequest, server: BackingServer, runner: asyncio.Runner) -> Iterator[App]:
    made = make_app(request.param, url_of(server))
    runner.run(made.broker.startup())
    yield made
    runner.run(made.broker.shutdown())


def kind_of(app: App) -> str:
    return "list" if type(app.broker).__name__ == "ListQueueBroker" else "stream"


def start_worker(workers: Workers, app: App) -> WorkerProcess:
    words = ["tests.libraries.taskiq_app:broker", "--workers", "1", "--max-async-tasks", "4"]
    return workers.start("-m", "taskiq", "worker", *words, **{KIND_VARIABLE: kind_of(app)})


def is_settled(server: BackingServer, app: App) -> bool:
    """All messages are taken and acknowledged."""
    with client_of(server) as client:
        if kind_of(app) == "list":
            return bool(client.llen(QUEUE) == 0)
        stream: Any = client.xinfo_stream(QUEUE)
        groups: Any = client.xinfo_groups(QUEUE)
        return [(group["pending"], group["last-delivered-id"]) for group in groups] == [
            (0, stream["last-generated-id"])
        ]


def test_tasks(app: App, server: BackingServer, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """Tasks succeed, fail and are tried again; results come back."""
    start_worker(workers, app)

    async def results() -> tuple[list[int], Any, Any]:
        sent = [await app.double.kiq(number) for number in range(20)]
        failing, recovering = await app.fail.kiq("bad"), await app.recover.kiq("shaky", 2)
        doubled = [(await each.wait_result(timeout=REPLY_S_MAX)).return_value for each in sent]
        ended = await failing.wait_result(timeout=REPLY_S_MAX), await recovering.wait_result(timeout=REPLY_S_MAX)
        return doubled, *ended

    doubled, failed, recovered = runner.run(results())
    assert doubled == [2 * number for number in range(20)]
    assert "bad fails" in str(failed.error)
    assert recovered.return_value == "recovered"
    wait_until(lambda: is_settled(server, app), "everything is acknowledged")
    assert jobs.total("done") == 20
    assert set(jobs.counts("done").values()) == {1}
    assert jobs.counts("tried") == {"bad": 1, "shaky": 3}


def test_killed_worker(app: App, server: BackingServer, workers: Workers, jobs: JobLog, runner: asyncio.Runner) -> None:
    """A worker is killed with a task in its hands: on a list it is lost, on a stream another worker runs it."""
    first = start_worker(workers, app)
    runner.run(app.work.kiq("held", 2))
    wait_until(lambda: jobs.counts("begun")["held"], "the task has begun")
    first.kill()
    # A message that comes before the server knows of its end would go to it.
    wait_until(lambda: waiting_clients(server) == 0, "nobody waits for messages")
    for number in range(20):
        runner.run(app.work.kiq(f"job-{number}"))
    start_worker(workers, app)
    wait_until(lambda: jobs.total("done") == 20, "all others are done")
    if kind_of(app) == "stream":
        # A worker looks for what others have left when it has read something.
        def is_done_again() -> bool:
            runner.run(app.work.kiq("more"))
            runner.run(asyncio.sleep(0.2))
            return jobs.counts("done")["held"] > 0

        wait_until(is_done_again, "the task is done")
        assert jobs.counts("begun")["held"] == 2
    wait_until(lambda: is_settled(server, app), "everything is acknowledged")
    assert {times for job, times in jobs.counts("done").items() if job != "more"} == {1}
    assert jobs.counts("done")["held"] == (0 if kind_of(app) == "list" else 1)


@pytest.mark.long
def test_killed_server(
    app: App, server: BackingServer, workers: Workers, jobs: JobLog, runner: asyncio.Runner, record: Record
) -> None:
    """The server is killed three times under load: no task is lost or done twice beyond the promise."""
    kills, in_hands = 3, 100  # a worker reads as many messages at a time
    start_worker(workers, app)
    handed_in = hand_in_during_outages(
        server, kills, workers, jobs, lambda name: runner.run(app.work.kiq(name)), redis.RedisError, TaskiqError
    )

    def rest_is_done() -> bool:
        workers.start_again_ended()
        runner.run(app.work.kiq("more"))
        return is_settled(server, app) and len(handed_in.lost()) <= (
            0 if kind_of(app) == "stream" else in_hands * kills
        )

    wait_until(rest_is_done, "all tasks are done")
    record("counts", handed_in.tally())
    assert len(handed_in.twice()) <= in_hands * kills
