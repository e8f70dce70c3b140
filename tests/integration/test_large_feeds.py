"""Events and transactions that are larger than any buffer: every reader gets them whole and goes on, nobody else waits
for them, and the server holds none of them in memory."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import run
from tests.integration.server_process import ServerProcess
from tests.integration.test_feeds import Watcher
from tests.integration.test_http_feed import Stream, wait_for
from tidelog import limits
from tidelog.client import Client, Value

MIB = limits.MIB
LARGE = 40 * MIB
"""More than a client that listens may leave unread."""
HELD_MAX = 24 * MIB
"""How much more memory the server may take, whatever it sends."""
ALL = pytest.mark.parametrize("begins", ["live", "disk", "initial"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # No snapshot is made meanwhile: it would take memory of its own.
    data = tmp_path_factory.mktemp("server") / "data"
    with ServerProcess(data, "--snapshot-after", "0", has_http=True) as made:
        yield made


@pytest.fixture
def server(shared: ServerProcess) -> ServerProcess:
    client: Any = shared.client()
    client.flushall()
    wait_for(lambda: not client.execute_command("FEED", "LIST"))  # of the test before
    return shared


def now(server: ServerProcess) -> int:
    client: Any = server.client()
    return int(client.execute_command("FEED", "POSITION")[0][1])


def settled_bytes(server: ServerProcess) -> int:
    """The size of the server when it no longer grows: after a write it looks through what it has journaled."""
    sizes = [0, server.resident_bytes]
    while sizes[-1] > max(sizes[-4:-1]) and len(sizes) < 30:
        time.sleep(0.2)
        sizes += [server.resident_bytes]
    return max(sizes)


class Busy:
    """While something large is sent: how long another client waits at most, and the server's largest size."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = settled_bytes(server)
        self.waited_s = 0.0
        self._most = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        client: Any = self._server.client()
        while not self._ends.wait(0.01):
            began_s = time.monotonic()
            client.ping()
            self.waited_s = max(self.waited_s, time.monotonic() - began_s)
            self._most = max(self._most, self._server.resident_bytes)
        client.close()

    @property
    def more_bytes(self) -> int:
        return self._most - self._before

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def write(client: Any, how: str, size: int = LARGE) -> dict[tuple[bytes, bytes | None], int]:
    """Make one transaction of some size; how many bytes each key and field has then."""
    eighth = bytes(size // 8)
    if how == "set":
        client.set("k", bytes(size))
        return {(b"k", None): size}
    if how == "hset":
        fields = {f"f{at}": bytes(20_000) for at in range(size // 20_000)}
        client.hset("h", mapping=fields)
        return {(b"h", name.encode()): 20_000 for name in fields}
    if how == "mset":
        client.mset({f"k{at}": eighth for at in range(8)})
    elif how == "multi":
        pipeline = client.pipeline(transaction=True)
        for at in range(8):
            pipeline.set(f"k{at}", eighth)
        pipeline.execute()
    return {(b"k%d" % at, None): size // 8 for at in range(8)}


def begin(server: ServerProcess, begins: str, protocol: int, since: int = 0) -> Watcher:
    words: list[object] = ["SINCE", since] if begins == "disk" else ["INITIAL"] if begins == "initial" else []
    watcher = Watcher(server)
    watcher.next()  # without a key it is an error, and the connection lives on
    if protocol == 3:
        watcher.send("HELLO", 3)
        watcher.next()
    watcher.send("CHANGEFEED", "PREFIX", "", "TXN", *words)
    if begins == "live":
        watcher.until(b"steady")
    return watcher


def sizes_of(events: list[Any]) -> dict[tuple[bytes, bytes | None], int]:
    assert events[-1] is not None, "the connection was cut"
    return {(event[2], event[4]): len(event[5]) for event in events if event[0] == b"value"}


@ALL
@pytest.mark.parametrize(
    ("how", "protocol"),
    [
        ("set", 2),
        ("multi", 3),
        pytest.param("set", 3, marks=pytest.mark.long),
        pytest.param("hset", 2, marks=pytest.mark.long),
        pytest.param("mset", 3, marks=pytest.mark.long),
    ],
)
def test_a_transaction_larger_than_any_buffer(server: ServerProcess, begins: str, how: str, protocol: int) -> None:
    client: Any = server.client()
    since, expected = now(server), {}
    if begins != "live":
        expected = write(client, how)
    watcher = begin(server, begins, protocol, since)
    if begins == "live":
        expected = write(client, how)
        time.sleep(0.3)  # it goes into no buffer
    with Busy(server) as busy:
        events = watcher.until(b"commit")
        while sizes_of(events).keys() < expected.keys():  # initial values may be of several moments
            events += watcher.until(b"commit")
    assert sizes_of(events) == expected
    assert busy.waited_s < 2
    assert busy.more_bytes < HELD_MAX
    client.set("after", 1)
    assert watcher.until(b"commit")[-2][2] == b"after"
    watcher.close()


def test_entries_larger_than_any_buffer(server: ServerProcess) -> None:
    client: Any = server.client()
    watcher = begin(server, "live", 2)
    entry = bytes(LARGE // 4)
    client.execute_command("TWRITE", "t", "ENTRIES", *[word for tag in "abcd" for word in (tag, entry)])
    found = [row for event in watcher.until(b"commit") if event[0] == b"value" for row in event[-1]]
    assert [(offset, tag, len(data)) for offset, _, tag, data in found] == [
        (at + 1, tag, len(entry)) for at, tag in enumerate([b"a", b"b", b"c", b"d"])
    ]
    watcher.close()


def test_a_reader_that_stops_inside_an_event(server: ServerProcess) -> None:
    client: Any = server.client(protocol=3)
    watcher = begin(server, "live", 3)
    write(client, "set")
    wait_for(lambda: bool(client.execute_command("FEED", "LIST")[0][b"state"] == b"slow"))
    watcher.send("PING")  # answered between two events
    assert client.execute_command("FEED", "LIST")[0][b"buffer_bytes"] < 8 * MIB
    assert [event[0] for event in watcher.until(b"commit")][-2:] == [b"value", b"commit"]
    while (reply := watcher.next()) != b"PONG":
        assert reply[0] == b"checkpoint"
    write(client, "set")
    wait_for(lambda: bool(client.execute_command("FEED", "LIST")[0][b"state"] == b"slow"))
    number = client.execute_command("FEED", "LIST")[0][b"id"]
    client.execute_command("FEED", "KILL", number)  # after this event, when it is taken
    assert client.execute_command("FEED", "LIST")
    events = watcher.until(b"never")
    kinds = [event[0] for event in events[:-1]]
    assert [kind for kind in kinds if kind != b"checkpoint"] == [b"value", b"commit"]
    assert kinds[-1] == b"checkpoint"
    watcher.close()
    wait_for(lambda: not client.execute_command("FEED", "LIST"))


def test_events_wait_for_the_end_of_a_long_reply(server: ServerProcess) -> None:
    """And a long reply waits for the end of an event: whatever comes first, both are whole."""
    client: Any = server.client(protocol=3)
    long = bytes(range(256)) * 4096 * 24
    client.set("long", long)
    watcher = begin(server, "live", 3)
    for number in range(3):
        watcher.send("GET", "long")
        wait_for(lambda: bool(client.execute_command("FEED", "LIST")[0][b"buffer_bytes"]))
        client.set(f"small:{number}", number)
        client.set(f"large:{number}", long)
        watcher.send("GET", "long")
    replies = 0
    values: list[Any] = []
    while replies < 6 or len(values) < 6:
        found = watcher.next()
        if found == long:
            replies += 1
        elif found[0] == b"value":
            values.append(found)
    assert [event[5] == long for event in values] == [False, True] * 3
    watcher.close()


def test_a_feed_that_is_killed_twice_ends_at_once(server: ServerProcess) -> None:
    client: Any = server.client(protocol=3)
    watcher = begin(server, "live", 2)
    write(client, "set")
    wait_for(lambda: bool(client.execute_command("FEED", "LIST")[0][b"state"] == b"slow"))
    number = client.execute_command("FEED", "LIST")[0][b"id"]
    client.execute_command("FEED", "KILL", number)
    client.execute_command("FEED", "KILL", number)
    assert not client.execute_command("FEED", "LIST")
    watcher.close()


def test_a_server_stops_although_a_reader_stops_inside_an_event(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client: Any = server.client(protocol=3)
        watcher = begin(server, "live", 2)
        write(client, "set")
        wait_for(lambda: bool(client.execute_command("FEED", "LIST")[0][b"state"] == b"slow"))
        assert server.terminate() == 0
        watcher.close()


@pytest.mark.parametrize("kind", ["text", "bytes", "nested"])
def test_over_http_too(server: ServerProcess, kind: str) -> None:
    client: Any = server.client()
    data = {"text": 'a "text"\n\\ of ünïcode' * (LARGE // 24), "bytes": bytes(range(256)) * (LARGE // 256)}
    value = data.get(kind, data["text"])
    with Stream(server, "prefix=") as stream:
        stream.next("steady")
        if kind == "nested":
            client.xadd("x", {"f": value, "g": "small"}, id="1-0")
        else:
            client.set("k", value)
        time.sleep(0.3)
        with Busy(server) as busy:
            sent = read_large(stream)
        client.set("after", 1)
        assert stream.next("value").data["key"] == "after"
    if kind == "nested":
        assert sent["value"] == [[1, "1-0", "", ["f", value, "g", "small"]]]
    elif kind == "bytes":
        assert base64.b64decode(sent["value"]["base64"]) == value
    else:
        assert sent["value"] == value
    assert busy.waited_s < 2
    assert busy.more_bytes < HELD_MAX + (2 * LARGE if kind == "nested" else 0)  # of a stream, the entry is in memory


def read_large(stream: Stream) -> Any:
    """The next value; read by its line, which is what http.client is slow at otherwise."""
    response = stream.response
    while not response.readline().startswith(b"event: value"):
        pass
    return json.loads(response.readline().removeprefix(b"data: "))


def test_the_python_client(server: ServerProcess) -> None:
    since, expected = now(server), write(server.client(), "multi")

    async def read() -> dict[tuple[bytes, bytes | None], int]:
        found = {}
        async with Client(f"redis://127.0.0.1:{server.port}") as client:
            async for event in client.feed(since=since, reconnect_s_max=0):
                if isinstance(event, Value):
                    found[event.key, event.field] = len(event.value)
                elif event.kind == "steady":
                    break
        return found

    assert asyncio.run(read()) == expected


def test_the_command_line(server: ServerProcess) -> None:
    since, address = now(server), f"redis://127.0.0.1:{server.port}"
    write(server.client(), "set")
    outcome = run("feed", "--since", str(since), "--until-now", "--no-checkpoints", "--json", "--url", address)
    assert outcome.status == 0, outcome.stderr
    assert len(json.loads(outcome.stdout.splitlines()[0])["value"]) == LARGE


@pytest.mark.long
@pytest.mark.timeout(600)
@ALL
def test_350000_small_fields(server: ServerProcess, begins: str) -> None:
    client: Any = server.client()
    fields = {f"f{at}": f"value {at}" + 60 * "y" for at in range(350_000)}
    since = now(server)
    watcher = begin(server, "live", 2) if begins == "live" else None
    client.hset("h", mapping=fields)
    watcher = watcher or begin(server, begins, 2, since)
    with Busy(server) as busy:
        events = watcher.until(b"commit")
    watcher.close()
    assert {event[4].decode(): event[5].decode() for event in events if event[0] == b"value"} == fields
    assert busy.waited_s < 2
    assert busy.more_bytes < 4 * HELD_MAX  # for INITIAL the fields are listed, not copied


@pytest.mark.long
@pytest.mark.timeout(600)
@ALL
@pytest.mark.parametrize("edge", ["resp", "http"])
def test_a_value_of_100_mib(server: ServerProcess, begins: str, edge: str) -> None:
    client: Any = server.client()
    since = now(server)
    if begins != "live":
        write(client, "set", 100 * MIB)
    if edge == "resp":
        watcher = begin(server, begins, 2, since)
        close = watcher.close
        read: Callable[[], list[int]] = lambda: list(sizes_of(watcher.until(b"commit")).values())  # noqa: E731
    else:
        stream = Stream(server, {"live": "", "disk": f"since={since}", "initial": "initial=1"}[begins])
        if begins == "live":
            stream.next("steady")
        close = stream.close
        read = lambda: [len(read_large(stream)["value"])]  # noqa: E731
    if begins == "live":
        write(client, "set", 100 * MIB)
    with Busy(server) as busy:
        assert read() == [100 * MIB]
    close()
    assert busy.waited_s < 2
    assert busy.more_bytes < HELD_MAX
