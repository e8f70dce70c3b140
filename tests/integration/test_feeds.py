"""Feeds of a real server: errors, ends, names over a restart, a reader that does not read, a server that is killed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import hiredis
import pytest
import redis

from tests.feeds.rebuilt import Rebuilt, difference
from tests.integration.server_process import ServerProcess
from tests.resp.wire import encode_command
from tidelog.feeds.span import span_of_prefix


class Watcher:
    """A connection that gets the events of a feed."""

    def __init__(self, server: ServerProcess, *words: object) -> None:
        self._connection = server.connect()
        self._connection.settimeout(20)
        self._reader = hiredis.Reader()
        self.known = Rebuilt([span_of_prefix(b"")])
        self.send("CHANGEFEED", *words)

    def send(self, *words: object) -> None:
        self._connection.sendall(encode_command([str(word).encode() for word in words]))

    def next(self) -> Any:
        """The next event or reply; None: the connection was closed."""
        while (event := self._reader.gets()) is False:
            try:
                data = self._connection.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.feed(data)
        return event

    def until(self, name: bytes) -> list[Any]:
        """The events up to one of that name."""
        found = [self.next()]
        while found[-1] is not None and found[-1][0] != name:
            found.append(self.next())
        return found

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as made:
        yield made


def test_events_and_an_orderly_end(server: ServerProcess) -> None:
    client: Any = server.client()
    client.set("a", 1)
    watcher = Watcher(server, "INITIAL", "PREFIX", "", "CHECKPOINT", 50)
    assert [event[0] for event in watcher.until(b"steady")] == [b"value", b"steady"]
    client.hset("h", mapping={"f": "v"})
    assert watcher.until(b"value")[-1][2:] == [b"h", b"hash", b"f", b"v"]
    (shown,) = client.execute_command("FEED", "LIST")
    assert shown[b"state"] == b"steady"
    assert client.info("feeds")["feeds"] == 1
    assert client.execute_command("FEED", "KILL", shown[b"id"]) == b"OK"
    last = None
    while (event := watcher.next()) is not None:
        last = event
    assert last is not None
    assert last[0] == b"checkpoint"
    assert client.execute_command("FEED", "LIST") == []
    watcher.close()


def test_errors_are_replies_and_the_connection_lives(server: ServerProcess) -> None:
    watcher = Watcher(server, "KEY")
    assert str(watcher.next()).startswith("ERR ")
    watcher.send("CHANGEFEED", "SINCE", 2**62, "KEY", "a")
    assert "ahead of the clock" in str(watcher.next())
    watcher.send("CHANGEFEED", "SINCE", 0, "EPOCH", 1, "SEEN", 1, "KEY", "a")
    assert str(watcher.next()) == "FEEDDIVERGED since=0"
    watcher.send("MULTI")
    assert watcher.next() == b"OK"
    watcher.send("CHANGEFEED", "KEY", "a")
    assert str(watcher.next()).startswith("ERR Command not allowed")
    watcher.send("DISCARD")
    assert str(watcher.next()) in ("b'OK'", "OK")
    watcher.send("CHANGEFEED", "KEY", "a")
    assert watcher.next()[0] == b"steady"
    watcher.send("GET", "a")
    assert str(watcher.next()).startswith("ERR Can't execute 'get'")
    watcher.send("RESET")
    assert watcher.next() == b"RESET"
    watcher.send("GET", "a")
    assert watcher.next() is None
    watcher.close()


def test_a_stop_ends_feeds_with_a_checkpoint(server: ServerProcess) -> None:
    watcher = Watcher(server, "PREFIX", "", "CHECKPOINT", 3_600_000)
    watcher.until(b"steady")
    server.client().set("a", 1)
    assert server.terminate() == 0
    assert [event[0] for event in watcher.until(b"checkpoint")] == [b"value", b"checkpoint"]
    assert watcher.next() is None
    watcher.close()


def test_a_named_feed_resumes_after_a_restart(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        watcher = Watcher(server, "NAME", "n", "PREFIX", "", "SINCE", 0)
        watcher.until(b"steady")
        server.client().set("a", 1)
        ts = watcher.until(b"value")[-1][1]
        server.client().set("a", 2)
        client: Any = server.client()
        assert client.execute_command("FEED", "ACK", "n", ts) == b"OK"
        server.kill()
        watcher.close()
    with ServerProcess(tmp_path / "data") as server:
        watcher = Watcher(server, "NAME", "n", "PREFIX", "")
        assert watcher.until(b"value")[-1][2:] == [b"a", b"string", None, b"2"]
        watcher.close()


def test_names_are_listed_taken_over_and_dropped(server: ServerProcess) -> None:
    client: Any = server.client(protocol=3)
    first = Watcher(server, "NAME", "n", "PREFIX", "", "SINCE", 0)
    first.until(b"checkpoint")
    [hold] = client.execute_command("FEED", "HOLDS")
    assert (hold[b"name"], hold[b"db"], hold[b"ts"], hold[b"lapsed"]) == (b"n", 0, 0, None)
    assert hold[b"reader"] == client.execute_command("FEED", "LIST")[0][b"id"]
    with pytest.raises(redis.ResponseError, match=f"end it first, with FEED KILL {hold[b'reader']}"):
        client.execute_command("FEED", "DROP", "n")
    second = Watcher(server, "NAME", "n", "PREFIX", "")
    while isinstance(told := first.next(), list):
        pass
    assert "FEEDTAKEN another reader has taken over the name 'n'" in str(told)
    assert first.next() is None
    second.close()
    first.close()
    with server.client(db=1) as elsewhere:
        link: Any = elsewhere
        for words in (("FEED", "DROP", "n"), ("FEED", "ACK", "n", 1)):
            with pytest.raises(redis.ResponseError, match="there is no feed named 'n'"):
                link.execute_command(*words)
    deadline = time.monotonic() + 20
    while client.execute_command("FEED", "HOLDS")[0][b"reader"] is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.execute_command("FEED", "DROP", "n") == b"OK"
    assert client.execute_command("FEED", "HOLDS") == []


def test_a_client_that_resumes_knows_all_whatever_is_killed(tmp_path: Path) -> None:
    """Kill after kill, from checkpoint to checkpoint: what it knows in the end is what the server has."""
    known = Rebuilt([span_of_prefix(b"")])
    where: tuple[object, ...] = ("INITIAL",)
    for round_ in range(4):
        with ServerProcess(tmp_path / "data") as server:
            watcher = Watcher(server, *where, "PREFIX", "", "CHECKPOINT", 20)
            client: Any = server.client()
            for number in range(200):
                client.set(f"k{number % 17}", f"{round_}-{number}")
                client.hset("h", f"f{number % 5}", number)
                if number % 50 == 49:
                    client.delete("h", f"k{number % 3}")
            marker = client.execute_command("FEED", "POSITION")[0][1]
            while known.checkpoint < marker:
                event = watcher.next()
                assert isinstance(event, list), event
                known.send(_encoded(event))
            there = {key: _value(client, key) for key in client.keys()}  # noqa: SIM118
            assert difference(known.state, there) == ""
            client.set("lost", round_)  # or not: it is not waited for
            server.kill()
            watcher.close()
            where = ("SINCE", known.checkpoint, "EPOCH", known.epoch, "SEEN", known.seen)
            known = Rebuilt(known.spans, known.checkpoint, known.saved)


def _value(client: Any, key: bytes) -> Any:
    return ("hash", client.hgetall(key)) if client.type(key) == b"hash" else client.get(key)


def _encoded(event: list[Any]) -> bytes:
    """As it was sent."""
    parts = [b"*%d\r\n" % len(event)]
    for item in event:
        if item is None:
            parts.append(b"$-1\r\n")
        elif isinstance(item, int):
            parts.append(b":%d\r\n" % item)
        elif isinstance(item, list):
            parts.append(_encoded(item))
        else:
            parts.append(b"$%d\r\n%b\r\n" % (len(item), item))
    return b"".join(parts)


@pytest.mark.parametrize("value_bytes", [100_000, 1_000_000])
@pytest.mark.parametrize("size", [60_000_000, pytest.param(1_000_000_000, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_a_reader_that_is_far_behind_takes_no_memory(tmp_path: Path, size: int, value_bytes: int) -> None:
    with ServerProcess(tmp_path / "data") as server:
        watcher = Watcher(server, "PREFIX", "")
        watcher.until(b"steady")
        client: Any = server.client()
        value = bytes(value_bytes)
        for number in range(20):
            client.set(f"k{number}", value)
        before = _resident_bytes(server.pid)
        count = size // len(value)
        pipeline = client.pipeline(transaction=False)
        for number in range(count):
            pipeline.set(f"k{number % 20}", b"%d" % number + value)
            if number % 20 == 19:
                pipeline.execute()
        pipeline.execute()
        seen = 0
        most = _resident_bytes(server.pid)
        for event in iter(watcher.next, None):
            if event[0] == b"value" and len(event[-1]) > len(value):
                assert event[-1].startswith(b"%d" % seen)
                seen += 1
                if seen % 50 == 0:
                    most = max(most, _resident_bytes(server.pid))
                if seen == count:
                    break
        assert seen == count
        assert most - before < 32_000_000
        watcher.close()


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("it has ended")


def test_a_thousand_feeds(server: ServerProcess) -> None:
    sockets: list[socket.socket] = []
    try:
        for number in range(1000):
            connection = server.connect()
            connection.sendall(encode_command([b"CHANGEFEED", b"KEY", b"k%d" % number]))
            sockets.append(connection)
        for connection in sockets:
            connection.settimeout(20)
            assert connection.recv(100)
        client: Any = server.client()
        client.set("k500", "x")
        assert b"k500" in sockets[500].recv(1000)
        assert client.info("feeds")["feeds_steady"] == 1000
    finally:
        for connection in sockets:
            connection.close()


def test_a_history_can_be_read_in_parts(server: ServerProcess) -> None:
    client: Any = server.client()
    for number in range(10):
        client.set(f"k{number}", bytes(400_000))  # so that there are frames
    ((shard, visible, epoch, until),) = client.execute_command("FEED", "POSITION", "SINCE", 0, "RECORDS", 4)
    assert (shard, epoch > 0, 0 < until < visible) == (0, True, True)
    seen = 0
    while until < visible:
        before, (until,) = until, client.execute_command("FEED", "POSITION", "SINCE", until, "RECORDS", 4)[0][3:]
        assert until > before
        seen += 1
    assert seen
    assert client.execute_command("FEED", "POSITION", "SINCE", visible, "RECORDS", 1)[0][3] == visible
    for wrong in (("SINCE", 0), ("SINCE", -1, "RECORDS", 1), ("SINCE", 0, "RECORDS", 0), ("SINCE", "x", "RECORDS", 1)):
        with pytest.raises(redis.ResponseError):
            client.execute_command("FEED", "POSITION", *wrong)


def test_a_position_says_how_many_records_are_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "3") as running:
        client: Any = running.client()

        def behind(since: int) -> list[int]:
            return [row[3] for row in client.execute_command("FEED", "POSITION", "SINCE", since, "BEHIND")]

        assert behind(0) == [0, 0, 0]
        marks = [0]
        for number in range(30):
            client.set(f"k{number}", bytes(100_000))  # some to a frame, and several frames
            marks.append(client.execute_command("FEED", "POSITION")[0][1])
        assert len(client.execute_command("FEED", "POSITION")[0]) == 3
        assert all(count > 0 for count in behind(0))
        assert [sum(behind(mark)) for mark in marks] == list(range(30, -1, -1))
        assert behind(marks[-1] + 1_000_000) == [0, 0, 0]
        begins = [client.execute_command("FEED", "POSITION", "SINCE", mark, "BEHIND")[0][4] for mark in marks]
        assert begins[1:] == marks[1:]
        assert 0 < marks[1] - begins[0] < 3_600_000_000, "it does not begin with the journal"
        with pytest.raises(redis.ResponseError, match="SINCE is negative"):
            behind(-1)


def test_a_reader_that_begins_at_the_same_place_in_a_loop_waits(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--feed-repeats", "3", "--feed-checkpoint", "50", has_http=True) as server:
        client: Any = server.client(protocol=3)
        client.set("k", "v")
        for _ in range(3):
            watcher = Watcher(server, "KEY", "k", "SINCE", 0)
            assert watcher.until(b"steady")[0][0] == b"value"
            watcher.close()
        late = Watcher(server, "KEY", "k", "SINCE", 0)
        assert [late.next()[0] for _ in range(3)] == [b"checkpoint"] * 3  # it is there, and has not begun
        named = Watcher(server, "KEY", "k", "SINCE", 0, "NAME", "reader")  # which is another
        named.until(b"steady")
        assert [row[b"state"] for row in client.execute_command("FEED", "LIST")] == [b"delayed", b"steady"]
        info = client.info("feeds")
        assert (info["feeds_delayed"], info["total_feeds"], info["total_feeds_delayed"]) == (1, 5, 1)
        with urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=20) as response:
            shown = response.read().decode().splitlines()
        assert 'tidelog_feeds{state="steady"} 1' in shown
        assert 'tidelog_feeds{state="delayed"} 1' in shown
        assert "tidelog_feeds_total 5" in shown
        assert "tidelog_feeds_delayed_total 1" in shown
        assert any(line.startswith('tidelog_feed_named_lag_seconds{name="reader"} 0') for line in shown)
        figures = dict(line.rsplit(" ", 1) for line in shown if line.startswith("tidelog_feed_"))
        assert int(figures["tidelog_feed_events_total"]) >= 11
        assert int(figures["tidelog_feed_bytes_total"]) > 500
        assert "the same history was begun too often" in server.stderr
        for watcher in (late, named):
            watcher.close()
        assert client.config_set("feed-repeats", 0)
        watcher = Watcher(server, "KEY", "k", "SINCE", 0)
        assert watcher.until(b"steady")[0][0] == b"value"
        watcher.close()


def test_how_often_checkpoints_come_can_be_set(server: ServerProcess) -> None:
    client: Any = server.client()
    assert client.config_get("feed-checkpoint") == {"feed-checkpoint": "1000"}
    client.config_set("feed-checkpoint", 20)
    watcher = Watcher(server, "KEY", "a", "KEY", "b", "ONECHECKPOINT")
    events = [watcher.next() for _ in range(10)]
    assert [event[0] for event in events] == [b"steady"] + [b"checkpoint"] * 9
    assert len({event[1] for event in events[1:]}) == 9
    with pytest.raises(redis.ResponseError):
        client.config_set("feed-checkpoint", 5)
    watcher.close()
