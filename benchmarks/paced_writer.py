"""A writer that keeps a pace: SETs at a rate, on one connection of a process of its own, whether or not replies come.

Every millisecond it sends what is due, and with it a *probe*: `SET probe <number>`, one more each time. It knows when
it has sent each, so whoever sees a number elsewhere can tell how late it is. It does not wait for replies: a server
that pauses is late for everything that was due meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from benchmarks.followers import key_of
from benchmarks.servers import Server, encode
from benchmarks.side_process import SideProcess

PROBE: Final = b"probe"
TICK_S: Final = 0.001
REPLY: Final = b"+OK\r\n"
REPLIES_S_MAX: Final = 60.0


class Written(NamedTuple):
    """What a writer did."""

    writes: int
    seconds: float
    probes_sent_ns: list[int]
    """By the number of the probe, on the monotonic clock, which all processes share."""

    @property
    def per_s(self) -> float:
        return self.writes / self.seconds


class PacedWriter:
    """Writes from the beginning to the end of the block, or until it is told to finish."""

    def __init__(self, server: Server, per_s: int, keys: int, value_bytes: int) -> None:
        self._process = SideProcess(write_paced, server.port, per_s, keys, value_bytes)

    def finish(self) -> Written:
        found = self._process.finish()
        if isinstance(found, str):
            raise SystemExit(f"a paced write was answered with {found}")
        return Written(*found)

    def __enter__(self) -> PacedWriter:
        self._process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()


class _Replies:
    """Takes the replies, on a thread of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.count = 0
        self.problem = ""
        self._rest = b""
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while data := self._connection.recv(1 << 16):
            whole = self._rest + data
            taken = len(whole) // len(REPLY)
            if whole[: taken * len(REPLY)] != REPLY * taken:
                self.problem = repr(whole[:200])
                return
            self.count += taken
            self._rest = whole[taken * len(REPLY) :]
        self.problem = "the end of the connection"

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + REPLIES_S_MAX
        while self.count < count and not self.problem:
            if time.monotonic() > deadline:
                self.problem = f"{self.count} replies instead of {count}"
            time.sleep(TICK_S)


def write_paced(port: int, per_s: int, keys: int, value_bytes: int, pipe: Connection) -> None:
    """A process of its own. Sends back what `Written` has, or a problem."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    replies = _Replies(connection)
    probes_sent_ns: list[int] = []
    sent = 0
    pipe.send(None)
    began_s = time.monotonic()
    while not pipe.poll() and not replies.problem:
        due = int((time.monotonic() - began_s) * per_s) - sent
        if due > 1:  # one of them is the probe
            numbers = range(sent, sent + due - 1)
            commands = [encode(b"SET", key_of(each % keys), b"%0*d" % (value_bytes, each)) for each in numbers]
            commands.append(encode(b"SET", PROBE, b"%d" % len(probes_sent_ns)))
            probes_sent_ns.append(time.monotonic_ns())
            connection.sendall(b"".join(commands))
            sent += due
        time.sleep(TICK_S)
    seconds = time.monotonic() - began_s
    replies.wait_for(sent)
    pipe.send(replies.problem or (sent, seconds, probes_sent_ns))
