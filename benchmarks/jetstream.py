"""NATS JetStream as a peer: a server with file storage, a stream of messages, and reading all of it.

Its protocol is spoken by hand, as lean as a Python client can be: a push consumer without acknowledgements, whose
messages are cut out of what arrives and counted, nothing more.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers import start_peer, stop_peer
from benchmarks.servers import START_S_MAX

STREAM = "events"
INBOX = b"_INBOX.benchmark"
READ_BYTES = 1 << 18


def is_installed() -> bool:
    return _program() is not None


def _program() -> str | None:
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


class JetStream:
    """A running server with one stream."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n')
        return connection

    def ask(self, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        """The reply of JetStream's interface to a request."""
        body = json.dumps(request).encode()
        with self.connect() as connection, connection.makefile("rb") as lines:
            connection.sendall(
                b"SUB %b 1\r\nPUB %b %b %d\r\n%b\r\n" % (INBOX, subject.encode(), INBOX, len(body), body)
            )
            while not (line := lines.readline()).startswith(b"MSG"):
                if not line:
                    raise SystemExit("nats-server closed the connection")
            reply: dict[str, Any] = json.loads(lines.read(int(line.split()[-1])))
        if "error" in reply:
            raise SystemExit(f"nats-server: {reply['error']}")
        return reply

    def fill(self, events: int, value: bytes) -> None:
        """Publish, and wait until all of it is stored."""
        self.ask(f"$JS.API.STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [f"{STREAM}.>"], "storage": "file"})
        with self.connect() as connection:
            for start in range(0, events, 1000):
                numbers = range(start, min(start + 1000, events))
                publish = b"PUB events.%09d %d\r\n%b\r\n"
                connection.sendall(b"".join(publish % (number, len(value), value) for number in numbers))
            deadline = time.monotonic() + START_S_MAX
            while self.ask(f"$JS.API.STREAM.INFO.{STREAM}", {})["state"]["messages"] < events:
                if time.monotonic() > deadline:
                    raise SystemExit("nats-server did not store everything")
                time.sleep(0.05)

    def read(self, events: int) -> float:
        """Read everything from the beginning; returns the seconds it took."""
        with self.connect() as connection:
            inbox = f"_INBOX.reader.{time.monotonic_ns()}"
            connection.sendall(f"SUB {inbox} 2\r\nPING\r\n".encode())
            while b"PONG" not in connection.recv(READ_BYTES):
                pass
            config = {"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none"}
            began = time.perf_counter()
            self.ask(f"$JS.API.CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config})
            seen, rest = 0, b""
            while seen < events:
                found, rest = cut_messages(rest + connection.recv(READ_BYTES))
                seen += len(found)
            return time.perf_counter() - began


def cut_messages(data: bytes) -> tuple[list[bytes], bytes]:
    """The bodies of the whole messages in what arrived, and what is left."""
    found: list[bytes] = []
    at = 0
    while (line_end := data.find(b"\r\n", at)) >= 0:
        if data[at : at + 4] != b"MSG ":  # PING
            at = line_end + 2
            continue
        body_end = line_end + 2 + int(data[data.rindex(b" ", at, line_end) : line_end])
        if body_end + 2 > len(data):
            break
        found.append(data[line_end + 2 : body_end])
        at = body_end + 2
    return found, data[at:]


@contextmanager
def running_jetstream(folder: str) -> Iterator[JetStream]:
    program = _program()
    if program is None:
        raise SystemExit("nats-server is not installed")
    Path(folder).mkdir(parents=True, exist_ok=True)

    def command(ports: list[int]) -> list[str]:
        return [program, "-js", "-sd", folder, "-a", "127.0.0.1", "-p", str(ports[0])]

    process, ports = start_peer(command, _answers, start_s_max=START_S_MAX)
    try:
        yield JetStream(ports[0])
    finally:
        stop_peer(process)


def _answers(_process: subprocess.Popen[bytes], ports: list[int]) -> bool:
    JetStream(ports[0]).ask("$JS.API.INFO", {})
    return True
