"""A server whose streams cool at full speed is killed with SIGKILL, and keeps every entry that it has promised.

Nodes have a few entries, and files a few nodes (`limited_server`), so that everything is cold within a moment, and
snapshots, sparse files and files that nobody needs come by the dozen. Each stream has one writer, which sends its
operations in order: after a kill a stream is as it was after one of them, and none that was answered is missing. While
they write, writers read old entries too, and know what they must be.

`--kills N` says how often (a third of that many). With `--long`, the same kills find servers with planted bugs out.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import redis

from tests.integration.ledger import Violation, require
from tests.integration.limited_server import COMMAND
from tests.integration.server_process import SOURCES, ServerProcess
from tests.simulation.cooling_mutants import COOLING_MUTANTS
from tests.simulation.mutants import SOURCE, apply

LIMITS: Final = {
    "NODE_ENTRIES_MAX": 8,
    "NODE_FILE_BYTES_MAX": 30_000,
    "HOT_NODES_KEPT": 1,
    "COOLED_AT_ONCE_BYTES": 8_000,
    "COLD_AFTER_S": 1,
    "IDLE_SEAL_ENTRIES_MIN": 3,
    "OPENED_NODES_BYTES_MAX": 20_000,
}
WRITERS: Final = 3
STREAMS_EACH: Final = 3
ENTRIES_KEPT: Final = 400
"""A stream that has more is cut, so that reading all of it takes no time."""
LOAD_S_MAX: Final = 1.5
LOAD_ANSWERS_MIN: Final = 150
LOAD_S_LONGEST: Final = 30.0
FAULTS: Final = {
    "result-given-to-other-nodes": "instead of|and should have one of|different backwards| is \\{",
    "listed-file-removed": "this file of nodes is missing",
    "part-noted-as-whole": "it is another node than the one referred to",
}
"""Planted bugs, and how they show: the first while the server lives, the others only after a kill."""
FAULTY_KILLS_MAX: Final = 30
Operation = tuple[str, int]
"""`append`, `trim` or `delete` with the number of an entry, or `drop`."""


def entry_of(key: bytes, number: int) -> bytes:
    """Long enough for a node to be worth it, and different for every entry."""
    return b"%b %d " % (key, number) * (5 + number % 7)


class StreamLedger:
    """What one stream should be."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.numbers: list[int] = []
        """Of the entries that are there, after what was answered."""
        self.next = 1
        self.sent: list[Operation] = []
        """And not answered."""

    def draw(self, rng: Random) -> list[Operation]:
        """Operations that are sent together."""
        kind = rng.random()
        if len(self.numbers) > ENTRIES_KEPT or (kind < 0.08 and self.numbers):
            return [("trim", rng.choice(self.numbers))]
        if kind < 0.2 and self.numbers:
            return [("delete", number) for number in rng.sample(self.numbers, min(3, len(self.numbers)))]
        if kind < 0.22:
            return [("drop", 0)]
        return [("append", self.next + at) for at in range(rng.randint(1, 30))]

    def command(self, operation: Operation) -> list[bytes]:
        name, number = operation
        if name == "append":
            return [b"XADD", self.key, b"1-%d" % number, b"tag", b"t", b"entry", entry_of(self.key, number)]
        if name == "trim":
            return [b"XTRIM", self.key, b"MINID", b"1-%d" % number]
        return [b"XDEL", self.key, b"1-%d" % number] if name == "delete" else [b"DEL", self.key]

    def apply(self, operation: Operation) -> None:
        name, number = operation
        if name == "append":
            self.numbers.append(number)
            self.next = number + 1
        elif name == "trim":
            self.numbers = [each for each in self.numbers if each >= number]
        elif name == "delete":
            self.numbers = [each for each in self.numbers if each != number]
        else:
            self.numbers, self.next = [], 1

    def answer(self) -> None:
        self.apply(self.sent.pop(0))

    def settle(self, found: list[int]) -> None:
        """After a kill: some of what was sent has happened, in order."""
        after = [list(self.numbers)]
        while found != self.numbers and self.sent:
            self.answer()
            after.append(list(self.numbers))
        require(found == self.numbers, self.key, "has", _short(found), "and should have one of", [*map(_short, after)])
        self.sent.clear()


def _short(numbers: list[int]) -> str:
    return f"{len(numbers)} from {numbers[:1]} to {numbers[-1:]}"


