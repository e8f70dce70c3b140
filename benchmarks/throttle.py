"""A slow network: a proxy between a leader and its follower that passes on so many bytes a second and no more.

Only the way from the leader is slow. The proxy's own buffers are small, so that what it does not pass on soon stays
where it comes from.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Final

from benchmarks.side_process import SPAWNING, SideProcess

BUFFER_BYTES: Final = 1 << 16
PIECES_PER_S: Final = 50
"""Of what passes when it is slow: small pieces, so that it flows evenly."""


class Throttle:
    """Runs in a process of its own, from the beginning to the end of the block."""

    def __init__(self, leader_port: int) -> None:
        self._bytes_per_s = SPAWNING.Value("d", 0.0)
        self._passed = SPAWNING.Value("Q", 0)
        self._ended = SPAWNING.Value("Q", 0)
        self._process = SideProcess(serve, leader_port, self._bytes_per_s, self._passed, self._ended)
        self.port = 0

    def limit(self, bytes_per_s: float) -> None:
        """0: no limit."""
        self._bytes_per_s.value = bytes_per_s

    @property
    def passed_bytes(self) -> int:
        """From the leader to the follower, so far."""
        return int(self._passed.value)

    @property
    def ended_links(self) -> int:
        """Connections that either side has given up."""
        return int(self._ended.value)

    def __enter__(self) -> Throttle:
        self.port = self._process.__enter__().ready
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()


def serve(leader_port: int, bytes_per_s: Any, passed: Any, ended: Any, pipe: Connection) -> None:
    """A process of its own."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            follower, _ = listening.accept()
            threading.Thread(target=connect, args=(follower,), daemon=True).start()

    def connect(follower: socket.socket) -> None:
        leader = socket.socket()
        leader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        with leader, follower:
            try:
                leader.connect(("127.0.0.1", leader_port))
            except OSError:
                return  # the follower is told by the end of its connection
            way_back = threading.Thread(target=pass_on, args=(follower, leader), daemon=True)
            way_back.start()
            pass_slowly(leader, follower)
            way_back.join()
        with ended.get_lock():
            ended.value += 1

    def pass_slowly(leader: socket.socket, follower: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either side may end it at any moment
            while True:
                limit = bytes_per_s.value
                data = leader.recv(max(1, min(BUFFER_BYTES, int(limit / PIECES_PER_S))) if limit else BUFFER_BYTES)
                if not data:
                    break
                follower.sendall(data)
                with passed.get_lock():
                    passed.value += len(data)
                if limit:
                    time.sleep(len(data) / limit)
        end(leader, follower)

    threading.Thread(target=accept, daemon=True).start()
    pipe.send(listening.getsockname()[1])
    with contextlib.suppress(EOFError):
        pipe.recv()


def pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(BUFFER_BYTES):
            sink.sendall(data)
    end(source, sink)


def end(*sockets: socket.socket) -> None:
    """Whoever reads from or writes to them is told."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
