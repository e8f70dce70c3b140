"""What a server does about those who want too much: clients, memory, time, output."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.integration import limited_server
from tests.integration.server_process import ServerProcess

MIB: Final = 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as made:
        yield made


def eventually(test: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


def test_too_many_clients(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--maxclients", "3") as server:
        kept = [server.connect() for _ in range(3)]
        for connection in kept:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"+PONG\r\n"
        with server.connect() as another:
            assert read_all(another) == b"-ERR max number of clients reached\r\n"
        kept.pop().close()
        eventually(lambda: _answers(server))
        for connection in kept:
            connection.close()


def _answers(server: ServerProcess) -> bool:
    with server.connect() as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(100) == b"+PONG\r\n"


def test_idle_clients_go_and_listeners_stay(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", "--timeout", "1") as server,
        server.connect() as idle,
        server.connect() as listening,
    ):
        listening.sendall(b"SUBSCRIBE news\r\n")
        assert listening.recv(100)
        assert idle.recv(1) == b""
        assert server.client().publish("news", "hi") == 1
        assert b"hi" in listening.recv(100)
        assert server.client().info("stats")["client_idle_disconnections"] >= 1


def test_who_does_not_read_is_not_read_from(server: ServerProcess) -> None:
    """Ten thousand times a value of 1 MB, asked for at once and never read: memory stays where it is."""
    server.client().set("large", b"x" * MIB)
    before = server.resident_bytes
    connections = [server.connect() for _ in range(3)]
    try:
        for connection in connections:
            connection.settimeout(1)
            try:
                for _ in range(100):
                    connection.sendall(b"GET large\r\n" * 100)
            except TimeoutError:
                pass  # the server has stopped reading
        time.sleep(0.5)
        assert server.client().ping()
        assert server.resident_bytes - before < 100 * MIB
        # Who begins to read gets everything, in order.
        connection = connections[0]
        connection.settimeout(30)
        received = 0
        while received < 50 * MIB:
            received += len(connection.recv(MIB))
    finally:
        for connection in connections:
            connection.close()
    assert server.client().ping()


class Flood:
    """Connections that send commands back to back and never read, from a thread of their own."""

    def __init__(self, connections: list[socket.socket], command: bytes) -> None:
        self.left = dict.fromkeys(connections, 0)
        self._data = command * 20_000
        self._is_over = False
        self._sender = threading.Thread(target=self._send)

    def _send(self) -> None:
        with selectors.DefaultSelector() as writable:
            for connection in self.left:
                writable.register(connection, selectors.EVENT_WRITE, connection)
            while self.left and not self._is_over:
                for key, _ in writable.select(0.05):
                    connection = key.data
                    try:
                        sent = connection.send(self._data[self.left[connection] :])
                    except OSError:  # it was cut
                        writable.unregister(connection)
                        del self.left[connection]
                    else:
                        self.left[connection] = (self.left[connection] + sent) % len(self._data)

    def __enter__(self) -> Flood:
        for connection in self.left:
            connection.setblocking(False)
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._sender.join()


def longest_ping_s(client: redis.Redis, seconds: float) -> float:
    end, longest_s = time.monotonic() + seconds, 0.0
    while (began := time.monotonic()) < end:
        assert client.ping()
        longest_s = max(longest_s, time.monotonic() - began)
        time.sleep(0.01)
    return longest_s


COMMANDS_OF_FLOODS: Final = [b"GET a\r\n", b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"a\n"]
PING_S_MAX: Final = 1.5
"""Usually some milliseconds; without bounds it took many seconds."""


def test_clients_that_send_much_and_never_read_do_not_starve_others(server: ServerProcess) -> None:
    client = server.client()
    assert client.ping()
    for command in COMMANDS_OF_FLOODS:
        with contextlib.ExitStack() as opened:
            connections = [opened.enter_context(server.connect()) for _ in range(20)]
            with Flood(connections, command) as flood:
                assert longest_ping_s(client, 1.5) < PING_S_MAX, command
                assert len(flood.left) == 20


def test_strangers_that_send_much_and_never_read_are_cut(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    secret.chmod(0o600)
    with (
        ServerProcess(tmp_path / "data", "--requirepass-file", str(secret)) as server,
        contextlib.ExitStack() as opened,
    ):
        client: Any = server.client(password="open sesame")
        assert client.ping()
        connections = [opened.enter_context(server.connect()) for _ in range(20)]
        with Flood(connections, COMMANDS_OF_FLOODS[1]) as flood:
            assert longest_ping_s(client, 1.5) < PING_S_MAX
            eventually(lambda: not flood.left)
        assert client.info("stats")["client_unauthenticated_disconnections"] == 20
        assert len(re.findall("cut off .* has not authenticated and left .* unread", server.stderr)) < 20


def test_a_stranger_that_leaves_little_unread_is_cut_after_a_while(tmp_path: Path) -> None:
    """What the system buffers for it counts, too."""
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    secret.chmod(0o600)
    command = [*limited_server.COMMAND, '{"UNAUTHENTICATED_UNREAD_S_MAX": 1, "CUT_LOGGED_S": 0}', "serve"]
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(secret), command=command) as server:
        stranger = socket.socket()
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stranger.connect(("127.0.0.1", server.port))
        with stranger, server.connect() as silent:
            stranger.sendall(b"GET a\r\n" * 600)
            client: Any = server.client(password="open sesame")
            eventually(lambda: client.info("stats")["client_unauthenticated_disconnections"] == 1)
            assert "which has not authenticated and left" in server.stderr
            silent.sendall(b"AUTH x\r\n")
            assert silent.recv(100).startswith(b"-WRONGPASS")


def test_a_buffer_of_large_replies_is_answered_whole(server: ServerProcess) -> None:
    client = server.client()
    client.set("large", b"x" * 300_000)
    pipeline = client.pipeline(transaction=False)
    for number in range(60):
        pipeline.get("large")
        pipeline.echo(b"%d" % number)
    replies = pipeline.execute()
    assert [len(reply) for reply in replies[::2]] == [300_000] * 60
    assert replies[1::2] == [b"%d" % number for number in range(60)]


def test_a_half_closed_connection_gets_all_of_its_large_replies(server: ServerProcess) -> None:
    server.client().set("large", b"x" * 300_000)
    with server.connect() as connection:
        connection.sendall(b"GET large\r\n" * 50 + b"PING\r\n")
        connection.shutdown(socket.SHUT_WR)
        received = read_all(connection)
    assert received == b"$300000\r\n%b\r\n" % (b"x" * 300_000) * 50 + b"+PONG\r\n"


def test_listeners_that_do_not_read_are_cut_off(server: ServerProcess) -> None:
    client = server.client()
    client.config_set("client-output-buffer-limit", "pubsub 4mb 0 0")
    with server.connect() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listener.sendall(b"SUBSCRIBE news\r\n")
        assert listener.recv(100)
        for _ in range(40):
            client.publish("news", b"x" * MIB)
        eventually(lambda: client.pubsub_numsub("news") == [(b"news", 0)])
        assert client.info("stats")["client_output_buffer_limit_disconnections"] == 1
    assert server.resident_bytes < 400 * MIB


def test_slow_listeners_are_cut_off_after_a_while(server: ServerProcess) -> None:
    client = server.client()
    client.config_set("client-output-buffer-limit", "pubsub 100mb 1mb 1")
    with server.connect() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listener.sendall(b"SUBSCRIBE news\r\n")
        assert listener.recv(100)
        for _ in range(20):
            client.publish("news", b"x" * MIB)
        eventually(lambda: client.pubsub_numsub("news") == [(b"news", 0)])


def test_memory(server: ServerProcess) -> None:
    client: Any = server.client()
    client.set("kept", "x")
    limit = server.resident_bytes + 50 * MIB
    client.config_set("maxmemory", limit)
    in_multi = server.connect()
    in_multi.sendall(b"MULTI\r\nSET a 1\r\n")
    count = 0
    while _can_set(client, f"filler:{count}", b"x" * 100_000):
        count += 1
        assert count < 3000
    assert server.resident_bytes < limit + 200 * MIB
    assert client.get("kept") == b"x"
    for refused in (
        ["SET", "small", "1"],
        ["set", "kept", "2"],
        ["INCR", "n"],
        ["HSET", "h", "f", "v"],
        ["SADD", "s", "a"],
    ):
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.execute_command(*refused)
    assert client.delete("filler:0") == 1
    assert client.expire("kept", 1000)
    in_multi.sendall(b"EXEC\r\n")
    time.sleep(0.2)
    assert b"-EXECABORT Transaction discarded because of: OOM command not allowed" in in_multi.recv(1000)
    in_multi.close()
    client.flushall()
    eventually(lambda: _can_set(client))
    client.config_set("maxmemory", 0)
    assert client.set("small", 1)


def _can_set(client: redis.Redis, key: str = "small", value: bytes = b"1") -> bool:
    try:
        return bool(client.set(key, value))
    except redis.exceptions.OutOfMemoryError as error:
        return str(error) != "command not allowed when used memory > 'maxmemory'."


def test_passwords(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\nnot this\n")
    secret.chmod(0o604)
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(secret)) as server:
        assert server.stderr == (
            f"tidelog: every user of this machine can read the password in {secret}: chmod 600 {secret}\n"
        )
        with pytest.raises(redis.AuthenticationError):
            server.client().ping()
        with pytest.raises(redis.AuthenticationError):
            server.client(password="wrong").ping()
        client = server.client(password="open sesame")
        for another in (client, server.client(password="open sesame", protocol=3, username="default")):
            assert another.set("a", 1)
        shown = repr(client.config_get("*")) + repr(client.info("everything")) + server.stderr
        assert "sesame" not in shown
        assert "sesame" not in repr(client.slowlog_get())
        with server.connect() as stranger:
            for command in (b"GET a", b"NOSUCH", b"SUBSCRIBE x", b"MULTI", b"PING"):
                stranger.sendall(command + b"\r\n")
                assert stranger.recv(200).startswith((b"-NOAUTH", b"-ERR unknown command"))
            stranger.sendall(b"*1\r\n$20000\r\n")
            assert b"unauthenticated bulk length" in stranger.recv(200)
        with server.connect() as stranger:
            stranger.sendall(b"*11\r\n")
            assert b"unauthenticated multibulk length" in stranger.recv(200)
        cmdline = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert b"sesame" not in cmdline


def test_large_commands_of_several_clients_in_one_turn(server: ServerProcess) -> None:
    """Together they are more than a batch of the journal holds."""
    connections = [server.connect() for _ in range(3)]
    value = b"x" * (40 * MIB)
    for number, connection in enumerate(connections):
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n" % (number, len(value)) + value[:-1])
    time.sleep(1)
    server.client().client_pause(300)
    for connection in connections:
        connection.sendall(b"x\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    for connection in connections:
        received = b""
        while len(received) < 10:
            received += connection.recv(100)
        assert received == b"+OK\r\n+OK\r\n"
        connection.close()
    assert server.client().dbsize() == 4


def test_others_are_answered_between_the_scripts_of_one_pipeline(server: ServerProcess) -> None:
    with server.connect() as slow, server.connect() as other:
        for link in (slow, other):
            link.sendall(b"PING\r\n")
            assert link.recv(100) == b"+PONG\r\n"
        slow.sendall(b'EVAL "while true do end" 0\r\n' * 2)
        time.sleep(0.2)  # the first of them runs, for a second
        other.sendall(b"PING\r\n")
        assert other.recv(100) == b"+PONG\r\n"
        assert slow.recv(65536).count(b"\r\n") == 1
