"""How long others wait while some clients want too much, beside Redis.

    python -m benchmarks.overload [--seconds N] [--connections N N] [--value-mb N] [--sets N] [--half-open N]
                                  [--readers N] [--case NAME ...] [--json]

Goal: others wait less than 100 ms for anything but their own command.

One process, the *prober*, sends PING, GET and SET in turn, each when the last was answered, while another does one of
these for some seconds:

    idle            nothing
    pipeline        20 and 100 connections send `GET a` back to back and never read
    strangers       the same, before AUTH; connections that are cut come again
    large value     a SET of 256 MB, then a GET of it
    long EXEC       EXEC of 100,000 SETs, which were queued before
    half-open       1,100 requests over HTTP of which the rest never comes; Redis, which has no HTTP, gets as many
                    commands of which the rest never comes. The prober asks for /health too, if there is one
    stalled         100 clients ask for a value of 8 MB and read nothing of it

Server, prober and attacker share the machine's cores, for both servers alike: what counts is the ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import selectors
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from benchmarks.servers import NAMES, Server, encode, running, write_rows

MIB: Final = 1024 * 1024
PASSWORD: Final = "benchmark"
PROBE_PAUSE_S: Final = 0.0005
PROBE_S_MAX: Final = 120.0
"""A prober that waits longer gives up."""
HEALTH_S_MAX: Final = 5.0
SETTLE_S: Final = 0.3
FLOOD: Final = encode(b"GET", b"a") * 500
STALLED_VALUE_BYTES: Final = 8 * MIB
LINE: Final = (
    "{case:<22} {what:<8} {server:<8} p50 {p50_ms:>8.2f} ms  p99 {p99_ms:>9.2f} ms  max {max_ms:>9.2f} ms  "
    "{ratio:>22}  {note}"
)


@dataclass(frozen=True)
class Sizes:
    """How much the attackers want."""

    seconds: float
    connections: tuple[int, ...]
    value_bytes: int
    sets: int
    half_open: int
    readers: int


Attack = Callable[[Server, Sizes], str]
"""Does its worst, and returns a note on it."""


# --- the prober -------------------------------------------------------------------------------------------------


def probe(port: int, http_port: int, password: str, pipe: Connection) -> None:
    """Measure until told to stop; sends back the latencies by command. A process of its own."""
    client = socket.create_connection(("127.0.0.1", port), PROBE_S_MAX)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if password:
        _ask(client, encode(b"AUTH", password.encode()))
    _ask(client, encode(b"SET", b"a", b"value"))
    commands = {"PING": encode(b"PING"), "GET": encode(b"GET", b"a"), "SET": encode(b"SET", b"a", b"value")}
    found: dict[str, list[float]] = {name: [] for name in commands}
    refused = 0
    pipe.send(None)
    while not pipe.poll():
        for name, command in commands.items():
            found[name].append(_ask(client, command))
        if http_port:
            latency_s = _ask_health(http_port)
            if latency_s is None:
                refused += 1
            else:
                found.setdefault("/health", []).append(latency_s)
        time.sleep(PROBE_PAUSE_S)
    pipe.send((found, refused))


def _ask(client: socket.socket, command: bytes) -> float:
    """How long the answer took; each fits one packet."""
    began_s = time.perf_counter()
    client.sendall(command)
    if client.recv(4096)[:1] not in (b"+", b"$"):
        raise SystemExit("a command of the prober was refused")
    return time.perf_counter() - began_s


def _ask_health(port: int) -> float | None:
    """The same of /health; None: it was refused."""
    began_s = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), HEALTH_S_MAX) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            if not client.recv(4096).startswith(b"HTTP/1.1 200"):
                return None
    except OSError:
        return None
    return time.perf_counter() - began_s


def probed(server: Server, sizes: Sizes, case: Case) -> tuple[dict[str, list[float]], str]:
    """The latencies of a prober while an attack goes on."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    http_port = server.http_port if case.asks_health else 0
    prober = spawn.Process(target=probe, args=(server.port, http_port, case.password, theirs), daemon=True)
    prober.start()
    theirs.close()
    try:
        ours.recv()
        time.sleep(SETTLE_S)
        note = case.attack(server, sizes)
        ours.send(None)
        found, refused = ours.recv()
    except (EOFError, BrokenPipeError):
        raise SystemExit(f"{server.name}: the prober was given no answer") from None
    finally:
        prober.join(5)
        if prober.is_alive():
            prober.kill()
    return found, f"{note}, /health was refused {refused} times" if refused else note


