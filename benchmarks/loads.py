"""What loads a server: redis-benchmark, or a connection of our own; and how figures of both servers become a row."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from benchmarks.servers import NAMES, Server, encode

AT_ONCE = 1000
"""Commands in one piece, so that neither side has to buffer much."""


class Link:
    """One connection; replies are decoded by hiredis."""

    def __init__(self, server: Server) -> None:
        self._socket = server.connect()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("a server has closed the connection")
            self._reader.feed(data)
        if isinstance(reply, Exception):
            raise SystemExit(f"a server answered {reply}")
        return reply

    def call(self, *words: bytes) -> Any:
        self.send(encode(*words))
        return self.receive()

    def send_many(self, commands: Sequence[bytes]) -> None:
        """Send commands piece by piece, and take their replies."""
        for at in range(0, len(commands), AT_ONCE):
            run = commands[at : at + AT_ONCE]
            self.send(b"".join(run))
            for _ in run:
                self.receive()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def stock_load(
    port: int, words: Sequence[str], requests: int, clients: int, pipeline: int, random_max: int = 0
) -> float:
    """Requests a second of one command, as redis-benchmark measures them; `__rand_int__` is below `random_max`."""
    options = {"-p": port, "-n": requests, "-c": clients, "-P": pipeline}
    if random_max:
        options["-r"] = random_max
    flat = [str(word) for pair in options.items() for word in pair]
    out = subprocess.run(["redis-benchmark", *flat, "--csv", *words], check=True, capture_output=True, text=True).stdout
    return float(re.findall(r'"([0-9.]+)"', out.splitlines()[-1])[0])  # the command before it is not quoted well


def best_of(servers: dict[str, Server], rounds: int, measure: Callable[[Server], float]) -> dict[str, float]:
    """The best figure of each server, over rounds that alternate between them."""
    best = dict.fromkeys(NAMES, 0.0)
    for _ in range(rounds):
        for name, server in servers.items():
            best[name] = max(best[name], measure(server))
    return best


def percentile(sorted_values: Sequence[float], part: float) -> float:
    return sorted_values[min(int(len(sorted_values) * part), len(sorted_values) - 1)]
