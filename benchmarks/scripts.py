"""Lua scripts beside Redis: the same scripts, the same persistence, one after the other in one run, as ratios.

    python -m benchmarks.scripts [--requests N] [--pipelines 1,16] [--rounds N] [--tests limiter,...] [--json]

Goal, as a ratio to Redis: 0.5.

    empty       `return 1`: what a script costs that does nothing
    limiter     a rate limiter with a sliding window, over two counters of a million users' (INCR, EXPIRE, GET)
    ten         ten commands on strings, a hash, a set, a sorted set and a list
    compile     EVAL of scripts that no server has seen yet: what a script costs the first time, one connection

All but `compile` are called by EVALSHA from 50 connections (redis-benchmark). The best of the rounds counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count

from benchmarks.loads import Link, best_of, stock_load
from benchmarks.servers import NAMES, Server, encode, running, write_rows

CLIENTS = 50
USERS = 1_000_000
COMPILED_PART = 100
"""Of so many requests, one script is compiled."""
LINE = "{benchmark:<28} tidelog {tidelog:>10,} {unit:<10} redis {redis:>10,}  ratio {ratio:>6}"

EMPTY = "return 1"
LIMITER = """
local limit, window, passed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local before = tonumber(redis.call('GET', KEYS[2]) or '0')
local now = redis.call('INCR', KEYS[1])
if now == 1 then redis.call('EXPIRE', KEYS[1], 2 * window) end
local weighed = before * (window - passed) / window + now
if weighed > limit then return {0, math.ceil(weighed)} end
return {1, math.ceil(weighed)}
"""
TEN = """
redis.call('SET', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[3], 'name', ARGV[1], 'at', ARGV[2])
redis.call('HINCRBY', KEYS[3], 'visits', 1)
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], ARGV[2], ARGV[1])
redis.call('LPUSH', KEYS[6], ARGV[1])
redis.call('LTRIM', KEYS[6], 0, 9)
redis.call('EXPIRE', KEYS[1], 100)
return redis.call('HGET', KEYS[3], 'visits')
"""
SCRIPTS = {
    "empty": ("empty script", EMPTY, ["0"]),
    "limiter": ("rate limiter", LIMITER, ["2", "now:__rand_int__", "before:__rand_int__", "100", "60", "20"]),
    "ten": (
        "10 commands",
        TEN,
        ["6", *(f"{kind}:__rand_int__" for kind in ("text", "count", "hash", "set", "ranks", "list")), "value", "17"],
    ),
}
"""Test -> its name, the script, and its keys and arguments."""
TESTS = (*SCRIPTS, "compile")

_numbers = count()


def call_script(script: str, words: list[str], requests: int, pipeline: int, server: Server) -> float:
    with Link(server) as link:
        sha = link.call(b"SCRIPT", b"LOAD", script.encode()).decode()
    return stock_load(server.port, ["EVALSHA", sha, *words], requests, CLIENTS, pipeline, USERS)


def compile_scripts(requests: int, server: Server) -> float:
    """Each script is another one."""
    with Link(server) as link:
        words = [word.encode() for word in SCRIPTS["ten"][2]]
        scripts = [f"-- {next(_numbers)}\n{TEN}" for _ in range(requests)]
        commands = [encode(b"EVAL", script.encode(), *words) for script in scripts]
        start = time.perf_counter()
        for command in commands:
            link.send(command)
            link.receive()
        took_s = time.perf_counter() - start
        link.call(b"SCRIPT", b"FLUSH")
    return requests / took_s


def run(requests: int, pipelines: list[int], rounds: int, tests: list[str]) -> Iterator[dict[str, object]]:
    for test in tests:
        base = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with ExitStack() as stack:
                servers = {name: stack.enter_context(running(name, f"{base}/{name}")) for name in NAMES}
                yield from _run(servers, test, requests, pipelines, rounds)
        finally:
            shutil.rmtree(base)


def _run(
    servers: dict[str, Server], test: str, requests: int, pipelines: list[int], rounds: int
) -> Iterator[dict[str, object]]:
    if test == "compile":
        measure = partial(compile_scripts, max(requests // COMPILED_PART, 1))
        yield _row("EVAL of new scripts", best_of(servers, rounds, measure))
        return
    if test not in SCRIPTS:
        raise SystemExit(f"there is no test {test!r}: {', '.join(TESTS)}")
    name, script, words = SCRIPTS[test]
    for pipeline in pipelines:
        number = requests // (4 if pipeline == 1 else 1)
        best = best_of(servers, rounds, partial(call_script, script, words, number, pipeline))
        yield _row(f"{name}, pipeline {pipeline}", best)


def _row(name: str, best: dict[str, float]) -> dict[str, object]:
    figures = {each: round(figure) for each, figure in best.items()}
    return {"benchmark": name, "unit": "scripts/s", **figures, "ratio": round(best["tidelog"] / best["redis"], 2)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Lua scripts beside Redis.")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    pipelines = [int(each) for each in options.pipelines.split(",")]
    write_rows(run(options.requests, pipelines, options.rounds, options.tests.split(",")), options.json, LINE)


if __name__ == "__main__":
    main()
