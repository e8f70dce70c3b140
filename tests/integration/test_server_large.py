"""Large values: they come back as they were sent, also after a crash, and nobody else waits for them."""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.exceptions import ExecAbortError

from tests.integration import limited_server, slow_disk_server
from tests.integration.server_process import ServerProcess

MIB: Final = 1024 * 1024
LARGE: Final = 5 * MIB
SMALL_SEGMENTS: Final = {"FRAME_BYTES_DEFAULT": MIB, "FRAMES_PER_SEGMENT_MAX": 2}


def made(size: int = LARGE) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("large") / "data") as running:
        yield running


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-P", slow_disk_server.__file__, "serve"]
    with ServerProcess(tmp_path / "data", command=command, FULL=str(tmp_path / "full")) as running:
        yield running


def write_everything(client: redis.Redis, value: bytes) -> dict[str, Any]:
    """Each kind of command with a large value; returns what must be there afterwards."""
    client.flushall()
    client.set("set", value)
    client.set("set with expiry", value, ex=1000)
    client.mset({"mset 1": value + b"1", "mset small": b"small", "mset 2": value + b"2"})
    client.hset("hash", mapping={"small": b"1", "large": value, "large 2": value + b"2"})
    client.sadd("members", value)
    client.set("append", b"begin")
    client.append("append", value)
    client.append("append", b"end")
    client.set("range", value)
    client.setrange("range", 5_000_000, b"patch")
    client.setrange("range", LARGE + MIB, b"beyond")
    client.setrange("zeros", LARGE, b"x")
    client.xadd("stream", {"a": value, "b": b"2"})
    with client.pipeline(transaction=True) as multi:
        multi.set("multi 1", value + b"m1")
        multi.append("multi 1", b"more")
        multi.hset("multi 2", "f", value + b"m2")
        multi.get("multi 1")
        multi.copy("multi 1", "multi copy")
        replies = multi.execute()
    assert replies[3] == value + b"m1more"
    patched = value[:5_000_000] + b"patch" + value[5_000_005:]
    return {
        "set": value,
        "set with expiry": value,
        "mset 1": value + b"1",
        "mset small": b"small",
        "mset 2": value + b"2",
        "hash": {b"small": b"1", b"large": value, b"large 2": value + b"2"},
        "members": {value},
        "append": b"begin" + value + b"end",
        "range": patched + bytes(MIB) + b"beyond",
        "zeros": bytes(LARGE) + b"x",
        "stream": [{b"a": value, b"b": b"2"}],
        "multi 1": value + b"m1more",
        "multi 2": {b"f": value + b"m2"},
        "multi copy": value + b"m1more",
    }


def read_everything(client: redis.Redis) -> dict[str, Any]:
    readers: dict[bytes, Callable[[str], Any]] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"stream": lambda key: [fields for _, fields in client.xrange(key)],  # type: ignore[union-attr]
    }
    found = {}
    for name in client.keys("*"):
        key = str(name, "utf-8") if isinstance(name, bytes) else name
        found[key] = readers[client.type(key)](key)  # type: ignore[index]
    return found


@pytest.mark.parametrize("shards", ["1", "4"])
def test_large_values_survive_a_kill(tmp_path: Path, shards: str) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--shards", shards) as server, server.client() as client:
        expected = write_everything(client, made())
        assert read_everything(client) == expected
        server.process.kill()
        server.process.wait()
    with ServerProcess(data) as server, server.client() as client:
        assert read_everything(client) == expected


def test_large_values_while_segments_end_and_are_erased(tmp_path: Path) -> None:
    """Others write whole segments while a value is being written, so its segment may be over before it is there."""
    command = [*limited_server.COMMAND, json.dumps({**SMALL_SEGMENTS, "RETAIN_BYTES": 0, "RETAIN_AGE_US": 0}), "serve"]
    data = tmp_path / "data"
    with ServerProcess(data, "--snapshot-after", "16mb", command=command) as server:
        is_over = threading.Event()

        def write_much() -> None:
            with server.client() as other:
                while not is_over.is_set():
                    other.set("much", bytes(300_000))

        writer = threading.Thread(target=write_much)
        writer.start()
        try:
            with server.client() as client:
                for number in range(12):
                    client.set(f"large {number % 3}", made() + b"%d" % number)
                    client.append(f"large {number % 3}", b"!")
        finally:
            is_over.set()
            writer.join()
        server.process.kill()
        server.process.wait()
    with ServerProcess(data) as server, server.client() as client:
        for number in range(9, 12):
            assert client.get(f"large {number % 3}") == made() + b"%d!" % number


def test_commands_around_a_large_value_run_in_order(server: ServerProcess) -> None:
    value = made()
    with server.connect() as connection:
        words = b"$%d\r\n%b\r\n" % (len(value), value)
        connection.sendall(b"SET a 1\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n" + words + b"STRLEN a\r\nSET a 2\r\nGET a\r\n")
        connection.sendall(b"*3\r\n$6\r\nAPPEND\r\n$1\r\na\r\n" + words + b"STRLEN a\r\nPING\r\n")
        expected = b"+OK\r\n+OK\r\n:%d\r\n+OK\r\n$1\r\n2\r\n:%d\r\n:%d\r\n+PONG\r\n" % (
            (len(value), len(value) + 1, len(value) + 1)
        )
        assert receive(connection, len(expected)) == expected


