"""Streams beside Redis streams: the same events, the same persistence, one after the other in one run, as ratios.

    python -m benchmarks.streams [--events N] [--sizes 100,1000] [--rounds N] [--tests append,...] [--json]

Goals, as ratios to Redis: single appends 1.0 at every pipeline (under 0.7 is not finished), batched appends 3, range
reads 1.5, reads over Flight 8, group read and acknowledge 1.0; memory 0.33 or less (40 B an event).

    append      TWRITE beside XADD, one event a command, 50 connections (redis-benchmark), pipelines of 1, 16 and 128
    batch       TWRITE ... ENTRIES of 100 and 1000 beside as many XADDs in one pipeline, one connection
    read        TREAD and XRANGE of 1000 beside XRANGE of 1000, over the whole stream
    flight      the whole stream over Flight beside the same XRANGEs of Redis
    group       XREADGROUP of 10 and XACK, until all is read
    wake        from the write of an event to its arrival at a blocked reader, p50 and p99 in µs (ratio: Redis's / ours)
    share       10,000 events a second, 10 readers of one group: how many arrive within 2 ms
    memory      resident bytes an event, some seconds after the last was written; with --json also those on disk

Events are JSON objects that differ. The best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from benchmarks.loads import Link, best_of, percentile, stock_load
from benchmarks.servers import NAMES, Server, encode, running, write_rows

CLIENTS = 50
PIPELINES = (1, 16, 128)
READ_COUNT = 1000
LINE = "{benchmark:<22} {size:>5} B  tidelog {tidelog:>14,} {unit:<9} redis {redis:>14,}  ratio {ratio:>6}"


def event(number: int, size: int, rng: random.Random) -> bytes:
    """A JSON object of about `size` bytes."""
    head = {"id": number, "user": rng.randrange(100_000), "action": rng.choice(["view", "click", "buy"])}
    text = json.dumps({**head, "at": 1_700_000_000_000 + 7 * number, "text": ""})
    words = ["tide", "log", "stream", "event", "reader", "writer", "spark", "journal"]
    filler = " ".join(rng.choice(words) for _ in range(size // 4))
    return (text[:-2] + filler)[: size - 2].encode() + b'"}'


def append_word(server: Server, key: bytes, entry: bytes) -> bytes:
    """One event as each server takes it."""
    if server.name == "tidelog":
        return encode(b"TWRITE", key, b"event", entry)
    return encode(b"XADD", key, b"*", b"event", entry)


def fill(server: Server, key: bytes, events: list[bytes]) -> None:
    with Link(server) as link:
        link.send_many([append_word(server, key, each) for each in events])


# --- tests: each returns what a server does a second, or another figure -----------------------------------------


def append(server: Server, events: list[bytes], pipeline: int) -> float:
    words = ["TWRITE", "s", "event"] if server.name == "tidelog" else ["XADD", "s", "*", "event"]
    fill(server, b"s", events[:1])
    count = len(events) // (4 if pipeline == 1 else 1)
    return stock_load(server.port, [*words, events[0].decode()], count, CLIENTS, pipeline)


def batch(server: Server, events: list[bytes], size: int) -> float:
    buffers, replies = [], []
    for at in range(0, len(events) - size + 1, size):
        run = events[at : at + size]
        if server.name == "tidelog":
            flat = [word for each in run for word in (b"event", each)]
            buffers.append(encode(b"TWRITE", b"b", b"ENTRIES", *flat))
            replies.append(1)
        else:
            buffers.append(b"".join(append_word(server, b"b", each) for each in run))
            replies.append(size)
    with Link(server) as link:
        start = time.perf_counter()
        for buffer, count in zip(buffers, replies, strict=True):
            link.send(buffer)
            for _ in range(count):
                link.receive()
        return len(buffers) * size / (time.perf_counter() - start)


def read_by_id(server: Server, count: int) -> float:
    """XRANGE, on both."""
    after, seen = b"-", 0
    start = time.perf_counter()
    with Link(server) as link:
        while found := link.call(b"XRANGE", b"r", after, b"+", b"COUNT", b"%d" % READ_COUNT):
            seen += len(found)
            after = b"(" + found[-1][0]
    assert seen == count
    return seen / (time.perf_counter() - start)


def read_by_offset(server: Server, count: int) -> float:
    """TREAD here, XRANGE there."""
    if server.name == "redis":
        return read_by_id(server, count)
    offset = 1
    start = time.perf_counter()
    with Link(server) as link:
        while found := link.call(b"TREAD", b"r", b"%d" % offset, b"%d" % READ_COUNT):
            offset = found[-1][0] + 1
    assert offset == count + 1
    return count / (time.perf_counter() - start)


def read_by_flight(server: Server, count: int) -> float:
    if server.name == "redis":
        return read_by_id(server, count)
    import pyarrow.flight as flight

    with flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}") as client:
        start = time.perf_counter()
        rows = sum(chunk.data.num_rows for chunk in client.do_get(flight.Ticket(b'{"stream": "r"}')))
        assert rows == count
        return count / (time.perf_counter() - start)


def group(server: Server, count: int) -> float:
    """XREADGROUP of 10 and XACK of what came, one after the other."""
    ask = encode(b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"10", b"STREAMS", b"r", b">")
    seen = 0
    with Link(server) as link:
        link.call(b"XGROUP", b"DESTROY", b"r", b"g")
        link.call(b"XGROUP", b"CREATE", b"r", b"g", b"0")
        start = time.perf_counter()
        link.send(ask)
        while seen < count:
            ((_, entries),) = link.receive()
            seen += len(entries)
            link.send(encode(b"XACK", b"r", b"g", *[each[0] for each in entries]) + (ask if seen < count else b""))
            link.receive()
        return seen / (time.perf_counter() - start)


def wake(server: Server, events: list[bytes]) -> list[float]:
    """Seconds from the write of each event to its arrival at a reader that waits for it."""
    took = []
    last = b"0-0"
    with Link(server) as writer, Link(server) as reader:
        writer.call(b"DEL", b"w")
        for each in events:
            reader.send(encode(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"w", last))
            time.sleep(0.0005)
            start = time.perf_counter()
            writer.send(append_word(server, b"w", each))
            ((_, entries),) = reader.receive()
            took.append(time.perf_counter() - start)
            last = entries[-1][0]
            writer.receive()
    return sorted(took)


def share(server: Server, seconds: float = 3.0, rate: int = 10_000, readers: int = 10) -> float:
    """Of events written at a rate, the part that a group's readers had within 2 ms."""
    with Link(server) as control:
        control.call(b"DEL", b"d")
        control.call(b"XGROUP", b"CREATE", b"d", b"g", b"$", b"MKSTREAM")
    late: list[int] = []
    seen: list[int] = []

    def consume(name: bytes) -> None:
        link = Link(server)
        ask = encode(b"XREADGROUP", b"GROUP", b"g", name, b"COUNT", b"10", b"BLOCK", b"1000", b"STREAMS", b"d", b">")
        slow = count = 0
        while True:
            link.send(ask)
            reply = link.receive()
            now = time.perf_counter()
            if not reply:
                break
            ((_, entries),) = reply
            stamps = [float(fields[1]) for _, fields in entries]
            slow += sum(now - stamp > 0.002 for stamp in stamps)
            count += len(stamps)
            link.call(b"XACK", b"d", b"g", *[entry[0] for entry in entries])
        late.append(slow)
        seen.append(count)

    threads = [threading.Thread(target=consume, args=(b"c%d" % number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    writer = Link(server)
    start = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) - start < seconds:
        due = int((now - start) * rate) - sent
        if due <= 0:
            time.sleep(0.0002)
            continue
        writer.send(b"".join(encode(b"XADD", b"d", b"*", b"at", b"%.6f" % now) for _ in range(due)))
        for _ in range(due):
            writer.receive()
        sent += due
    for thread in threads:
        thread.join()
    return 1 - sum(late) / max(sum(seen), 1)


# --- running ----------------------------------------------------------------------------------------------------


def rows_of(
    name: str, size: int, unit: str, servers: dict[str, Server], rounds: int, measure: Callable[[Server], float]
) -> dict[str, object]:
    best = best_of(servers, rounds, measure)
    return {
        "benchmark": name,
        "size": size,
        "unit": unit,
        "tidelog": round(best["tidelog"], 4 if best["tidelog"] <= 1 else None),
        "redis": round(best["redis"], 4 if best["redis"] <= 1 else None),
        "ratio": round(best["tidelog"] / best["redis"], 2),
    }


def run(count: int, sizes: list[int], rounds: int, tests: list[str]) -> Iterator[dict[str, object]]:
    for size in sizes:
        rng = random.Random(size)
        events = [event(number, size, rng) for number in range(count)]
        base = tempfile.mkdtemp(prefix="tidelog-bench-")
        try:
            with ExitStack() as stack:
                servers = {
                    name: stack.enter_context(running(name, f"{base}/{name}", has_flight="flight" in tests))
                    for name in NAMES
                }
                yield from _run(servers, events, size, rounds, tests)
        finally:
            shutil.rmtree(base)


def _run(
    servers: dict[str, Server], events: list[bytes], size: int, rounds: int, tests: list[str]
) -> Iterator[dict[str, object]]:
    count = len(events)
    if "memory" in tests:
        yield memory(servers, events, size)
    if "append" in tests:
        for pipeline in PIPELINES:
            name = f"append, pipeline {pipeline}"
            yield rows_of(name, size, "events/s", servers, rounds, lambda s, p=pipeline: append(s, events, p))  # type: ignore[misc]
    if "batch" in tests:
        for each in (100, 1000):
            yield rows_of(f"batch of {each}", size, "events/s", servers, rounds, lambda s, n=each: batch(s, events, n))  # type: ignore[misc]
    if {"read", "flight", "group"} & set(tests):
        for server in servers.values():
            fill(server, b"r", events)
    if "read" in tests:
        yield rows_of("read, by offset", size, "events/s", servers, rounds, lambda s: read_by_offset(s, count))
        yield rows_of("read, by id", size, "events/s", servers, rounds, lambda s: read_by_id(s, count))
    if "flight" in tests:
        yield rows_of("read, Flight", size, "events/s", servers, rounds, lambda s: read_by_flight(s, count))
    if "group" in tests:
        yield rows_of("group read + ack", size, "events/s", servers, rounds, lambda s: group(s, count))
    if "wake" in tests:
        took = {name: wake(server, events[:500]) for name, server in servers.items()}
        for label, at in (("wake, p50", 0.5), ("wake, p99", 0.99)):
            figures = {name: round(1e6 * percentile(each, at)) for name, each in took.items()}
            ratio = round(figures["redis"] / figures["tidelog"], 2)
            yield {"benchmark": label, "size": size, "unit": "us", **figures, "ratio": ratio}
    if "share" in tests:
        yield rows_of("within 2 ms", size, "", servers, 1, share)


def memory(servers: dict[str, Server], events: list[bytes], size: int) -> dict[str, object]:
    """Bytes an event, some seconds after the last was written."""
    taken, disk_bytes = {}, 0
    for name, server in servers.items():
        before = server.resident_bytes()
        fill(server, b"m", events)
        time.sleep(SETTLED_S)
        taken[name] = (server.resident_bytes() - before) / len(events)
        with Link(server) as link:
            if name == "tidelog":
                facts = link.call(b"TINFO", b"m")
                disk_bytes = facts[facts.index(b"disk-bytes") + 1]
            link.call(b"DEL", b"m")
    figures = {name: round(each) for name, each in taken.items()}
    ratio = round(taken["tidelog"] / taken["redis"], 2)
    disk = round(disk_bytes / len(events), 1)
    return {"benchmark": "memory", "size": size, "unit": "B/event", **figures, "ratio": ratio, "tidelog_disk": disk}


SETTLED_S = 3.0
"""After the last write: a few seconds, in which nodes go to disk here and memory is given back."""


def main(arguments: list[str] | None = None) -> None:
    known = ["append", "batch", "read", "flight", "group", "wake", "share", "memory"]
    parser = argparse.ArgumentParser(description="Streams beside Redis streams.")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", default=",".join(known))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    sizes = [int(each) for each in options.sizes.split(",")]
    write_rows(run(options.events, sizes, options.rounds, options.tests.split(",")), options.json, LINE)


if __name__ == "__main__":
    main()
