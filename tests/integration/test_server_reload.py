"""A server that replaces its data while it runs, on the same ports."""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.flight as flight
import pytest
import redis

from tests.integration.reloading_server import COMMAND
from tests.integration.server_process import ServerProcess

WAIT_S_MAX: Final = 30.0
LOADING = (redis.BusyLoadingError, redis.ConnectionError)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with other data."""
    with ServerProcess(tmp_path_factory.mktemp("other") / "data") as server:
        client: Any = server.client()
        client.set("which", "other")
        client.execute_command("TWRITE", "stream", "tag", "other")
        assert server.terminate() == 0
        return server.data


@contextmanager
def reloading(data: Path, *arguments: str, **options: Any) -> Iterator[ServerProcess]:
    following = data.parent / "next"
    with ServerProcess(data, *arguments, command=COMMAND, NEXT=str(following), **options) as server:
        yield server


def reload(server: ServerProcess, to: Path | None = None) -> redis.Redis:
    """Let it load again, another directory if one is given; returns a client when that is done."""
    log = server.data.parent / "next.log"
    before = log.read_text() if log.exists() else ""
    if to is not None:
        shutil.copytree(to, server.data.parent / "next")
    server.process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + WAIT_S_MAX
    while not log.exists() or log.read_text() == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client = server.client()
    while True:
        try:
            client.ping()
            return client
        except LOADING:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def get(server: ServerProcess, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_all_ports_serve_the_other_data(tmp_path: Path, other: Path) -> None:
    path = tmp_path / "socket"
    with reloading(tmp_path / "data", "--unix-socket", str(path), has_http=True, has_flight=True) as server:
        flights: Any = flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}")
        client: Any = server.client()
        client.set("which", "first")
        before = client.info()
        client.config_set("retain-age", "4321")
        client.config_set("maxclients", "77")
        assert list(flights.list_flights()) == []
        first = get(server, "/channel/news/subscription/me")[0]

        client = reload(server, other)
        assert client.get("which") == b"other"
        assert redis.Redis(unix_socket_path=str(path)).get("which") == b"other"
        assert get(server, "/health") == (200, '{"status":"ok"}')
        assert '\ntidelog_keys{db="0"} 2\n' in get(server, "/metrics")[1]
        assert get(server, "/channel/news/subscription/me")[0] == first
        [found] = list(flights.list_flights())
        assert found.total_records == 1
        flights.close()
        after = client.info()
        assert (after["tcp_port"], after["run_id"]) == (before["tcp_port"], before["run_id"])
        assert after["total_commands_processed"] > before["total_commands_processed"]
        assert after["uptime_in_seconds"] >= before["uptime_in_seconds"]
        assert after["loading"] == 0
        assert client.config_get("retain-age", "maxclients") == {"retain-age": "4321", "maxclients": "77"}
        assert client.set("which", "later")
        assert server.terminate() == 0
        assert server.stderr == ""
    with ServerProcess(tmp_path / "data") as again:
        assert again.client().get("which") == b"later"
    with ServerProcess(tmp_path / "data.before") as again:
        assert again.client().get("which") == b"first"
        assert again.client().info("tidelog")["epochs"] == 1  # it was closed in order


def received(connection: socket.socket) -> bytes:
    data = b""
    while more := connection.recv(65536):
        data += more
    return data


def test_clients_are_cut_in_order(tmp_path: Path) -> None:
    with (
        reloading(tmp_path / "data", "--fsync", "always", has_http=True) as server,
        server.connect() as writer,
        server.connect() as blocked,
        server.connect() as listener,
        server.connect() as feed,
    ):
        blocked.sendall(b"BLPOP list 0\r\nSET never 1\r\n")
        listener.sendall(b"SUBSCRIBE news\r\n")
        feed.sendall(b"CHANGEFEED PREFIX x\r\n")
        assert feed.recv(10) != b""
        stream = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        stream.request("GET", "/feed?prefix=x")
        events = stream.getresponse()
        assert events.status == 200
        writer.sendall(b"INCR n\r\n" * 1000)
        assert writer.recv(4) == b":1\r\n"

        client = reload(server)
        assert b":1\r\n" + received(writer) == b"".join(b":%d\r\n" % (number + 1) for number in range(1000))
        assert received(blocked).startswith(b"-UNBLOCKED the data of this server is being replaced")
        assert received(listener).startswith(b"*3\r\n$9\r\nsubscribe\r\n")
        assert b"-" not in received(feed)
        events.read()
        stream.close()
        assert (client.get("n"), client.get("never")) == (b"1000", None)
        assert client.info("clients")["blocked_clients"] == 0


def test_feeds_end_with_the_error_that_was_given(tmp_path: Path) -> None:
    with (
        reloading(tmp_path / "data", has_http=True, FEED_ERROR="FEEDDIVERGED since=5") as server,
        server.connect() as feed,
    ):
        feed.sendall(b"CHANGEFEED PREFIX x\r\n")
        assert feed.recv(10) != b""
        stream = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        stream.request("GET", "/feed?prefix=x")
        events = stream.getresponse()
        reload(server)
        assert received(feed).endswith(b"-FEEDDIVERGED since=5\r\n")
        assert b'event: error\ndata: {"error":"FEEDDIVERGED","since":5}' in events.read()
        stream.close()


def test_a_client_that_takes_nothing_does_not_hold_it_up(tmp_path: Path) -> None:
    with reloading(tmp_path / "data") as server, server.connect() as lazy:
        server.client().set("large", b"x" * 1_000_000)
        lazy.sendall(b"GET large\r\n" * 200)
        time.sleep(0.3)
        client: Any = reload(server)
        assert len(client.get("large")) == 1_000_000
        assert "did not take" in server.stderr


def test_the_old_data_goes_before_the_new_comes(tmp_path: Path) -> None:
    """Some 40 MB of it, twice: nothing holds the old store, and the process stays as large as it was."""
    with reloading(tmp_path / "data") as server:
        client: Any = server.client()
        for database in (0, 3):
            client.execute_command("SELECT", database)
            pipeline = client.pipeline(transaction=False)
            for number in range(20_000):
                pipeline.set(f"key{number}", b"x" * 1000, ex=1000)
            pipeline.execute()
        full = server.resident_bytes
        for _ in range(2):
            client = reload(server)
            assert client.dbsize() == 20_000
        lines = [line.split() for line in (tmp_path / "next.log").read_text().splitlines()]
        assert [line[0] for line in lines] == ["freed", "freed"]
        assert all(int(line[1]) < full - 30_000_000 for line in lines)
        assert server.resident_bytes < 1.3 * full


def test_data_that_cannot_be_loaded_ends_the_process(tmp_path: Path, other: Path) -> None:
    with reloading(tmp_path / "data", has_http=True, has_flight=True) as server:
        broken = tmp_path / "broken"
        shutil.copytree(other, broken)
        (broken / "meta.json").write_bytes(b"{")
        shutil.copytree(broken, tmp_path / "next")
        server.process.send_signal(signal.SIGUSR1)
        assert server.process.wait(WAIT_S_MAX) == 1
        assert server.stderr.startswith("tidelog: ")
        assert "meta.json" in server.stderr
        assert len(server.stderr.splitlines()) == 1


def test_a_stop_while_it_reloads(tmp_path: Path) -> None:
    with reloading(tmp_path / "data") as server:
        client: Any = server.client()
        client.set("a", 1)
        server.process.send_signal(signal.SIGUSR1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S_MAX) == 0
    with ServerProcess(tmp_path / "data") as again:
        assert again.client().get("a") == b"1"
