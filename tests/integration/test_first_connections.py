"""Commands that are started while nobody leads: they say that they wait, and begin when somebody does.

What waiting cannot heal is told at once: a wrong password, a service that no Sentinel knows, a server that has no
feeds, and a single server that does not answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import free_ports, stop_peer
from tests.channels.sentinels import start_sentinel
from tests.cli.command_line import run
from tests.cli.running_command import RunningCommand
from tests.conformance.redis_oracle import start_redis
from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until
from tidelog.days.jobset import JobSet
from tidelog.days.message import Message, parse_id
from tidelog.days.writer import Writer

AT_ONCE_S = 15.0
"""Enough for a process to start and end here; waiting takes longer."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers that have lost the one that they follow."""
    [gone] = free_ports(1)
    with ExitStack() as running:
        first, second = (
            running.enter_context(ServerProcess(tmp_path / name, "--replicaof", f"127.0.0.1:{gone}"))
            for name in ("first", "second")
        )
        yield first, second


def url_of(*servers: ServerProcess) -> str:
    return "redis://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)


def lead(server: ServerProcess) -> Any:
    """A client of a server that leads from now on."""
    client: Any = server.client()
    client.execute_command("REPLICAOF", "NO", "ONE")
    wait_until(lambda: client.role()[0] == b"master")
    return client


@pytest.mark.parametrize("more", [[], ["--from-followers"], ["--until-now"]])
def test_a_feed_begins_when_somebody_leads(pair: tuple[ServerProcess, ServerProcess], more: list[str]) -> None:
    arguments = ["feed", "--since", "0", "--no-checkpoints", "--json", *more]
    with RunningCommand(*arguments, "--url", url_of(*pair)) as feed:
        told = feed.told()
        assert told.startswith(f"tidelog: waiting for a server (no server answers at {url_of(*pair)}: ")
        # It was before the command asks again: what is written now belongs to history, also for --until-now.
        feed.process.send_signal(signal.SIGSTOP)
        lead(pair[1]).set("k", "v")
        feed.process.send_signal(signal.SIGCONT)
        assert feed.line()["key"] == "k"
        assert feed.end(None if more == ["--until-now"] else signal.SIGTERM) == (0, "tidelog: connected\n")


def test_other_readers_begin_then_too(pair: tuple[ServerProcess, ServerProcess]) -> None:
    at = "--url", url_of(*pair)
    with (
        RunningCommand("stream", "tail", "s", "--follow", "--json", *at) as stream,
        RunningCommand("channel", "sub", "c", "me", *at) as channel,
        RunningCommand("pipeline", "status", "--watch", "--json", *at) as status,
        RunningCommand("channel", "pub", "other", "1", *at) as published,
        RunningCommand("events", "tail", "q", "j", "--json", *at) as events,
    ):
        for each in (stream, channel, status, published, events):
            told = each.told()
            assert "no server answers at" in told
            assert "it follows 127.0.0.1:" in told
        client = lead(pair[0])
        assert published.end() == (0, "tidelog: connected\n")
        client.hset("tidelog:pipeline:lake", "rows", 5)
        client.sadd("tidelog:pipeline:jobs", "lake")
        assert status.line()["rows"] == 5
        assert {each.told() for each in (stream, channel, status, events)} == {"tidelog: connected\n"}
        client.execute_command("TWRITE", "s", "t", "entry")
        assert stream.line()["entry"] == "entry"
        assert "me is a new subscriber of c" in channel.told()
        assert run("channel", "pub", "c", "2", *at).status == 0
        assert channel.line()["content"] == 2
        now_ms = int(time.time() * 1000)
        Writer(client, JobSet("q", "j")).write([Message(parse_id(f"{now_ms}-0"), now_ms, b"{}")])
        assert events.line()["id"] == f"{now_ms}-0"


def test_a_sentinel_whose_master_is_down(tmp_path: Path) -> None:
    """It fails over to the one that follows, and the feed begins there. A command that was there before goes on."""
    with ExitStack() as running:
        leader = running.enter_context(ServerProcess(tmp_path / "leader"))
        follower = running.enter_context(
            ServerProcess(tmp_path / "follower", "--replicaof", f"127.0.0.1:{leader.port}")
        )
        sentinel, port = start_sentinel(tmp_path, leader.port)
        running.callback(stop_peer, sentinel)
        client: Any = leader.client()
        wait_until(lambda: client.set("k", "v") and client.wait(1, 100) == 1)
        url = f"redis+sentinel://127.0.0.1:{port}/orders"
        tail = running.enter_context(RunningCommand("stream", "tail", "s", "-f", "--json", "--url", url))
        client.execute_command("TWRITE", "s", "t", "before")
        assert tail.line()["entry"] == "before"
        wait_until(lambda: client.wait(1, 100) == 1)
        leader.kill()
        with RunningCommand("feed", "--key", "k", "--initial", "--no-checkpoints", "--json", "--url", url) as feed:
            told = feed.told()
            assert told.startswith(f"tidelog: waiting for a server (no server answers at {url}: 127.0.0.1:")
            while (line := feed.line())["kind"] != "value":
                pass
            assert (line["key"], line["value"]) == ("k", "v")
            assert feed.told() == "tidelog: connected\n"
        leads: Any = follower.client()
        assert leads.role()[0] == b"master"
        leads.execute_command("TWRITE", "s", "t", "after")
        assert (tail.line(), tail.told()[:25]) == (
            {"kind": "entry", "offset": 2, "tag": "t", "entry": "after"},
            "tidelog: connection lost ",
        )


# --- what is told at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["feed"], ["stream", "tail", "s", "-f"], ["channel", "sub", "c", "me"]])
def test_what_waiting_does_not_heal_is_told_at_once(tmp_path: Path, command: list[str]) -> None:
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(tmp_path / "data", REDISCLI_AUTH=""))
        sentinel, sentinel_port = start_sentinel(tmp_path, server.port)
        running.callback(stop_peer, sentinel)
        place = f"127.0.0.1:{server.port}"
        wrong = {
            f"redis://:wrong@{place},127.0.0.1:1": "does not let us in",
            f"redis+sentinel://127.0.0.1:{sentinel_port}/other": "this Sentinel does not know the service 'other'",
            f"redis+sentinel://{place}/orders": "this Sentinel does not know the service 'orders' (",
            "redis://127.0.0.1:1": "",
        }
        for url, says in wrong.items():
            begun_s = time.monotonic()
            outcome = run(*command, "--url", url)
            assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1), url
            assert says in outcome.stderr
            assert "waiting" not in outcome.stderr
            assert time.monotonic() - begun_s < AT_ONCE_S


def test_a_server_that_has_no_feeds_is_told_at_once(tmp_path: Path) -> None:
    process, port = start_redis(tmp_path)
    try:
        outcome = run("feed", "--url", f"redis://127.0.0.1:{port},127.0.0.1:1")
        assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
        assert "unknown command" in outcome.stderr
    finally:
        stop_peer(process)
