"""The server beside Redis: the same load, the same persistence, one after the other in one run, as a ratio.

    python -m benchmarks.server [--requests N] [--clients N] [--pipelines 1,16,128] [--fsync everysec|always] [--json]

Goals: 1.0 and above with `everysec` (under 0.6 is not finished), 1.5 with `always`.

The load comes from redis-benchmark, 100-byte values over a million keys; MULTI of 10, which it cannot send, from
clients of our own that send ready-made buffers. Both servers append to a log with the same fsync policy and start empty
for every kind of command; a first round fills them and does not count. Rounds alternate between the two and the best of
each counts: what disturbs a machine only ever makes it slower. The machine should be quiet: the load has one core, the
server the other.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.loads import best_of, stock_load
from benchmarks.servers import NAMES, Server, encode, running, write_rows

VALUE_BYTES = 100
KEYS = 1_000_000
TESTS = {
    "SET": ["set", "key:__rand_int__", "x" * VALUE_BYTES],
    "GET": ["get", "key:__rand_int__"],
    "INCR": ["incr", "counter:__rand_int__"],
    "HSET": ["hset", "hash:__rand_int__", "field", "x" * VALUE_BYTES],
    "MSET of 10": ["mset", *(word for _ in range(10) for word in ("key:__rand_int__", "x" * VALUE_BYTES))],
}
MULTI = "MULTI of 10"
FILLED_BY = {"GET": "SET"}
"""What fills a server before it is measured, if not the command itself."""
LINE = (
    "{benchmark:<12} pipeline {pipeline:>3}  tidelog {tidelog_per_s:>9,}/s  redis {redis_per_s:>9,}/s  ratio {ratio:>5}"
)


def plain_load(port: int, test: str, requests: int, clients: int, pipeline: int) -> float:
    """Requests a second of one command over many keys."""
    return stock_load(port, TESTS[test], requests, clients, pipeline, KEYS)


def multi_load(port: int, _test: str, requests: int, clients: int, pipeline: int) -> float:
    """Transactions of ten SETs, `pipeline` of them in flight a client; returns commands a second."""
    value = b"x" * VALUE_BYTES
    sets = b"".join(encode(b"SET", b"key:%012d" % number, value) for number in range(10))
    one = encode(b"MULTI") + sets + encode(b"EXEC")
    reply = b"+OK\r\n" + b"+QUEUED\r\n" * 10 + b"*10\r\n" + b"+OK\r\n" * 10
    rounds = max(requests // (10 * pipeline * clients), 1)

    def client() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(rounds):
                connection.sendall(one * pipeline)
                left = len(reply) * pipeline
                while left:
                    left -= len(connection.recv(min(left, 1 << 16)))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rounds * 10 * pipeline * clients / (time.perf_counter() - start)


Load = Callable[[int, str, int, int, int], float]


def _rate(load: Load, test: str, requests: int, clients: int, pipeline: int, server: Server) -> float:
    return load(server.port, test, requests, clients, pipeline)


def run(
    requests: int, clients: int, pipelines: list[int], fsync: str, rounds: int, tests: list[str]
) -> Iterator[dict[str, object]]:
    for test in tests:
        base = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with ExitStack() as stack:
                servers = {name: stack.enter_context(running(name, f"{base}/{name}", fsync)) for name in NAMES}
                load: Load = multi_load if test == MULTI else plain_load
                for server in servers.values():
                    load(server.port, FILLED_BY.get(test, test), requests, clients, max(pipelines))
                for pipeline in pipelines:
                    count = requests // (4 if pipeline == 1 else 1)
                    best = best_of(servers, rounds, partial(_rate, load, test, count, clients, pipeline))
                    yield {
                        "benchmark": test,
                        "pipeline": pipeline,
                        "fsync": fsync,
                        "tidelog_per_s": round(best["tidelog"]),
                        "redis_per_s": round(best["redis"]),
                        "ratio": round(best["tidelog"] / best["redis"], 2),
                    }
        finally:
            shutil.rmtree(base)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The server beside Redis.")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--pipelines", default="1,16,128")
    parser.add_argument("--fsync", choices=["everysec", "always"], default="everysec")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", default=",".join([*TESTS, MULTI]))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    pipelines = [int(each) for each in options.pipelines.split(",")]
    rows = run(options.requests, options.clients, pipelines, options.fsync, options.rounds, options.tests.split(","))
    write_rows(rows, options.json, LINE)


if __name__ == "__main__":
    main()
