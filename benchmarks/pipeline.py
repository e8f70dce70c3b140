"""The lake and the views: how fast a backlog is taken up, how fast a load may be that is kept up with, and how long a
write takes to show up in a view.

    python -m benchmarks.pipeline [--tests backlog,follow] [--changes N] [--rates 10000,20000] [--seconds N]
                                  [--warm N] [--json]

    backlog    changes that were made before it begins (SETs of JSON values over a tenth as many keys, at most a
               million) by `tidelog pipeline lake --once`: changes a second from its first batch to its last commit.
               The peer takes the same values from a Redis stream with redis-py and hiredis, in pages of 10,000, and
               appends them to a Delta table with delta-rs: no current state, no restarts, nothing but the copy
    follow     a steady load of so many changes a second for so many seconds, and a minute before (in which Java
               compiles what it runs), beside `tidelog pipeline lake` and `tidelog pipeline view` with two views, both
               --continuous, all on this machine: whether both keep up (have everything within five seconds after the
               last write), and how long it takes from a write to a hash of a view that has it, as a change feed on
               these hashes tells it. The load is 200,000 SETs that were made before, over and over: only the moment
               in them is new. No peer does this

Goals: 250,000 changes/s of a backlog; 20,000 changes/s kept up with on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hiredis
import redis

from benchmarks.servers import Server, encode, running, write_rows

AT_ONCE = 200
RUNS = 1000
AT_UNKNOWN = 10**16 - 1
"""Where a moment in µs goes: it has as many digits."""
PAGE = 10_000
KEYS_MAX = 1_000_000
KEYS_FOLLOWED = 100_000
STATES = (b"new", b"paid", b"packed", b"sent", b"returned")
BEHIND_S_MAX = 5.0
UP_S_MAX = 180.0
VIEWS = """
[views.by_state]
source = "prefix:order:"
sql = '''
select state, count(*) as n, sum(cast(amount as double)) as total, max(cast(at as bigint)) as at
from source group by state'''
key = ["state"]