# --- the attacks ------------------------------------------------------------------------------------------------


def idle(_server: Server, sizes: Sizes) -> str:
    time.sleep(sizes.seconds)
    return ""


def flood(count: int) -> Attack:
    """Connections that send back to back and never read; one that is cut comes again."""

    def attack(server: Server, sizes: Sizes) -> str:
        selector = selectors.DefaultSelector()
        cuts = 0

        def begin() -> None:
            client = server.connect()
            client.setblocking(False)
            selector.register(client, selectors.EVENT_WRITE)

        for _ in range(count):
            begin()
        deadline = time.monotonic() + sizes.seconds
        while time.monotonic() < deadline:
            for ready, _ in selector.select(0.05):
                client = ready.fileobj
                assert isinstance(client, socket.socket)
                try:
                    client.send(FLOOD)
                except BlockingIOError:
                    pass
                except OSError:
                    selector.unregister(client)
                    client.close()
                    cuts += 1
                    begin()
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        return f"{cuts} cut" if cuts else ""

    return attack


def large_value(server: Server, sizes: Sizes) -> str:
    value = bytes(range(256)) * (sizes.value_bytes // 256)
    with server.connect() as client, client.makefile("rb", MIB) as replies:
        began_s = time.perf_counter()
        client.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % len(value))
        client.sendall(value)
        client.sendall(b"\r\n")
        _expect(replies.readline(), b"+OK")
        set_s = time.perf_counter() - began_s
        client.sendall(encode(b"GET", b"large"))
        _expect(replies.readline(), b"$%d" % len(value))
        left = len(value) + 2
        while left:
            left -= len(replies.read(min(left, MIB)))
    server.ask(b"DEL", b"large")
    time.sleep(sizes.seconds)
    return f"the SET took {set_s:.2f} s"


def long_exec(server: Server, sizes: Sizes) -> str:
    with server.connect() as client, client.makefile("rb", MIB) as replies:
        client.sendall(encode(b"MULTI"))
        _expect(replies.readline(), b"+OK")
        for start in range(0, sizes.sets, 1000):
            numbers = range(start, min(start + 1000, sizes.sets))
            client.sendall(b"".join(encode(b"SET", b"key:%d" % number, b"value:%d" % number) for number in numbers))
            for _ in numbers:
                _expect(replies.readline(), b"+QUEUED")
        began_s = time.perf_counter()
        client.sendall(encode(b"EXEC"))
        for _ in range(sizes.sets + 1):
            replies.readline()
        exec_s = time.perf_counter() - began_s
    time.sleep(sizes.seconds)
    return f"EXEC took {exec_s:.2f} s"


def half_open(server: Server, sizes: Sizes) -> str:
    port, begun = server.port, b"*2\r\n$3\r\nGET\r\n$1\r\n"
    if server.http_port:
        port, begun = server.http_port, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Not-Over: "
    clients = []
    for _ in range(sizes.half_open):
        with contextlib.suppress(OSError):
            clients.append(socket.create_connection(("127.0.0.1", port), 5))
            clients[-1].sendall(begun)
    time.sleep(sizes.seconds)
    for client in clients:
        client.close()
    return f"{len(clients)} {'requests' if server.http_port else 'commands'}"


