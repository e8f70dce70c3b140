"""What becomes of bugs: a client never sees a traceback, and a server that may be wrong does not go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration import broken_server
from tests.integration.server_process import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    assert broken_server.__file__
    command = [sys.executable, broken_server.__file__, "serve"]
    with ServerProcess(tmp_path / "data", command=command) as made:
        yield made


@pytest.mark.parametrize(
    "command", [["ECHO", "private"], ["STRLEN", "private"], ["APPEND", "private", "words"], ["RANDOMKEY"]]
)
def test_a_bug_in_a_handler_is_an_error(server: ServerProcess, command: list[str]) -> None:
    client: Any = server.client()
    client.set("a", 1)
    with pytest.raises(redis.ResponseError, match=r"^internal error$"):
        client.execute_command(*command)
    pipeline = client.pipeline()
    pipeline.set("b", 2)
    pipeline.execute_command(*command)
    pipeline.set("c", 3)
    replies = pipeline.execute(raise_on_error=False)
    assert [str(reply) for reply in replies] == ["True", "internal error", "True"]
    assert client.mget("a", "b", "c") == [b"1", b"2", b"3"]
    assert f"tidelog: {command[0]} failed" in server.stderr
    assert "private" not in server.stderr
    assert broken_server.SECRET not in server.stderr
    assert server.terminate() == 0


@pytest.mark.parametrize(
    "commands",
    [
        b"SET boom private EX 10\r\n",
        b"MULTI\r\nSET b 1\r\nSET boom private EX 10\r\nEXEC\r\n",
        b"*4\r\n$4\r\nHSET\r\n$4\r\nboom\r\n$7\r\nprivate\r\n$1\r\nv\r\n",
    ],
    ids=["alone", "transaction", "hot"],
)
def test_a_bug_while_applying_ends_the_process(server: ServerProcess, commands: bytes) -> None:
    client = server.client()
    client.set("a", 1)
    with server.connect() as connection:
        connection.sendall(commands)
        received = b""
        try:
            while more := connection.recv(1000):
                received += more
        except ConnectionResetError:
            pass
    assert b"Traceback" not in received
    assert b"ValueError" not in received
    assert server.process.wait(30) == 70
    assert "state and journal may differ: the server stops here" in server.stderr
    assert "private" not in server.stderr
    with ServerProcess(server.data) as again:
        assert again.client().keys() == [b"a"]
