"""What loads a server: redis-benchmark, or a connection of our own; and how figures of both servers become a row."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hiredis

from benchmarks.peers import stop_peer
from benchmarks.servers import NAMES, Server, encode

ENDLESS_REQUESTS = 2_000_000_000
COMPARED_LINE = (
    "{benchmark:<9} {what:<66} tidelog {tidelog:>9} {unit:<8} redis {redis:>9}  ratio {ratio:>6}  {goal:<22} {note}"
)
"""How `compared` is printed."""
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
    command = _stock_command(port, words, requests, clients, pipeline, random_max)
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.findall(r'"([0-9.]+)"', out.splitlines()[-1])[0])  # the command before it is not quoted well


@contextmanager
def endless_load(port: int, words: Sequence[str], clients: int, pipeline: int, random_max: int) -> Iterator[None]:
    """The same load, for as long as the block lasts."""
    command = _stock_command(port, words, ENDLESS_REQUESTS, clients, pipeline, random_max)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise SystemExit("redis-benchmark has ended before it was told to")
    finally:
        stop_peer(process)


def _stock_command(
    port: int, words: Sequence[str], requests: int, clients: int, pipeline: int, random_max: int
) -> list[str]:
    options = {"-p": port, "-n": requests, "-c": clients, "-P": pipeline}
    if random_max:
        options["-r"] = random_max
    flat = [str(word) for pair in options.items() for word in pair]
    return ["redis-benchmark", *flat, "--csv", *words]


def best_of(servers: dict[str, Server], rounds: int, measure: Callable[[Server], float]) -> dict[str, float]:
    """The best figure of each server, over rounds that alternate between them."""
    best = dict.fromkeys(NAMES, 0.0)
    for _ in range(rounds):
        for name, server in servers.items():
            best[name] = max(best[name], measure(server))
    return best


def compared(
    benchmark: str, what: str, unit: str, figures: Mapping[str, float | None], *, goal: str = "", note: str = ""
) -> dict[str, object]:
    """A row with a figure of each server, and Tidelog's divided by Redis's. None: there is no figure."""
    ours, theirs = (figures[name] for name in NAMES)
    ratio = ours / theirs if ours is not None and theirs else None
    return {
        "benchmark": benchmark,
        "what": what,
        "unit": unit,
        "tidelog": _shown(ours),
        "redis": _shown(theirs),
        "ratio": _shown(ratio),
        "goal": goal,
        "note": note,
    }


def _shown(figure: float | None) -> float | str:
    if figure is None:
        return "-"
    return round(figure) if abs(figure) >= 1000 else round(figure, 3)


def percentile(sorted_values: Sequence[float], part: float) -> float:
    return sorted_values[min(int(len(sorted_values) * part), len(sorted_values) - 1)]
