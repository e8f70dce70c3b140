"""Change feeds: what they cost those who write, how soon an event comes, how fast a feed reads.

python -m benchmarks.feeds [--tests many,latency,everything,rare] [--events N] [--feeds N] [--seconds N]
                           [--rare-bytes N] [--rounds N] [--json]

many         SETs by 50 clients, with and without feeds on single keys that nobody changes; goal: 0.9 and above
latency      from a SET to its event at 10,000 writes/s, beside keyspace notifications of Redis; goal: p99 under 5 ms
everything   all events of a history, from its beginning, beside XREAD of a Redis stream and JetStream of NATS with as
             many entries; goal: ahead of both
rare         bytes that are read to catch up with one rare key over a whole history; goal: under 5 %
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import numpy as np

from benchmarks import jetstream
from benchmarks.servers import NAMES, Server, encode, running, write_rows

VALUE = b"x" * 100
LINE = "{test:<12} {what:<34} {value:>14,} {unit:<9} {beside}"
AT_ONCE = 1000
WRITES_S = 10_000
READ_BYTES = 1 << 18


def row(test: str, what: str, value: float, unit: str, beside: str = "") -> dict[str, Any]:
    return {"test": test, "what": what, "value": round(value, 3), "unit": unit, "beside": beside}


# --- many feeds -------------------------------------------------------------------------------------------------


def set_rate(server: Server, requests: int) -> float:
    command = ["redis-benchmark", "-p", str(server.port), "-n", str(requests), "-c", "50", "-P", "16", "-d", "100"]
    found = subprocess.run([*command, "-r", "200000", "-t", "set", "--csv"], capture_output=True, check=True, text=True)
    return float(found.stdout.splitlines()[-1].split(",")[1].strip('"'))


def many(feeds: int, events: int, rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, running("tidelog", folder) as server:
        set_rate(server, events)
        alone, watched = [], []
        for _ in range(rounds):
            alone.append(set_rate(server, events))
            connections = [server.connect() for _ in range(feeds)]
            for number, connection in enumerate(connections):
                connection.sendall(encode(b"CHANGEFEED", b"KEY", b"watched:%d" % number))
            time.sleep(0.5)
            watched.append(set_rate(server, events))
            for connection in connections:
                connection.close()
            time.sleep(0.5)
    yield row("many", "SET without feeds", max(alone), "/s")
    yield row("many", f"SET with {feeds} feeds on keys", max(watched), "/s", f"ratio {max(watched) / max(alone):.2f}")


# --- latency ----------------------------------------------------------------------------------------------------


def send_for(server: Server, seconds: float) -> None:
    """SETs at an even pace; the key says when."""
    with server.connect() as connection:
        began = time.perf_counter()
        sent = 0
        while (now := time.perf_counter()) - began < seconds:
            due = int((now - began) * WRITES_S) - sent
            stamp = time.perf_counter_ns()
            if due:
                connection.sendall(b"".join(encode(b"SET", b"at:%d:%d" % (stamp, each), VALUE) for each in range(due)))
                sent += due
                connection.recv(READ_BYTES)
            time.sleep(0.001)


def latencies_us(server: Server, seconds: float) -> list[float]:
    reader = hiredis.Reader()
    found: list[float] = []
    with server.connect() as connection:
        if server.name == "redis":
            server.ask(b"CONFIG", b"SET", b"notify-keyspace-events", b"K$")
            connection.sendall(encode(b"PSUBSCRIBE", b"__keyspace@0__:at:*"))
            place, start = 2, len(b"__keyspace@0__:at:")
        else:
            connection.sendall(encode(b"CHANGEFEED", b"PREFIX", b"at:"))
            place, start = 2, len(b"at:")
        time.sleep(0.2)
        sender = threading.Thread(target=send_for, args=(server, seconds))
        sender.start()
        connection.settimeout(0.5)
        try:
            while True:
                reader.feed(connection.recv(READ_BYTES))
                now = time.perf_counter_ns()
                while (event := reader.gets()) is not False:
                    if event[0] in (b"value", b"pmessage"):
                        found.append((now - int(event[place][start:].split(b":")[0])) / 1000)
                if not sender.is_alive():
                    break
        except TimeoutError:
            pass
        sender.join()
    return found


def latency(seconds: float) -> Iterator[dict[str, Any]]:
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder, running(name, folder) as server:
            found = np.array(latencies_us(server, seconds))
        p50, p99 = np.percentile(found, [50, 99])
        yield row("latency", f"{name}, write to event, p50", p50, "us", f"{len(found):,} events")
        yield row("latency", f"{name}, write to event, p99", p99, "us")


# --- throughput -------------------------------------------------------------------------------------------------


def fill(server: Server, events: int) -> None:
    for start in range(0, events, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, events))
        if server.name == "redis":
            with server.connect() as connection:
                connection.sendall(b"".join(encode(b"XADD", b"s", b"*", b"e", VALUE) for _ in numbers))
                lines = connection.makefile("rb")
                for _ in range(2 * len(numbers)):
                    lines.readline()
                lines.close()
        else:
            server.send_all((encode(b"SET", b"key:%09d" % number, VALUE) for number in numbers), len(numbers))


def read_feed(connection: socket.socket, events: int) -> None:
    connection.sendall(encode(b"CHANGEFEED", b"SINCE", b"0", b"PREFIX", b""))
    reader = hiredis.Reader()
    seen = 0
    while seen < events:
        reader.feed(connection.recv(READ_BYTES))
        while (event := reader.gets()) is not False:
            seen += event[0] == b"value"


def read_stream(connection: socket.socket, events: int) -> None:
    reader = hiredis.Reader()
    last, seen = b"0", 0
    while seen < events:
        connection.sendall(encode(b"XREAD", b"COUNT", b"1000", b"STREAMS", b"s", last))
        while (reply := reader.gets()) is False:
            reader.feed(connection.recv(READ_BYTES))
        entries = reply[0][1]
        last, seen = entries[-1][0], seen + len(entries)


def everything(events: int, rounds: int) -> Iterator[dict[str, Any]]:
    rates: dict[str, float] = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder, running(name, folder) as server:
            fill(server, events)
            for _ in range(rounds):
                with server.connect() as connection:
                    began = time.perf_counter()
                    (read_stream if name == "redis" else read_feed)(connection, events)
                    rates[name] = max(rates.get(name, 0.0), events / (time.perf_counter() - began))
    yield row("everything", "Redis XREAD, 1000 at a time", rates["redis"], "events/s")
    beside = f"ratio {rates['tidelog'] / rates['redis']:.2f} to XREAD"
    if jetstream.is_installed():
        with tempfile.TemporaryDirectory() as folder, jetstream.running_jetstream(folder) as nats:
            nats.fill(events, VALUE)
            rate = max(events / nats.read(events) for _ in range(rounds))
        yield row("everything", "NATS JetStream, push consumer", rate, "events/s")
        beside += f", {rates['tidelog'] / rate:.2f} to JetStream"
    yield row("everything", "a feed since the beginning", rates["tidelog"], "events/s", beside)


# --- a rare key -------------------------------------------------------------------------------------------------


def rare(history_bytes: int) -> Iterator[dict[str, Any]]:
    import random

    from tidelog.feeds.router import Router
    from tidelog.feeds.span import span_of_key
    from tidelog.ids import ShardId, Ts
    from tidelog.journal.durability import FsyncPolicy
    from tidelog.journal.journal import Settings
    from tidelog.server.hot import HotPath
    from tidelog.store.store import Store
    from tidelog.store.type_table import operation_table
    from tidelog.system.clock import SystemClock
    from tidelog.system.disk import SystemDisk

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(policy=FsyncPolicy.NEVER, ring_bytes_max=0)
        store = Store.open(
            SystemDisk(), f"{folder}/data", SystemClock(), settings, new_epoch_id=lambda: 1, random=random.Random(1)
        )
        journal, hot, draw = store.journal, HotPath(store, 0, 2), random.Random(1)
        batches = 0
        while journal.writer.bytes_written < history_bytes:
            run = [[b"SET", b"key:%012d" % draw.randrange(200_000), VALUE] for _ in range(100)]
            done = 0
            while done < len(run):
                done = hot.set(run, done, [])
            if batches % 20_000 == 0:
                hot.set([[b"SET", b"rare", b"%d" % batches]], 0, [])
            batches += 1
            journal.writer.write()
        while journal.make_sidecars(operation_table(), 1):
            pass
        router = Router(journal, [ShardId(0)], Ts(0), [span_of_key(b"rare")])
        while router.read() is not None:
            pass
        part = router.bytes_read / journal.writer.bytes_written
        yield row("rare", "bytes of history", journal.writer.bytes_written, "bytes")
        yield row("rare", "bytes read for one rare key", router.bytes_read, "bytes", f"{100 * part:.2f} %")
        router.close()
        journal.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", default="many,latency,everything,rare")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--feeds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rare-bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    tests = {
        "many": lambda: many(given.feeds, given.events, given.rounds),
        "latency": lambda: latency(given.seconds),
        "everything": lambda: everything(given.events, given.rounds),
        "rare": lambda: rare(given.rare_bytes),
    }
    for name in given.tests.split(","):
        if name not in tests:
            parser.error(f"there is no test {name}: {', '.join(tests)}")
        write_rows(tests[name](), given.json, LINE)


if __name__ == "__main__":
    main()
