"""GET /feed of a real server: what it streams, to whom, and how it ends."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command_line import run
from tests.integration.server_process import ServerProcess
from tidelog import limits

SECONDS_MAX = 30
SOON = "checkpoint=20"
MANY = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", has_http=True) as made:
        yield made


@pytest.fixture
def redis(server: ServerProcess) -> Iterator[Any]:
    made = server.client(protocol=3)
    made.flushall()
    yield made
    wait_for(lambda: not feeds(made))
    made.close()


def feeds(redis: Any) -> list[dict[bytes, Any]]:
    found: list[dict[bytes, Any]] = redis.execute_command("FEED", "LIST")
    return found


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Sent(NamedTuple):
    """A server-sent event."""

    name: str
    id: str
    data: Any


class Stream:
    """A reader of /feed."""

    def __init__(self, server: ServerProcess, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=SECONDS_MAX)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", f"/feed?{query}", headers=given)
        self.response = self._connection.getresponse()
        self.last_id = ""

    @property
    def status(self) -> int:
        return self.response.status

    def json(self) -> Any:
        return json.loads(self.response.read())

    def next(self, *names: str) -> Sent:
        """The next event, of these names."""
        name = data = ""
        while True:
            line = self.response.readline().decode().removesuffix("\n")
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data = value
            elif not line and name:
                if not names or name in names:
                    return Sent(name, self.last_id, json.loads(data))
                name = ""
            elif not line and self.response.isclosed():
                raise EOFError

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_what_changes(server: ServerProcess, redis: Any) -> None:
    with Stream(server, f"prefix=user:&key=k&{SOON}") as stream:
        assert stream.status == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.next().name == "steady"
        redis.set("user:1", "Ada")
        redis.set("other", "x")
        redis.hset("k", b"\xff", "v")
        first, second = stream.next("value"), stream.next("value")
        assert (first.data["key"], first.data["value"]) == ("user:1", "Ada")
        assert (second.data["type"], second.data["field"], second.data["value"]) == ("hash", {"base64": "/w=="}, "v")
        checkpoint = stream.next("checkpoint")
        assert checkpoint.id == "{ts}-{epoch}-{seen}".format(**checkpoint.data)
        [facts] = feeds(redis)
        assert facts[b"addr"].startswith(b"127.0.0.1:")
        assert facts[b"state"] == b"steady"


def test_initial_values(server: ServerProcess, redis: Any) -> None:
    redis.mset({f"k{number}": number for number in range(1000)})
    with Stream(server, f"initial=1&{SOON}") as stream:
        events: list[Sent] = []
        while not events or events[-1].name != "checkpoint":
            events.append(stream.next())
    assert events[0].name == "deleterange"
    assert sorted(int(each.data["value"]) for each in events if each.name == "value") == list(range(1000))


def test_a_browser_goes_on_where_it_was(server: ServerProcess, redis: Any) -> None:
    with Stream(server) as stream:
        stream.next("steady")
        begin = stream.last_id  # it has one before the first checkpoint
    redis.set("a", 1)
    with Stream(server, f"initial=1&{SOON}", Last_Event_ID=begin) as stream:
        assert stream.next("value", "deleterange").data["key"] == "a"
        place = stream.next("checkpoint").id
    redis.set("b", 2)
    with Stream(server, f"since={place}") as stream:
        assert stream.next("value").data["key"] == "b"
    with Stream(server, f"since={place.partition('-')[0]}&db=0") as stream:
        assert stream.next("value").data["key"] == "b"


def test_what_cannot_begin_is_a_status(server: ServerProcess, redis: Any) -> None:
    with Stream(server, Last_Event_ID="5-5-5") as stream:
        assert (stream.status, stream.json()) == (410, {"error": "FEEDDIVERGED", "since": 0})
    for query in ("since=x", f"since={2**62}", "nonsense=1"):
        with Stream(server, query) as stream:
            assert stream.status == 400
            assert stream.json()["error"] == "ERR"
    with Stream(server, Origin="http://example.com") as stream:
        assert stream.status == 403
    with Stream(server, Host="example.com") as stream:
        assert stream.status == 403
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=SECONDS_MAX)
    connection.request("HEAD", "/feed")
    assert connection.getresponse().status == 200
    connection.close()
    assert feeds(redis) == []


def test_history_that_is_gone(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.client().set("a", 1)
    assert run("snapshot", "--data", tmp_path / "data", "--to", tmp_path / "backup").status == 0
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "restored").status == 0
    with ServerProcess(tmp_path / "restored", has_http=True) as server, Stream(server, "since=1") as stream:
        redis: Any = server.client()
        oldest = redis.execute_command("FEED", "POSITION")[0][1]
        assert (stream.status, stream.json()) == (410, {"error": "FEEDTOOOLD", "oldest": oldest})


def test_the_password_of_redis_clients(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(tmp_path / "password"), has_http=True) as server:
        with Stream(server) as stream:
            assert stream.status == 401
        with Stream(server, Authorization="Bearer wrong") as stream:
            assert stream.status == 401
        with Stream(server, Authorization="Bearer secret") as stream:
            assert stream.next().name == "steady"


# --- how it ends ------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away(server: ServerProcess, redis: Any) -> None:
    stream = Stream(server, "checkpoint=3600000")  # nothing is sent that could fail
    stream.next("steady")
    assert len(feeds(redis)) == 1
    stream.close()
    wait_for(lambda: not feeds(redis))


def test_a_killed_feed_ends_after_a_checkpoint(server: ServerProcess, redis: Any) -> None:
    with Stream(server, "checkpoint=3600000") as stream:
        stream.next("steady")
        redis.set("a", 1)
        redis.execute_command("FEED", "KILL", feeds(redis)[0][b"id"])
        assert [stream.next().name, stream.next().name] == ["value", "checkpoint"]
        with pytest.raises(EOFError):
            stream.next()


def test_a_server_that_stops(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", has_http=True) as server,
        Stream(server) as stream,
        Stream(server, "initial=1") as other,
    ):
        stream.next("steady")
        other.next("steady")
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 3
        for each in (stream, other):
            assert each.next().name == "checkpoint"
            with pytest.raises(EOFError):
                each.next()


def test_a_server_that_stops_while_somebody_does_not_read(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_http=True) as server, Stream(server) as stream:
        stream.next("steady")
        redis = server.client(protocol=3)
        write_much(redis)
        wait_for(lambda: bool(feeds(redis)[0][b"state"] == b"slow"))
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 5
        assert "Traceback" not in server.stderr


# --- bounds -----------------------------------------------------------------------------------------------------


def write_much(redis: Any) -> None:
    """80 MB of history, and 500 KB of values."""
    value = "v" * 10_000
    for number in range(0, 8000, 100):
        pipeline = redis.pipeline(transaction=False)
        for each in range(number, number + 100):
            pipeline.set(f"k{each % 50}", f"{each}:{value}")
        pipeline.execute()


def test_a_slow_reader_takes_no_memory_and_misses_nothing(server: ServerProcess, redis: Any) -> None:
    write_much(redis)  # the newest of the journal is kept in memory anyway
    with Stream(server, f"prefix=k&{SOON}") as stream:
        stream.next("steady")
        before = server.resident_bytes
        write_much(redis)
        wait_for(lambda: bool(feeds(redis)[0][b"state"] == b"slow"))
        assert feeds(redis)[0][b"buffer_bytes"] < 8 * limits.MIB
        assert server.resident_bytes - before < 32 * limits.MIB
        found = [int(stream.next("value").data["value"].partition(":")[0]) for _ in range(8000)]
    assert found == list(range(8000))


def test_there_are_only_so_many(server: ServerProcess, redis: Any) -> None:
    request = b"GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert redis.config_get("http-feeds") == {"http-feeds": str(limits.HTTP_FEEDS_DEFAULT)}
    redis.config_set("http-feeds", MANY)
    connections = []
    for _ in range(MANY):
        connections.append(socket.create_connection(("127.0.0.1", server.http_port), timeout=SECONDS_MAX))
        connections[-1].sendall(request)
        assert connections[-1].recv(100).startswith(b"HTTP/1.1 200")
    with Stream(server) as stream:
        assert stream.status == 503
        assert stream.response.headers["retry-after"]
    redis.config_set("http-feeds", limits.HTTP_FEEDS_DEFAULT)
    with Stream(server) as stream:
        assert stream.status == 200
    redis.set("k", "for all of them")
    for connection in connections:
        data = b""
        while b"for all of them" not in data:
            data += connection.recv(1000)
    for connection in connections:
        connection.close()
    wait_for(lambda: not feeds(redis))
    with Stream(server) as stream:
        assert stream.status == 200


# --- what can be asked for --------------------------------------------------------------------------------------


def test_transactions_groups_and_an_end(server: ServerProcess, redis: Any) -> None:
    since = redis.execute_command("FEED", "POSITION")[0][1]
    redis.mset({"a": 1, "b": 2})
    redis.xgroup_create("x", "g", mkstream=True)
    until = redis.execute_command("FEED", "POSITION")[0][1]
    redis.set("a", "later")
    with Stream(server, f"since={since}&until={until}&txn=1&groups=1") as stream:
        found = [stream.next()]
        while found[-1].name != "checkpoint" or found[-1].data["ts"] < until:
            found.append(stream.next())
        with pytest.raises(EOFError):
            stream.next()
        assert [sent.name for sent in found] == ["value", "value", "commit", "value", "commit", "checkpoint"]
        assert found[3].data["field"] == "group"
        assert found[-1].data["ts"] == until
    with Stream(server, f"since={since}&until={until}", Last_Event_ID=found[-1].id) as stream:
        assert stream.status == 204  # so that a browser does not come back


def test_a_name_is_where_a_reader_goes_on(server: ServerProcess, redis: Any) -> None:
    since = redis.execute_command("FEED", "POSITION")[0][1]
    redis.set("a", 1)
    with Stream(server, f"name=page&since={since}&{SOON}") as stream:
        assert stream.next("value").data["value"] is not None
        done = stream.next("checkpoint").data["ts"]
    redis.execute_command("FEED", "ACK", "page", done)
    redis.set("a", 2)
    with Stream(server, "name=page") as stream:
        assert stream.next("value").data["value"] == "2"
        assert feeds(redis)[0][b"name"] == b"page"
    with Stream(server, "name=%ff") as stream:
        assert stream.status == 400


def test_one_checkpoint_for_all_keys(server: ServerProcess, redis: Any) -> None:
    with Stream(server, f"key=a&key=b&prefix=c&onecheckpoint=1&{SOON}") as stream:
        first, second = stream.next("checkpoint"), stream.next("checkpoint")
    assert first.data["ts"] < second.data["ts"]
    assert (first.data["start"], first.data["end"]) == ("", "")
    assert redis.ping()
