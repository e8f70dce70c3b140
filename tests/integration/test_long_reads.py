"""Reads of very many entries: the reply is what was there when the command ran, and nobody else waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from random import randbytes
from typing import Any, Final

import pytest
import redis

from tests.integration.server_process import ServerProcess

ENTRIES: Final = 60_000
COMMANDS: Final[dict[str, tuple[str | int, ...]]] = {
    "TREAD": ("TREAD", "s", 1, ENTRIES),
    "TREAD REV": ("TREAD", "s", 0, ENTRIES, "REV"),
    "XRANGE": ("XRANGE", "s", "-", "+"),
    "XREVRANGE": ("XREVRANGE", "s", "+", "-"),
    "XREAD": ("XREAD", "COUNT", ENTRIES, "STREAMS", "s", 0),
}


def tag(number: int) -> bytes:
    return b"tag %d" % (number % 7)


def entry(number: int) -> bytes:
    return b"entry %d of many" % number


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("reads") / "data") as running, running.client() as client:
        for start in range(1, ENTRIES + 1, 1000):
            words = [word for number in range(start, start + 1000) for word in (tag(number), entry(number))]
            client.execute_command("TWRITE", "s", "ENTRIES", *words)
        yield running


def numbers_of(name: str, reply: Any) -> list[int]:
    """The numbers of the entries in a reply, each of which is looked at."""
    if name.startswith("TREAD"):
        assert all([tag(number), entry(number)] == rest for number, *rest in reply)
        return [number for number, *_ in reply]
    fields = [each for _, each in (reply[b"s"] if name == "XREAD" else reply)]
    found = [int(each[3].split()[1]) for each in fields]
    assert all(
        [b"tag", tag(number), b"entry", entry(number)] == each for number, each in zip(found, fields, strict=True)
    )
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reply_has_all_that_was_there_at_its_time(server: ServerProcess, name: str) -> None:
    wanted = list(range(1, ENTRIES + 1))
    if "REV" in name:
        wanted.reverse()
    with server.client() as reader, server.client() as other:
        connection = reader.connection_pool.get_connection()
        connection.send_command(*COMMANDS[name])
        connection.send_command("PING")
        while not connection.can_read(timeout=0.1):
            pass
        # It has begun, and nobody has taken any of it: what follows happens while most of it is not made yet.
        other.execute_command("XTRIM", "s", "MAXLEN", "=", 10)
        other.execute_command("TWRITE", "s", "t", "later")
        assert other.xlen("s") == 11
        assert numbers_of(name, connection.read_response()) == wanted
        assert connection.read_response() == b"PONG"
        reader.connection_pool.release(connection)


def test_a_reader_that_goes_away_leaves_nothing(server: ServerProcess) -> None:
    with server.client() as client:
        for _ in range(5):
            with server.connect() as connection:
                connection.sendall(b"XRANGE s - +\r\nTREAD s 1 60000\r\n")
                connection.recv(100)
        assert client.ping()
        transaction = client.pipeline(transaction=True)
        transaction.execute_command("TREAD", "s", 1, ENTRIES)
        transaction.execute_command("XLEN", "s")
        entries, length = transaction.execute()
        assert (len(entries), length) == (ENTRIES, ENTRIES)
        with pytest.raises(redis.ResponseError, match="syntax"):
            client.execute_command("TREAD", "s", 1, 9, "AND MORE")


def test_readers_that_stall_keep_no_copies(server: ServerProcess) -> None:
    """Each of them asks for 60 MB, and takes nothing of it."""
    with server.client() as client:
        for _ in range(60):
            client.execute_command("TWRITE", "big", "ENTRIES", *[b"t", randbytes(1000)] * 1000)
        wanted = client.xrange("big", "-", "+", count=1)
        before = server.resident_bytes
        stalled = [server.connect() for _ in range(10)]
        for connection in stalled:
            connection.sendall(b"XRANGE big - +\r\n")
            assert connection.recv(8) == b"*60000\r\n"
        assert client.ping()
        assert server.resident_bytes - before < 300 * 1024 * 1024
        for connection in stalled:
            connection.close()
        assert client.xrange("big", "-", "+", count=1) == wanted
