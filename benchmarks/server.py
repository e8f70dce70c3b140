"""The server beside Redis: the same load, the same persistence, one after the other in one run, as a ratio.

    python -m benchmarks.server [--requests N] [--clients N] [--pipelines 1,16,128] [--fsync everysec|always] [--json]

Goals: 1.0 and above with `everysec` (under 0.6 is not finished), 1.5 with `always`.

The load comes from redis-benchmark, 100-byte values over a million keys; MULTI of 10, which it cannot send, from
clients of our own that send ready-made buffers. Both servers append to a log with the same fsync policy. Rounds
alternate between the two and the median counts. The machine should be quiet: the load has one core, the server the
other.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(7) == b"+PONG\r\n":
                    return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the server on port {port} did not start")


def start_redis(folder: str, port: int, fsync: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            folder,
            "--save",
            "",
            "--daemonize",
            "no",
            "--appendonly",
            "yes",
            "--appendfsync",
            fsync,
            "--auto-aof-rewrite-percentage",
            "0",
        ],
        stdout=subprocess.DEVNULL,
    )


def start_tidelog(folder: str, port: int, fsync: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tidelog.cli",
            "serve",
            "--port",
            str(port),
            "--http-port",
            "0",
            "--data",
            f"{folder}/data",
            "--fsync",
            fsync,
        ],
        stdout=subprocess.DEVNULL,
    )


def stock_load(port: int, command: list[str], requests: int, clients: int, pipeline: int) -> float:
    """Requests a second, as redis-benchmark measures them."""
    out = subprocess.run(
        [
            "redis-benchmark",
            "-p",
            str(port),
            "-n",
            str(requests),
            "-c",
            str(clients),
            "-P",
            str(pipeline),
            "-r",
            str(KEYS),
            "--csv",
            *command,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return float(list(csv.reader(io.StringIO(out)))[-1][1])


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def multi_load(port: int, _command: list[str], requests: int, clients: int, pipeline: int) -> float:
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


Load = Callable[[int, list[str], int, int, int], float]


def run(
    requests: int, clients: int, pipelines: list[int], fsync: str, rounds: int, tests: list[str]
) -> list[dict[str, object]]:
    base = tempfile.mkdtemp(prefix="tidelog-bench-")
    folders = {name: f"{base}/{name}" for name in ("redis", "tidelog")}
    ports = {name: free_port() for name in folders}
    processes = []
    rows: list[dict[str, object]] = []
    try:
        for name, start in (("redis", start_redis), ("tidelog", start_tidelog)):
            Path(folders[name]).mkdir()
            processes.append(start(folders[name], ports[name], fsync))
            wait_for(ports[name], processes[-1])
        for test in tests:
            load: Load = multi_load if test == MULTI else stock_load
            for pipeline in pipelines:
                count = requests // (4 if pipeline == 1 else 1)
                measured: dict[str, list[float]] = {"redis": [], "tidelog": []}
                for _ in range(rounds):
                    for name, rates in measured.items():
                        rates.append(load(ports[name], TESTS.get(test, []), count, clients, pipeline))
                ours, theirs = statistics.median(measured["tidelog"]), statistics.median(measured["redis"])
                rows.append(
                    {
                        "benchmark": test,
                        "pipeline": pipeline,
                        "fsync": fsync,
                        "tidelog_per_s": round(ours),
                        "redis_per_s": round(theirs),
                        "ratio": round(ours / theirs, 2),
                    }
                )
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)
        shutil.rmtree(base)
    return rows


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
    for row in rows:
        if options.json:
            sys.stdout.write(json.dumps(row) + "\n")
        else:
            sys.stdout.write(
                f"{row['benchmark']:<12} pipeline {row['pipeline']:>3}  tidelog {row['tidelog_per_s']:>9,}/s  "
                f"redis {row['redis_per_s']:>9,}/s  ratio {row['ratio']:>5}\n"
            )


if __name__ == "__main__":
    main()