[views.by_customer]
source = "prefix:order:"
sql = '''
select customer, count(*) as n, min(cast(amount as double)) as low, max(cast(amount as double)) as high
from source group by customer'''
key = ["customer"]
"""
BACKLOG_LINE = (
    "backlog  {changes:>10,} changes  lake {lake:>9,}/s ({lake_s} s, {start_s} s to begin)  by hand {peer:>9,}/s  "
    "x by hand {ratio:>5}"
)
FOLLOW_LINE = (
    "follow   {rate:>7,}/s  wrote {wrote:>7,}/s  kept up: {kept_up}  behind at the end: lake {lake_behind_s} s, views "
    "{view_behind_s} s  write to hash p50 {p50_s} s, p99 {p99_s} s"
)


def order(number: int, rng: random.Random, keys: int) -> tuple[bytes, bytes]:
    """A key and its new value."""
    value = b'{"state":"%b","amount":%d.%02d,"customer":"c%d","at":%d}' % (
        rng.choice(STATES),
        rng.randrange(500),
        rng.randrange(100),
        rng.randrange(1000),
        number,
    )
    return b"order:%d" % rng.randrange(keys), value


# --- a backlog --------------------------------------------------------------------------------------------------------


def backlog(changes: int) -> Iterator[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    keys = min(KEYS_MAX, max(1, changes // 10))
    try:
        with running("tidelog", f"{folder}/tidelog") as server:
            fill(server, changes, keys, is_stream=False)
            began = time.monotonic()
            summary = run_lake(server, f"{folder}/lake")
            whole_s = time.monotonic() - began
            if summary["changes"] != changes:
                raise SystemExit(f"the lake has {summary['changes']} changes, not {changes}")
        with running("redis", f"{folder}/redis") as server:
            fill(server, changes, keys, is_stream=True)
            began = time.monotonic()
            copy_by_hand(server, f"{folder}/peer", changes)
            peer_s = time.monotonic() - began
        lake_s = summary["work_seconds"]
        yield {
            "benchmark": "backlog",
            "changes": changes,
            "lake": round(changes / lake_s),
            "lake_s": round(lake_s, 1),
            "start_s": round(whole_s - lake_s, 1),
            "peer": round(changes / peer_s),
            "ratio": round(peer_s / lake_s, 2),
        }
    finally:
        shutil.rmtree(folder)


def fill(server: Server, changes: int, keys: int, *, is_stream: bool) -> None:
    rng = random.Random(1)
    with server.connect() as connection:
        for start in range(0, changes, AT_ONCE * 5):
            run = []
            for number in range(start, min(changes, start + AT_ONCE * 5)):
                key, value = order(number, rng, keys)
                words = (b"XADD", b"orders", b"*", b"key", key, b"value", value) if is_stream else (b"SET", key, value)
                run.append(encode(*words))
            connection.sendall(b"".join(run))
            take_replies(connection, len(run))


def take_replies(connection: socket.socket, count: int) -> None:
    reader = hiredis.Reader()
    while count:
        reader.feed(connection.recv(1 << 16))
        while (reply := reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise SystemExit(f"the server answered {reply}")
            count -= 1


def run_lake(server: Server, to: str) -> dict[str, Any]:
    """The summary of one run, with the seconds between its first batch and its end."""
    words = ["pipeline", "lake", "--url", f"redis://127.0.0.1:{server.port}", "--to", to, "--once", "--output", "json"]
    process = subprocess.Popen(tidelog(*words), stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    told: list[tuple[float, dict[str, Any]]] = [(time.monotonic(), json.loads(line)) for line in process.stdout]
    if process.wait() or len(told) < 2:
        raise SystemExit("the lake failed")
    begun = told[0][0] - told[0][1]["batch_seconds"]
    return {**told[-1][1], "work_seconds": told[-1][0] - begun}


def copy_by_hand(server: Server, to: str, changes: int) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    client = redis.Redis(port=server.port)
    last: Any = "-"
    count = 0
    while count < changes:
        pages: list[Any] = []
        for _ in range(50):
            found: Any = client.xrange("orders", last, "+", PAGE)
            if not found:
                break
            last = b"(" + found[-1][0]
            pages += found
        ids = pa.array([each[0] for each in pages], pa.binary())
        key = pa.array([each[1][b"key"] for each in pages], pa.binary())
        value = pa.array([each[1][b"value"] for each in pages], pa.binary())
        write_deltalake(to, pa.table({"id": ids, "key": key, "value": value}), mode="append")
        count += len(pages)


# --- a load -----------------------------------------------------------------------------------------------------------


def follow(rates: list[int], seconds: float, warm_s: float) -> Iterator[dict[str, Any]]:
    for rate in rates:
        folder = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with ExitStack() as stack:
                server = stack.enter_context(running("tidelog", f"{folder}/tidelog"))
                yield from follow_at(server, folder, rate, seconds, warm_s, stack)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def follow_at(
    server: Server, folder: str, rate: int, seconds: float, warm_s: float, stack: ExitStack
) -> Iterator[dict[str, Any]]:
    views = Path(folder, "views.toml")
    views.write_text(VIEWS)
    url = ["--url", f"redis://127.0.0.1:{server.port}", "--to", f"{folder}/lake", "--continuous", "--no-progress"]
    fill(server, KEYS_FOLLOWED, KEYS_FOLLOWED, is_stream=False)
    client: Any = redis.Redis(port=server.port, protocol=3, decode_responses=True)
    stack.enter_context(job("pipeline", "lake", *url))
    stack.enter_context(job("pipeline", "view", *url, "--file", str(views)))
    wait_for(lambda: state_of(client, "lake").get("batches", "0") != "0", "the lake")
    wait_for(lambda: state_of(client, "view").get("batches", "0") != "0", "the views")
    watch = stack.enter_context(Watch(server.port))
    load = Load(server, rate, seconds)
    load.run(warm_s)
    watch.seen.clear()
    load.run(seconds)
    ended = time.monotonic()
    last_ts = position(client)
    behind = {name: caught_up(client, name, last_ts, ended) for name in ("lake", "view")}
    time.sleep(0.5)
    latencies = sorted(watch.latencies(load.sampled))
    yield {
        "benchmark": "follow",
        "rate": rate,
        "wrote": round(load.count / load.took_s),
        "kept_up": all(each is not None and each <= BEHIND_S_MAX for each in behind.values()),
        "lake_behind_s": behind["lake"],
        "view_behind_s": behind["view"],
        "p50_s": quantile(latencies, 0.5),
        "p99_s": quantile(latencies, 0.99),
    }


class Load:
    """Writes at a rate, or as fast as it can if that is slower."""

    def __init__(self, server: Server, rate: int, seconds: float) -> None:
        self._connection = server.connect()
        self._rate = rate
        rng = random.Random(2)
        # Made before, with room for the moment: what the load costs is taken away from those who follow it.
        self._runs = [
            b"".join(encode(b"SET", *order(AT_UNKNOWN, rng, KEYS_FOLLOWED)) for _ in range(AT_ONCE))
            for _ in range(RUNS)
        ]
        self.count = 0
        self.took_s = seconds
        self.sampled: list[int] = []
        """Moments of writes, in µs: one of each run."""

    def run(self, seconds: float) -> None:
        self.count, self.sampled = 0, []
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            due = int(now * self._rate) - self.count
            if due < AT_ONCE:
                time.sleep((AT_ONCE - due) / self._rate)
            at = time.time_ns() // 1000
            run = self._runs[self.count // AT_ONCE % RUNS]
            self._connection.sendall(run.replace(b"%d" % AT_UNKNOWN, b"%d" % at))
            take_replies(self._connection, AT_ONCE)
            self.count += AT_ONCE
            self.sampled.append(at)
        self.took_s = time.monotonic() - began


class Watch:
    """Follows the hashes of a view, in a thread."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self.seen: list[tuple[int, int]] = []
        """When a hash said that it has all writes up to a moment; both in µs."""

    def __enter__(self) -> Watch:
        self._connection.sendall(encode(b"CHANGEFEED", b"PREFIX", b"view:by_state:"))
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        reader = hiredis.Reader()
        while data := self._connection.recv(1 << 16):
            reader.feed(data)
            while (event := reader.gets()) is not False:
                if event[0] == b"value" and event[4] == b"at" and event[5]:
                    self.seen.append((time.time_ns() // 1000, int(event[5])))

    def __exit__(self, *_: object) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def latencies(self, writes: list[int]) -> list[float]:
        """Seconds from each write to the first hash that has it."""
        found = []
        seen, at, newest = sorted(self.seen), 0, 0
        for write in writes:
            while at < len(seen) and newest < write:
                newest = max(newest, seen[at][1])
                at += 1
            if newest < write:
                break  # it was never seen
            found.append((seen[at - 1][0] - write) / 1e6)
        return found


def quantile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2) if ordered else None


def state_of(client: Any, name: str) -> dict[str, str]:
    found: dict[str, str] = client.hgetall(f"tidelog:pipeline:{name}")
    return found


def position(client: Any) -> int:
    return min(int(row[1]) for row in client.execute_command("FEED", "POSITION"))


def caught_up(client: Any, name: str, ts: int, ended: float) -> float | None:
    """Seconds after the last write until a job has it; None: it took too long."""
    while time.monotonic() - ended < UP_S_MAX:
        if int(state_of(client, name).get("ts") or 0) >= ts:
            return round(time.monotonic() - ended, 1)
        time.sleep(0.05)
    return None


def wait_for(is_so: Any, what: str) -> None:
    deadline = time.monotonic() + UP_S_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not begin")
        time.sleep(0.1)


@contextmanager
def job(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(tidelog(*words), env=environment(), stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def tidelog(*words: str) -> list[str]:
    return [sys.executable, "-m", "tidelog.cli", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", default="backlog,follow")
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rates", default="20000")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=60.0, help="seconds of the same load before it counts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    tests = given.tests.split(",")
    if "backlog" in tests:
        write_rows(backlog(given.changes), given.json, BACKLOG_LINE)
    if "follow" in tests:
        rates = [int(rate) for rate in given.rates.split(",")]
        write_rows(follow(rates, given.seconds, given.warm), given.json, FOLLOW_LINE)


if __name__ == "__main__":
    main()
