"""Lists beside Redis: the same queue, the same persistence, one after the other in one run, as ratios.

    python -m benchmarks.lists [--requests N] [--pipelines 1,16,128] [--rounds N] [--tests push,...] [--json]

Goal, as a ratio to Redis: 0.8 for list commands.

    push        LPUSH of one element to one list, 50 connections (redis-benchmark)
    pop         RPOP from a list that has enough, filled before each round
    range       LRANGE of the first 100 elements of a list
    hand-over   from LPUSH to the arrival of the element at a client that waits in BRPOP, p50 and p99 in µs
                (ratio: Redis's / ours)
    memory      resident bytes an element of one list of `--elements` (ratio: ours / Redis's)

Elements have 100 bytes; those of `memory` differ. The best of the rounds counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.loads import AT_ONCE, Link, best_of, percentile, stock_load
from benchmarks.servers import NAMES, Server, encode, running, write_rows

CLIENTS = 50
ELEMENT_BYTES = 100
RANGE_ELEMENTS = 100
HAND_OVERS_MAX = 2000
WAITING_S = 0.0005
"""After its BRPOP is sent, a client waits for sure."""
SETTLE_S = 0.5
TESTS = ("push", "pop", "range", "hand-over", "memory")
LINE = "{benchmark:<24} tidelog {tidelog:>12,} {unit:<11} redis {redis:>12,}  ratio {ratio:>6}"

_ELEMENT = "x" * ELEMENT_BYTES


def push(requests: int, pipeline: int, server: Server) -> float:
    _call(server, b"DEL", b"pushed")
    return stock_load(server.port, ["LPUSH", "pushed", _ELEMENT], requests, CLIENTS, pipeline)


def pop(requests: int, pipeline: int, server: Server) -> float:
    _call(server, b"DEL", b"popped")
    fill(server, b"popped", requests)
    return stock_load(server.port, ["RPOP", "popped"], requests, CLIENTS, pipeline)


def read_range(requests: int, pipeline: int, server: Server) -> float:
    _call(server, b"DEL", b"read")
    fill(server, b"read", 10 * RANGE_ELEMENTS)
    words = ["LRANGE", "read", "0", str(RANGE_ELEMENTS - 1)]
    return stock_load(server.port, words, requests, CLIENTS, pipeline)


def fill(server: Server, key: bytes, elements: int) -> None:
    """Push elements that differ, many with each command."""
    with Link(server) as link:
        for start in range(0, elements, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, elements))
            link.call(b"LPUSH", key, *(b"%0*d" % (ELEMENT_BYTES, number) for number in numbers))


def hand_over(server: Server, count: int) -> list[float]:
    """Seconds from each push to the arrival of the element at a client that waits for it."""
    took = []
    with Link(server) as pusher, Link(server) as waiting:
        pusher.call(b"DEL", b"queue")
        for number in range(count):
            waiting.send(encode(b"BRPOP", b"queue", b"0"))
            time.sleep(WAITING_S)
            start = time.perf_counter()
            pusher.send(encode(b"LPUSH", b"queue", b"%d" % number))
            _, element = waiting.receive()
            took.append(time.perf_counter() - start)
            pusher.receive()
            if element != b"%d" % number:
                raise SystemExit(f"{server.name} handed over {element!r} instead of {number}")
    return sorted(took)


def bytes_an_element(server: Server, elements: int) -> float:
    before = server.resident_bytes()
    fill(server, b"kept", elements)
    time.sleep(SETTLE_S)
    with Link(server) as link:
        if link.call(b"LLEN", b"kept") != elements:
            raise SystemExit(f"{server.name} does not have {elements} elements")
    return (server.resident_bytes() - before) / elements


def _call(server: Server, *words: bytes) -> None:
    with Link(server) as link:
        link.call(*words)


# --- running ----------------------------------------------------------------------------------------------------

_RATES: dict[str, tuple[str, Callable[[int, int, Server], float]]] = {
    "push": ("LPUSH", push),
    "pop": ("RPOP", pop),
    "range": (f"LRANGE {RANGE_ELEMENTS}", read_range),
}


def run(
    requests: int, elements: int, pipelines: list[int], rounds: int, tests: list[str]
) -> Iterator[dict[str, object]]:
    for test in tests:
        base = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with ExitStack() as stack:
                servers = {name: stack.enter_context(running(name, f"{base}/{name}")) for name in NAMES}
                yield from _run(servers, test, requests, elements, pipelines, rounds)
        finally:
            shutil.rmtree(base)


def _run(
    servers: dict[str, Server], test: str, requests: int, elements: int, pipelines: list[int], rounds: int
) -> Iterator[dict[str, object]]:
    if test in _RATES:
        name, measure = _RATES[test]
        for pipeline in pipelines:
            count = requests // (4 if pipeline == 1 else 1)
            best = best_of(servers, rounds, partial(measure, count, pipeline))
            yield _row(f"{name}, pipeline {pipeline}", "commands/s", best, best["tidelog"] / best["redis"])
    elif test == "hand-over":
        took = {name: hand_over(server, min(requests, HAND_OVERS_MAX)) for name, server in servers.items()}
        for label, part in (("p50", 0.5), ("p99", 0.99)):
            figures = {name: 1e6 * percentile(each, part) for name, each in took.items()}
            yield _row(f"BRPOP hand-over, {label}", "us", figures, figures["redis"] / figures["tidelog"])
    elif test == "memory":
        taken = {name: bytes_an_element(server, elements) for name, server in servers.items()}
        yield _row(f"memory, {elements:,} elements", "B/element", taken, taken["tidelog"] / taken["redis"])
    else:
        raise SystemExit(f"there is no test {test!r}: {', '.join(TESTS)}")


def _row(name: str, unit: str, figures: dict[str, float], ratio: float) -> dict[str, object]:
    rounded = {each: round(figure) for each, figure in figures.items()}
    return {"benchmark": name, "unit": unit, **rounded, "ratio": round(ratio, 2)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Lists beside Redis.")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--elements", type=int, default=1_000_000, help="of the list whose memory is measured")
    parser.add_argument("--pipelines", default="1,16,128")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    pipelines = [int(each) for each in options.pipelines.split(",")]
    rows = run(options.requests, options.elements, pipelines, options.rounds, options.tests.split(","))
    write_rows(rows, options.json, LINE)


if __name__ == "__main__":
    main()