def receive(connection: socket.socket, count: int) -> bytes:
    connection.settimeout(60)
    parts = bytearray()
    while len(parts) < count:
        more = connection.recv(min(count - len(parts), 65536))
        assert more, f"the connection ended after {len(parts)} bytes"
        parts += more
    return bytes(parts)


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_long_replies_keep_their_order(tmp_path: Path, fsync: str) -> None:
    value = made(3 * MIB)
    with ServerProcess(tmp_path / "data", "--fsync", fsync) as server, server.connect() as connection:
        with server.client() as client:
            client.set("k", value)
            client.hset("h", mapping={"a": value, "b": b"2"})
        connection.sendall(b"SET x 1\r\nGET k\r\nSET x 2\r\nMGET x k x\r\nHGETALL h\r\nGET k\r\nQUIT\r\n")
        bulk = b"$%d\r\n%b\r\n" % (len(value), value)
        expected = b"+OK\r\n" + bulk + b"+OK\r\n*3\r\n$1\r\n2\r\n" + bulk + b"$1\r\n2\r\n"
        expected += b"*4\r\n$1\r\na\r\n" + bulk + b"$1\r\nb\r\n$1\r\n2\r\n" + bulk + b"+OK\r\n"
        assert receive(connection, len(expected)) == expected
        assert connection.recv(10) == b""


def test_messages_wait_behind_a_long_reply(server: ServerProcess) -> None:
    value = made(16 * MIB)
    with server.connect() as connection, server.client() as client:
        client.set("k", value)
        connection.sendall(b"HELLO 3\r\nSUBSCRIBE c\r\n")
        while not connection.recv(65536).endswith(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"):
            pass
        connection.sendall(b"GET k\r\n")
        first = connection.recv(20)  # it has begun, and is far from its end: nobody reads
        for number in range(3):
            client.publish("c", number)
        expected = b"$%d\r\n%b\r\n" % (len(value), value)
        expected += b"".join(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n%d\r\n" % number for number in range(3))
        assert first + receive(connection, len(expected) - len(first)) == expected


def test_readers_that_stall_keep_no_copies(server: ServerProcess) -> None:
    with server.client() as client:
        client.set("k", bytes(32 * MIB))
        before = server.resident_bytes
        stalled = [server.connect() for _ in range(20)]
        for connection in stalled:
            connection.sendall(b"GET k\r\n")
            receive(connection, 100)
        assert client.ping()
        assert server.resident_bytes - before < 4 * 32 * MIB
        for connection in stalled:
            connection.close()
        assert client.get("k") == bytes(32 * MIB)


def test_a_client_that_goes_away_in_the_middle_leaves_nothing(server: ServerProcess) -> None:
    value = made()
    with server.client() as client:
        client.delete("k")
        for sent in (len(value) // 2, len(value)):
            with server.connect() as connection:
                connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % len(value) + value[:sent])
        assert client.get("k") is None
        client.set("k", value)
        assert client.get("k") == value


def longest_wait_s(server: ServerProcess, work: Callable[[redis.Redis], object]) -> float:
    """How long a command of another client takes at most while `work` goes on."""
    longest_s = 0.0
    with server.client() as client, server.client() as other:
        thread = threading.Thread(target=work, args=(client,))
        thread.start()
        while thread.is_alive():
            began_s = time.perf_counter()
            other.set("small", longest_s)
            other.get("small")
            longest_s = max(longest_s, time.perf_counter() - began_s)
        thread.join()
    return longest_s


@pytest.mark.parametrize(
    "command",
    ["SET", "MULTI", "BGSAVE", *(pytest.param(name, marks=pytest.mark.long) for name in ("HSET", "APPEND", "XADD"))],
)
def test_others_go_on_while_a_large_value_is_written(slow: ServerProcess, command: str) -> None:
    value = made(8 * MIB)

    def multi(client: redis.Redis) -> None:
        with client.pipeline(transaction=True) as queued:
            queued.set("multi", value)
            queued.set("other", 1)
            queued.execute()

    def save(client: redis.Redis) -> None:
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.05)

    work: dict[str, Callable[[redis.Redis], object]] = {
        "SET": lambda client: client.set("k", value),
        "MULTI": multi,
        "HSET": lambda client: client.hset("h", "f", value),
        "APPEND": lambda client: client.append("k", b"more"),
        "XADD": lambda client: client.xadd("s", {"f": value}),
        "BGSAVE": save,
    }
    with slow.client() as client:
        if command in ("APPEND", "BGSAVE"):
            client.set("k", value)
            client.hset("h", "f", value)
    # The disk takes 2.4 s for the value; without it, a few milliseconds are usual.
    assert longest_wait_s(slow, work[command]) < 1.2


def test_without_space_for_a_large_value_nothing_changes(slow: ServerProcess, tmp_path: Path) -> None:
    value = made()
    with slow.client() as client:
        client.set("k", b"old")
        (tmp_path / "full").touch()
        for name in ("SET", "APPEND"):
            with pytest.raises(redis.ResponseError, match=r"MISCONF a large value cannot be written \(No space left"):
                client.execute_command(name, "k", value)
        with client.pipeline(transaction=True) as multi:
            multi.set("k", value)
            multi.set("other", 1)
            with pytest.raises(ExecAbortError, match="No space left"):
                multi.execute()
        assert client.get("k") == b"old"
        assert client.get("other") is None
        client.set("k", b"small values are written")
        (tmp_path / "full").unlink()
        client.set("k", value)
        assert client.get("k") == value
