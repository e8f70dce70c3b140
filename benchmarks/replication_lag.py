"""How late a follower is while its leader takes writes at a steady pace.

    lag     from the moment a write was sent to the leader until a reader of the follower sees it. A client of the
            follower reads the probe of the writer (`paced_writer`) again and again, with a pause of half a millisecond:
            gentle enough not to be a load, and the same for both servers. What it sees implies all probes before, so
            each probe counts, also those between two looks. Figures are too high by up to a look, for both
    WAIT    SET and WAIT 1 in one go, once every five milliseconds beside the same load: until the leader knows that
            the follower has it. Redis asks its replica to acknowledge then, Tidelog's follower does so by itself

Rounds alternate between the servers. A figure is the median of the rounds; `max` is the largest of all. The first tenth
of a round does not count.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from benchmarks.followers import Pair, fill, running_pair
from benchmarks.loads import Link, compared
from benchmarks.paced_writer import PROBE, PacedWriter, Written
from benchmarks.servers import NAMES, encode
from benchmarks.side_process import SideProcess

VALUE_BYTES: Final = 64
POLL_PAUSE_S: Final = 0.0005
WAIT_PAUSE_S: Final = 0.005
LAST_S_MAX: Final = 60.0
P99_GOAL: Final = "goal: less than 10 ms"
PERCENTILES: Final = (50, 99, 100)
Latencies = tuple[float, float, float]
"""In ms, by percentile."""


def watch_probe(port: int, pipe: Connection) -> None:
    """A process of its own. Told the number of the last probe, it looks until it sees that, and sends back what it saw.

    That is a list of numbers, and one of the times at which each was seen first.
    """
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask = encode(b"GET", PROBE)
    numbers, seen_ns = [-1], [time.monotonic_ns()]
    last: int | None = None
    deadline = float("inf")
    pipe.send(None)
    while (last is None or numbers[-1] < last) and time.monotonic() < deadline:
        client.sendall(ask)
        reply = client.recv(4096)
        now_ns = time.monotonic_ns()
        if reply[:1] == b"$" and reply[:2] != b"$-":
            number = int(reply.split(b"\r\n")[1])
            if number > numbers[-1]:
                numbers.append(number)
                seen_ns.append(now_ns)
        if last is None and pipe.poll():
            last = pipe.recv()
            deadline = time.monotonic() + LAST_S_MAX
        time.sleep(POLL_PAUSE_S)
    pipe.send((numbers, seen_ns))


def lags_ms(written: Written, numbers: Sequence[int], seen_ns: Sequence[int]) -> Latencies:
    """Of each probe but the first tenth: until it, or a later one, was seen."""
    sent_ns = np.array(written.probes_sent_ns)
    first = len(sent_ns) // 10
    at = np.searchsorted(np.array(numbers), np.arange(first, len(sent_ns)))
    return _percentiles((np.array(seen_ns)[at] - sent_ns[first:]) / 1e6)


def measure_lag(pair: Pair, per_s: int, keys: int, seconds: float) -> tuple[Latencies, float]:
    """Percentiles, and the writes a second that there were."""
    pair.leader.ask(b"DEL", PROBE)
    pair.catch_up()
    with (
        SideProcess(watch_probe, pair.follower.port) as watcher,
        PacedWriter(pair.leader, per_s, keys, VALUE_BYTES) as writer,
    ):
        time.sleep(seconds)
        written = writer.finish()
        last = len(written.probes_sent_ns) - 1
        numbers, seen_ns = watcher.finish(last)
    if numbers[-1] < last:
        raise SystemExit(f"{pair.name}: the follower did not have the last write after {LAST_S_MAX:g} s")
    return lags_ms(written, numbers, seen_ns), written.per_s


def measure_wait(pair: Pair, per_s: int, keys: int, seconds: float) -> Latencies:
    found = []
    with PacedWriter(pair.leader, per_s, keys, VALUE_BYTES) as writer, Link(pair.leader) as link:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            began_s = time.perf_counter()
            link.send(encode(b"SET", b"confirmed", b"x") + encode(b"WAIT", b"1", b"10000"))
            link.receive()
            if link.receive() < 1:
                raise SystemExit(f"{pair.name}: a write was not confirmed in 10 s")
            found.append(1000 * (time.perf_counter() - began_s))
            time.sleep(WAIT_PAUSE_S)
        writer.finish()
    return _percentiles(np.array(found[len(found) // 10 :]))


def _percentiles(values: np.ndarray) -> Latencies:
    p50, p99, longest = np.percentile(values, PERCENTILES)
    return float(p50), float(p99), float(longest)


def run_lag(per_s: int, keys: int, seconds: float, rounds: int) -> Iterator[dict[str, object]]:
    lags: dict[str, list[Latencies]] = {name: [] for name in NAMES}
    waits: dict[str, list[Latencies]] = {name: [] for name in NAMES}
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    with ExitStack() as stack:
        pairs = {name: stack.enter_context(running_pair(name)) for name in NAMES}
        for pair in pairs.values():
            fill(pair.leader, keys, VALUE_BYTES)
            pair.follow()
            pair.wait_until_linked()
        for _ in range(rounds):
            for name, pair in pairs.items():
                lag, rate = measure_lag(pair, per_s, keys, seconds)
                lags[name].append(lag)
                rates[name].append(rate)
                waits[name].append(measure_wait(pair, per_s, keys, seconds))
    yield compared("lag", "writes that there were", "/s", {name: statistics.median(rates[name]) for name in NAMES})
    yield from _rows("until a reader of the follower sees it", lags, P99_GOAL)
    yield from _rows("SET and WAIT 1", waits, "")


def _rows(what: str, found: dict[str, list[Latencies]], p99_goal: str) -> Iterator[dict[str, object]]:
    for place, label in enumerate(("p50", "p99")):
        figures = {name: statistics.median(each[place] for each in found[name]) for name in NAMES}
        rounds = "; ".join(f"{name} " + ", ".join(f"{each[place]:.2f}" for each in found[name]) for name in NAMES)
        goal = p99_goal if label == "p99" else ""
        yield compared("lag", f"{what}, {label}", "ms", figures, goal=goal, note=f"rounds: {rounds}")
    yield compared("lag", f"{what}, max", "ms", {name: max(each[-1] for each in found[name]) for name in NAMES})