def stalled_readers(server: Server, sizes: Sizes) -> str:
    server.ask(b"SET", b"stalled", bytes(STALLED_VALUE_BYTES))
    clients = [server.connect() for _ in range(sizes.readers)]
    before = server.resident_bytes()
    for client in clients:
        client.sendall(encode(b"GET", b"stalled"))
    time.sleep(sizes.seconds)
    grown = server.resident_bytes() - before
    for client in clients:
        client.close()
    return f"memory grew by {grown / MIB:.0f} MB"


def _expect(line: bytes, wanted: bytes) -> None:
    if not line.startswith(wanted):
        raise SystemExit(f"{line!r} instead of {wanted!r}")


# --- the cases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One row of the table, or a few."""

    name: str
    attack: Attack
    password: str = ""
    asks_health: bool = False


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case("idle", idle),
        *(Case(f"pipeline {count}", flood(count)) for count in sizes.connections),
        *(Case(f"strangers {count}", flood(count), PASSWORD) for count in sizes.connections),
        Case(f"large value {sizes.value_bytes // MIB} MB", large_value),
        Case(f"long EXEC {sizes.sets}", long_exec),
        Case(f"half-open {sizes.half_open}", half_open, asks_health=True),
        Case(f"stalled {sizes.readers}", stalled_readers),
    ]


class Servers:
    """Both servers, with and without a password, started when they are first wanted."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._running: dict[tuple[str, str], Server] = {}

    def get(self, name: str, password: str) -> Server:
        if (name, password) not in self._running:
            folder = tempfile.mkdtemp(prefix="tidelog-bench-")
            self._stack.callback(shutil.rmtree, folder)
            started = running(name, folder, has_http=True, password=password)
            self._running[name, password] = self._stack.enter_context(started)
        return self._running[name, password]


def run(sizes: Sizes, wanted: list[str]) -> Iterator[dict[str, object]]:
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        for case in cases(sizes):
            if not wanted or case.name.startswith(tuple(wanted)):
                found = {name: probed(servers.get(name, case.password), sizes, case) for name in NAMES}
                yield from _rows(case, found)


def _rows(case: Case, found: dict[str, tuple[dict[str, list[float]], str]]) -> Iterator[dict[str, object]]:
    for what in found[NAMES[0]][0]:
        figures = {name: _milliseconds(latencies.get(what, [])) for name, (latencies, _) in found.items()}
        for name in NAMES:
            if figures[name] is not None:
                yield _row(case.name, what, name, figures, found[name][1])


def _milliseconds(latencies: list[float]) -> tuple[float, float, float] | None:
    """Of a command: p50, p99 and max."""
    if not latencies:
        return None
    p50, p99, longest = np.percentile(latencies, [50, 99, 100]) * 1000
    return round(float(p50), 3), round(float(p99), 3), round(float(longest), 3)


def _row(
    case: str, what: str, name: str, figures: dict[str, tuple[float, float, float] | None], note: str
) -> dict[str, object]:
    ours, peers = figures[name], figures["redis"]
    assert ours is not None
    ratio = "-"
    if name != "redis" and peers is not None:
        ratio = "ratio " + "  ".join(f"{one / other:.1f}" for one, other in zip(ours, peers, strict=True))
    return {
        "benchmark": "overload",
        "case": case,
        "what": what,
        "server": name,
        "p50_ms": ours[0],
        "p99_ms": ours[1],
        "max_ms": ours[2],
        "ratio": ratio,
        "note": note,
    }


def allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How long others wait while some clients want too much.")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each case goes on, at least")
    parser.add_argument("--connections", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--value-mb", type=int, default=256)
    parser.add_argument("--sets", type=int, default=100_000)
    parser.add_argument("--half-open", type=int, default=1100)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--case", action="append", default=[], help="only cases whose names begin so")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    sizes = Sizes(
        options.seconds,
        tuple(options.connections),
        options.value_mb * MIB,
        options.sets,
        options.half_open,
        options.readers,
    )
    allow_descriptors(2 * options.half_open + 500)
    sys.setswitchinterval(0.0005)
    write_rows(run(sizes, options.case), options.json, LINE)


if __name__ == "__main__":
    main()
