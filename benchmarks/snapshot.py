"""Latency while a snapshot is taken, beside Redis, which forks for it.

    python -m benchmarks.snapshot [--keys N] [--seconds N] [--clients N] [--json]

Goal: the 99th percentile less than doubles while BGSAVE runs.

Each server holds a million keys of 100 bytes. Clients overwrite keys at random, one command at a time each and as fast
as they are answered: first for some seconds as things are, then again and again while a BGSAVE is under way, until as
many seconds are gathered. A latency counts for the snapshot if its command was sent while INFO said that one is being
made. The clients are one process: where it is slower than the server, it is its own pace that the median shows, so what
counts is the ratio of the two times, not their height.
"""

from __future__ import annotations

import argparse
import random
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.servers import NAMES, Server, encode, running, write_rows

VALUE_BYTES = 100
AT_ONCE = 1000
LOOK_S = 0.02
"""How often INFO is asked whether the snapshot is done."""
LINE = (
    "{server:<8} {keys:>10,} keys  without: p50 {p50_ms:>6} ms  p99 {p99_ms:>6} ms   "
    "during BGSAVE: p50 {snapshot_p50_ms:>6} ms  p99 {snapshot_p99_ms:>6} ms   ratio of p99 {ratio:>5}  {note}"
)


def fill(server: Server, keys: int) -> None:
    value = b"x" * VALUE_BYTES
    for start in range(0, keys, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, keys))
        server.send_all((encode(b"SET", b"key:%012d" % number, value) for number in numbers), len(numbers))


class Clients:
    """Connections that each send a SET, wait for its reply, and send the next."""

    def __init__(self, server: Server, count: int, keys: int) -> None:
        self._connections = [server.connect() for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        self._sent_s: dict[socket.socket, float] = {}
        self._draw = random.Random(1)
        self._keys = keys
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, connection)

    def _send(self, connection: socket.socket) -> None:
        key = b"key:%012d" % self._draw.randrange(self._keys)
        self._sent_s[connection] = time.perf_counter()
        connection.sendall(encode(b"SET", key, b"y" * VALUE_BYTES))

    def run(self, is_over: Callable[[], bool]) -> list[float]:
        """The latencies, in seconds, until it is over; all replies are in then."""
        latencies: list[float] = []
        for connection in self._connections:
            self._send(connection)
        waiting = len(self._connections)
        while waiting:
            for ready, _ in self._selector.select():
                connection = ready.data
                if connection.recv(64) != b"+OK\r\n":
                    raise SystemExit("a SET was not answered with OK")
                latencies.append(time.perf_counter() - self._sent_s[connection])
                if is_over():
                    waiting -= 1
                else:
                    self._send(connection)
        return latencies

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def is_saving(server: Server) -> bool:
    with server.connect() as connection:
        connection.sendall(encode(b"INFO", b"persistence"))
        found = b""
        while b"rdb_bgsave_in_progress:" not in found or not found.endswith(b"\r\n"):
            more = connection.recv(1 << 16)
            if not more:
                raise SystemExit(f"{server.name} does not say whether it is saving")
            found += more
    return b"rdb_bgsave_in_progress:1" in found


def run_for(clients: Clients, seconds: float) -> list[float]:
    deadline = time.perf_counter() + seconds
    return clients.run(lambda: time.perf_counter() >= deadline)


def run_while_saving(server: Server, clients: Clients, seconds: float) -> tuple[list[float], int, str]:
    """Latencies while snapshots are made, how many snapshots there were, and why there were none."""
    latencies: list[float] = []
    count, gathered_s = 0, 0.0
    while gathered_s < seconds:
        reply = server.ask(b"BGSAVE")
        if not reply.startswith(b"+"):
            return latencies, count, reply.decode(errors="replace")
        over = threading.Event()

        def look(over: threading.Event = over) -> None:
            while is_saving(server):
                time.sleep(LOOK_S)
            over.set()

        watcher = threading.Thread(target=look)
        began = time.perf_counter()
        watcher.start()
        latencies += clients.run(over.is_set)
        watcher.join()
        gathered_s += time.perf_counter() - began
        count += 1
    return latencies, count, ""


def percentiles_ms(latencies: list[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    return round(float(p50), 3), round(float(p99), 3)


def measure(server: Server, keys: int, seconds: float, client_count: int) -> dict[str, object]:
    fill(server, keys)
    clients = Clients(server, client_count, keys)
    try:
        run_for(clients, min(seconds, 1.0))
        p50_ms, p99_ms = percentiles_ms(run_for(clients, seconds))
        latencies, count, refusal = run_while_saving(server, clients, seconds)
    finally:
        clients.close()
    during: tuple[float | str, float | str] = percentiles_ms(latencies) if latencies else ("-", "-")
    return {
        "benchmark": "snapshot",
        "server": server.name,
        "keys": keys,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "snapshots": count,
        "snapshot_p50_ms": during[0],
        "snapshot_p99_ms": during[1],
        "ratio": round(during[1] / p99_ms, 2) if isinstance(during[1], float) else "-",
        "note": f"BGSAVE was refused: {refusal}" if refusal else f"{count} snapshots",
    }


def run(keys: int, seconds: float, clients: int) -> Iterator[dict[str, object]]:
    for name in NAMES:
        folder = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with running(name, folder) as server:
                yield measure(server, keys, seconds, clients)
        finally:
            shutil.rmtree(folder)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Latency while a snapshot is taken, beside Redis.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    write_rows(run(options.keys, options.seconds, options.clients), options.json, LINE)


if __name__ == "__main__":
    main()
