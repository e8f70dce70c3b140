"""Channels over HTTP, on Tidelog and on Redis in one run: requests per second and core, and how long messages take.

    python -m benchmarks.channels [--channels N] [--pollers N] [--rate N] [--seconds N] [--rounds N]
                                  [--backends own,tidelog,redis] [--json]

Goal: 2,120 requests per second and core, and a median of 3.4 ms to publish: twice and half of what the original's own
load test claims.

own       `tidelog serve`: channels in the process that keeps them
tidelog   `tidelog channels serve` in front of a Tidelog
redis     `tidelog channels serve` in front of a Redis

steady    a publisher at a rate (`--rate`): how long an answer and a delivery take
full      four publishers, as fast as answers come while no more than some messages are on their way: what there is

Pollers are connections that wait for a message, take it, acknowledge it and wait again, divided over the channels. A
message is one request to publish it, and two for each poller. `per core` is requests by seconds of processor time of
the process that speaks HTTP; `all` counts its backend's too. The load has one core, the rest the other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from benchmarks.channel_load import SETTLE_S, ChannelLoad, Figures
from benchmarks.peers import stop_peer
from benchmarks.servers import running, write_rows
from tidelog.testing.ready_line import read_ports

BACKENDS = ("own", "tidelog", "redis")
TESTS = ("steady", "full")
PUBLISHERS = 4
AHEAD_MAX = 8
LINE = (
    "{benchmark:<7} {backend:<8} {per_s:>6,} requests/s  {per_core:>6,} per core  {per_core_all:>6,} all  "
    "publish p50 {publish_p50_ms:>6} p99 {publish_p99_ms:>6} ms  "
    "delivery p50 {delivery_p50_ms:>6} p99 {delivery_p99_ms:>6} ms"
)


class Place:
    """Where channels are served, and the processes that do it."""

    def __init__(self, name: str, port: int, pids: list[int]) -> None:
        self.name, self.port, self._pids = name, port, pids

    def used_s(self) -> list[float]:
        """Processor time of each process so far, with all of its threads."""
        return [
            sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
            for pid in self._pids
        ]


@contextmanager
def serving(name: str, folder: str) -> Iterator[Place]:
    if name == "own":
        with running("tidelog", folder, has_http=True) as server:
            yield Place(name, server.http_port, [server.pid])
        return
    with running(name, folder) as backend:
        words = [
            "-m",
            "tidelog.cli",
            "channels",
            "serve",
            "--port",
            "auto",
            "--backend",
            f"redis://127.0.0.1:{backend.port}",
        ]
        gateway = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
        assert gateway.stdout is not None
        try:
            with gateway.stdout as lines:
                port = read_ports(lines.readline().decode()).http
            yield Place(name, port, [gateway.pid, backend.pid])
        finally:
            stop_peer(gateway)


def quantile_ms(values: list[float], part: float) -> float:
    return round(1000 * sorted(values)[min(len(values) - 1, int(len(values) * part))], 2)


def row(figures: Figures, seconds: float, used_s: list[float]) -> dict[str, float]:
    return {
        "per_s": round(figures.requests / seconds),
        "per_core": round(figures.requests / used_s[0]),
        "per_core_all": round(figures.requests / sum(used_s)),
        "publish_p50_ms": quantile_ms(figures.publish_s, 0.5),
        "publish_p99_ms": quantile_ms(figures.publish_s, 0.99),
        "delivery_p50_ms": quantile_ms(figures.delivery_s, 0.5),
        "delivery_p99_ms": quantile_ms(figures.delivery_s, 0.99),
    }


async def measure(place: Place, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """A row for each test."""
    rows = []
    async with ChannelLoad(place.port, arguments.channels, arguments.pollers) as load:
        for test in TESTS:
            await asyncio.sleep(SETTLE_S)
            load.figures = Figures()
            before, begun_s = place.used_s(), time.perf_counter()
            if test == "steady":
                figures = await load.steady(arguments.seconds, arguments.rate)
            else:
                figures = await load.full(arguments.seconds, PUBLISHERS, AHEAD_MAX)
            seconds = time.perf_counter() - begun_s
            used_s = [after - earlier for earlier, after in zip(before, place.used_s(), strict=True)]
            rows.append(row(figures, seconds, used_s))
    return rows


def run(arguments: argparse.Namespace, backends: list[str]) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as base, ExitStack() as stack:
        places = [stack.enter_context(serving(name, f"{base}/{name}")) for name in backends]
        rounds = [[uvloop.run(measure(place, arguments)) for place in places] for _ in range(arguments.rounds)]
    for number, test in enumerate(TESTS):
        for which, place in enumerate(places):
            rows = [each[which][number] for each in rounds]
            figures = {name: round(statistics.median(each[name] for each in rows), 2) for name in rows[0]}
            yield {"benchmark": test, "backend": place.name, **figures}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=100)
    parser.add_argument("--pollers", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=25.0, help="messages a second, when steady")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each measurement takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    backends = arguments.backends.split(",")
    if unknown := set(backends) - set(BACKENDS):
        parser.error(f"no such backend: {', '.join(sorted(unknown))}")
    write_rows(run(arguments, backends), arguments.json, LINE)


if __name__ == "__main__":
    main()