class Writer(threading.Thread):
    """The load of one connection, on streams of its own."""

    def __init__(self, server: ServerProcess, ledgers: list[StreamLedger], rng: Random) -> None:
        super().__init__()
        self._client = server.client()
        self._ledgers = ledgers
        self._rng = rng
        self.answered = self.read = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                self._exchange(self._rng.choice(self._ledgers))
        except redis.ConnectionError:
            pass  # the server is gone
        except BaseException as problem:
            self.problem = problem

    def _exchange(self, ledger: StreamLedger) -> None:
        if self._rng.random() < 0.02:
            self._save()
        if self._rng.random() < 0.3 and ledger.numbers:
            self._read(ledger)
            return
        ledger.sent += ledger.draw(self._rng)
        pipeline: Any = self._client.pipeline(transaction=False)
        for operation in ledger.sent:
            pipeline.execute_command(*ledger.command(operation))
        for _ in pipeline.execute():
            ledger.answer()
            self.answered += 1

    def _save(self) -> None:
        with contextlib.suppress(redis.ResponseError):  # one is under way
            self._client.bgsave()

    def _read(self, ledger: StreamLedger) -> None:
        """Old entries as well as new ones."""
        first, count = self._rng.choice(ledger.numbers), self._rng.randint(1, 60)
        expected = [number for number in ledger.numbers if number >= first][:count]
        found = read_stream(self._client, ledger.key, first, count)
        require(found == expected, ledger.key, "from", first, "on has", found, "instead of", expected)
        self.read += 1


def read_stream(client: Any, key: bytes, first: int, count: int) -> list[int]:
    """The numbers of its entries, which must be what was written."""
    found = []
    for entry_id, fields in client.xrange(key, f"1-{first}", "+", count):
        number = int(entry_id.partition(b"-")[2])
        require(fields == {b"tag": b"t", b"entry": entry_of(key, number)}, key, number, "is", fields)
        found.append(number)
    return found


def read_back(client: Any, key: bytes) -> list[int]:
    return [int(entry_id.partition(b"-")[2]) for entry_id, _ in client.xrevrange(key)][::-1]


def check_all(server: ServerProcess, ledgers: list[StreamLedger]) -> None:
    with server.client() as client:
        for ledger in ledgers:
            found = read_stream(client, ledger.key, 0, 10**6)
            ledger.settle(found)
            require(client.xlen(ledger.key) == len(found), ledger.key, "counts its entries wrongly")
            require(read_back(client, ledger.key) == found, ledger.key, "is different backwards")
            ledger.next = _next_of(client, ledger)


def _next_of(client: Any, ledger: StreamLedger) -> int:
    """Behind the newest entry that ever was, whether or not it is there."""
    if not client.exists(ledger.key):
        return 1
    last = client.xinfo_stream(ledger.key)["last-generated-id"]
    return int(last.partition(b"-")[2]) + 1


def load(server: ServerProcess, ledgers: list[StreamLedger], rng: Random) -> list[Writer]:
    """Write until the server is killed."""
    writers = [Writer(server, ledgers[at::WRITERS], Random(rng.getrandbits(60))) for at in range(WRITERS)]
    for writer in writers:
        writer.start()
    begun = time.monotonic()
    time.sleep(rng.uniform(0, LOAD_S_MAX))
    while sum(writer.answered for writer in writers) < LOAD_ANSWERS_MIN and time.monotonic() < begun + LOAD_S_LONGEST:
        time.sleep(0.01)
    server.kill()
    for writer in writers:
        writer.join(60)
        require(not writer.is_alive(), "a writer hangs")
        if writer.problem is not None:
            raise writer.problem
    return writers


def run_kills(data: Path, kills: int, rng: Random, sources: str = SOURCES) -> tuple[int, int]:
    """How much was read under load, and how many node files there were at most. `Violation`: a promise is broken."""
    ledgers = [StreamLedger(b"stream:%d" % at) for at in range(WRITERS * STREAMS_EACH)]
    command = [*COMMAND, json.dumps(LIMITS), "serve"]
    arguments = ["--shards", "2", "--fsync", "everysec", "--snapshot-after", "100kb"]
    reads = most_files = 0
    for _ in range(kills):
        server = ServerProcess(data, *arguments, command=command, PYTHONPATH=sources)
        try:
            check_all(server, ledgers)
            reads += sum(writer.read for writer in load(server, ledgers, rng))
        finally:
            server.close()
        most_files = max(most_files, len([*data.glob("shard-*/nodes-*.bin")]))
    with ServerProcess(data, *arguments, command=command, PYTHONPATH=sources) as server:
        check_all(server, ledgers)
    return reads, most_files


@pytest.mark.timeout(3600)
def test_no_entry_is_lost_and_old_ones_are_read(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    kills, seed = max(pytestconfig.getoption("--kills") // 3, 2), pytestconfig.getoption("--seed") or 1
    try:
        reads, most_files = run_kills(tmp_path / "data", kills, Random(seed))
    except Violation as problem:
        pytest.fail(f"seed {seed}: {problem}")
    assert most_files, "nothing became cold"
    assert reads, "nothing was read under load"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_server_is_caught(name: str, tmp_path: Path) -> None:
    """By what it answers, or because it does not start again."""
    (mutant,) = [each for each in COOLING_MUTANTS if each.name == name]
    shutil.copytree(SOURCE / "tidelog", tmp_path / "tidelog", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    apply(mutant, tmp_path)
    with pytest.raises((Violation, redis.ResponseError, RuntimeError), match=FAULTS[name]):
        run_kills(tmp_path / "data", FAULTY_KILLS_MAX, Random(1), str(tmp_path))
