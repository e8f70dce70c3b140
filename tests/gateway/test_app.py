"""/health and /metrics of a store on a simulated disk that can run full."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from random import Random
from typing import Any, NoReturn

import pytest

from tests.engine.made import NoLoop, make_connections, make_engine
from tests.engine.roles import MASTER_DOWN, NO_REPLICAS, READ_ONLY, HandMadeRole
from tidelog.errors import JournalFull
from tidelog.gateway.app import ShownEngine, make_app
from tidelog.journal.journal import Settings
from tidelog.ports import Loop
from tidelog.server.configuration import ServerConfig
from tidelog.server.facts import Facts
from tidelog.server.memory import Memory
from tidelog.store.store import Store
from tidelog.store.stream_retention import StreamRetention
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


class Served:
    """The pages of an engine without sockets."""

    def __init__(
        self, folder: str, password: bytes | None = None, loop: Loop | None = None, *, has_open_metrics: bool = False
    ) -> None:
        clock = SimulatedClock()
        store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
        self.engine = make_engine(store, clock, loop or NoLoop(), password)
        memory = Memory(0)
        facts = Facts(
            ServerConfig(data=folder),
            self.engine,
            make_connections(self.engine),
            memory,
            "0" * 40,
            lambda: 0,
            retention=StreamRetention(store),
        )
        self.shown = ShownEngine(self.engine, facts)
        self.app = make_app(self.shown, memory, [], has_open_metrics=has_open_metrics)

    def get(self, path: str, query: str = "", **headers: str) -> tuple[int, str]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), *((name.encode(), each.encode()) for name, each in headers.items())],
            "client": ("127.0.0.1", 5),
        }
        asyncio.run(self.app(scope, receive, send))
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


@pytest.fixture
def served(tmp_path: Any) -> Served:
    return Served(str(tmp_path))


def test_healthy(served: Served) -> None:
    assert served.get("/health") == (200, '{"status":"ok"}')


def test_the_health_of_leaders_and_followers(served: Served) -> None:
    role = HandMadeRole(served.engine)
    assert served.get("/health") == (200, '{"status":"ok"}')
    role.refuse(NO_REPLICAS)
    assert served.get("/health") == (503, f'{{"status":"not writable","reason":"{NO_REPLICAS}"}}')
    role.follow(("leader", 1))
    assert served.get("/health") == (200, '{"status":"ok","role":"follower"}')
    role.refuse(READ_ONLY, MASTER_DOWN)
    assert served.get("/health") == (503, f'{{"status":"stale","reason":"{MASTER_DOWN}"}}')
    assert "\ntidelog_follower 1\n" in served.get("/metrics")[1]


def test_feeds_of_followers(tmp_path: Any) -> None:
    served = Served(str(tmp_path))
    role = HandMadeRole(served.engine)
    role.follow(("leader", 1))
    status, body = served.get("/feed", query="name=mine&since=0")
    assert (status, json.loads(body)["error"]) == (503, "READONLY")
    role.refuse(READ_ONLY, MASTER_DOWN)
    status, body = served.get("/feed", query="since=0")
    assert (status, json.loads(body)["error"]) == (503, "MASTERDOWN")


def test_a_journal_that_refuses(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = served.engine.store.journal.writer
    transaction = served.engine.store.begin()
    served.engine.store.commit(transaction)

    def no_space(*_: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.journal.writer.write_all", no_space)
        from tidelog.journal.operation import Val

        transaction = served.engine.store.begin()
        transaction.run([Val([(b"a", b"1")])])
        served.engine.store.commit(transaction)
        with pytest.raises(JournalFull):
            writer.write()
    status, body = served.get("/health")
    assert status == 503
    assert "no space is left" in json.loads(body)["reason"]
    assert "tidelog_writable 0\n" in served.get("/metrics")[1]
    writer.write()
    assert served.get("/health")[0] == 200
    assert 'tidelog_keys{db="0"} 1\n' in served.get("/metrics")[1]


def test_jobs_are_in_the_metrics(served: Served) -> None:
    from tidelog.types.hash import HSet
    from tidelog.types.set import SAdd

    store, now_ms = served.engine.store, served.engine.clock.wall_us() // 1000
    transaction = store.begin()
    fields = [b"state", b"running", b"updated_ms", b"%d" % now_ms, b"ts", b"0", b"rows", b"3"]
    transaction.run([HSet(b"tidelog:pipeline:lake", fields), SAdd(b"tidelog:pipeline:jobs", [b"lake"])])
    store.commit(transaction)
    store.journal.writer.write()
    text = served.get("/metrics")[1]
    assert '\ntidelog_pipeline_up{job="lake"} 1\n' in text
    assert '\ntidelog_pipeline_rows_total{job="lake"} 3\n' in text
    assert re.search(r'^tidelog_pipeline_lag_seconds\{job="lake"\} [\d.e-]+$', text, re.MULTILINE)


def test_nothing_else(served: Served) -> None:
    assert served.get("/nothing")[0] == 404


def test_metrics_need_the_password_unless_they_are_open(tmp_path: Any) -> None:
    secret = {"authorization": "Bearer secret"}
    closed, opened = Served(str(tmp_path), password=b"secret"), Served(str(tmp_path), b"secret", has_open_metrics=True)
    assert closed.get("/metrics")[0] == 401
    assert closed.get("/metrics", **secret)[0] == opened.get("/metrics")[0] == 200
    assert closed.get("/health")[0] == 200
    assert opened.get("/feed")[0] == 401
