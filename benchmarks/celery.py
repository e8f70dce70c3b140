"""Celery on Tidelog beside Celery on Redis: tasks a second that one worker runs, in one run, as a ratio.

    python -m benchmarks.celery [--tasks N] [--rounds N] [--fsync everysec|always] [--tests send,forget,keep] [--json]

Goal: 0.9 and above.

send      queue tasks, one after the other, from one process
forget    one worker runs tasks that do nothing and whose results are ignored: it takes each off the queue, remembers it
          and acknowledges it
keep      the same with results, which the worker stores and announces

The worker is Celery's own, one process without children (`--pool solo`), with everything else as it is by default. Its
queue is filled before it starts; what it needs to start does not count. Rounds alternate between the two servers and
the best of each counts. The worker has one core, the server the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.celery_tasks import RESULT_VARIABLE, TASKS_VARIABLE, URL_VARIABLE, make_app
from benchmarks.peers import stop_peer
from benchmarks.servers import NAMES, Server, running, write_rows

TESTS = ("send", "forget", "keep")
WORKER = ["-m", "celery", "-A", "benchmarks.celery_tasks", "worker", "--pool", "solo", "--loglevel", "ERROR"]
WORK_S_MAX = 600.0
LOOK_S = 0.05
LINE = "{benchmark:<8} tidelog {tidelog_per_s:>7,}/s  redis {redis_per_s:>7,}/s  ratio {ratio:>5}"


def url_of(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


def send(server: Server, task: str, tasks: int) -> float:
    """Queue tasks in an empty server; returns how many a second."""
    server.ask(b"FLUSHALL")
    app = make_app(url_of(server))
    try:
        delay = app.tasks[task].delay
        delay()  # connects, and declares the queue
        server.ask(b"FLUSHALL")
        start = time.perf_counter()
        for _ in range(tasks):
            delay()
        return tasks / (time.perf_counter() - start)
    finally:
        app.close()


def work(server: Server, tasks: int, folder: Path) -> float:
    """Let a worker run what is queued; returns tasks a second."""
    result = folder / f"{server.name}-{time.monotonic_ns()}"
    names = {URL_VARIABLE: url_of(server), TASKS_VARIABLE: str(tasks), RESULT_VARIABLE: str(result)}
    checkout = Path(__file__).resolve().parent.parent
    log = folder / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, *WORKER], env={**os.environ, **names}, cwd=checkout, stdout=output, stderr=output
        )
    deadline_s = time.monotonic() + WORK_S_MAX
    try:
        while not result.exists():
            if worker.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"the worker did not run all tasks:\n{log.read_text(errors='replace')}")
            time.sleep(LOOK_S)
    finally:
        stop_peer(worker)
    return tasks / float(result.read_text())


def run(tasks: int, fsync: str, rounds: int, tests: list[str]) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as base, ExitStack() as stack:
        servers = {name: stack.enter_context(running(name, f"{base}/{name}", fsync)) for name in NAMES}
        for test in tests:
            best = dict.fromkeys(NAMES, 0.0)
            for _ in range(rounds):
                for name, server in servers.items():
                    rate = send(server, "forget" if test == "send" else test, tasks)
                    if test != "send":
                        rate = work(server, tasks, Path(base))
                    best[name] = max(best[name], rate)
            yield {
                "benchmark": test,
                "fsync": fsync,
                "tidelog_per_s": round(best["tidelog"]),
                "redis_per_s": round(best["redis"]),
                "ratio": round(best["tidelog"] / best["redis"], 2),
            }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Celery on Tidelog beside Celery on Redis.")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fsync", choices=["everysec", "always"], default="everysec")
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    write_rows(run(options.tasks, options.fsync, options.rounds, options.tests.split(",")), options.json, LINE)


if __name__ == "__main__":
    main()
