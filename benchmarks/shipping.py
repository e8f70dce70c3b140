"""Shipping: what a copy in an object store costs a server, how late it is, and how fast it is had back.

    python -m benchmarks.shipping [--case NAME ...] [--place NAME ...] [--requests N] [--rounds N] [--rate N]
                                  [--seconds N] [--restore-mb N] [--folder DIR] [--json]

    case         what                                                          goal
    throughput   writes a second of a server that ships, by one that does not  0.95
    lag          from a write to the manifest that has it                      p99 of two seconds
    restore      an empty directory from a copy of `--restore-mb`              -
    costs        requests and bytes a day, from `--seconds` at each rate       -

Places are a folder, and moto's S3 in a process of its own. It is a server in Python on the same cores, so its part of
the processor is told: what it takes, the server that ships does not get. A ts is the wall clock of its transaction,
and a manifest names the last one that it has: so the lag of every write is known without marking any.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.followers import fill, read_info, temporary_folder, wait_for
from benchmarks.loads import percentile, stock_load
from benchmarks.paced_writer import PacedWriter
from benchmarks.peers import stop_peer
from benchmarks.processes import processor_s
from benchmarks.servers import Server, running, write_rows
from tidelog.shipping.fetch import fetch_directory
from tidelog.shipping.manifest_log import ManifestLog, only_database
from tidelog.shipping.moments import lineage_at
from tidelog.system.disk import SystemDisk
from tidelog.system.object_store import open_object_store
from tidelog.system.ship_store import fetch_all

LINE: Final = "{benchmark:<11} {place:<7} {what:<52} {figure:>12} {unit:<10} {note}"
VALUE: Final = "x" * 64
CLIENTS: Final = 20
KEYS: Final = 100_000
LOADS: Final = (("SET", 1), ("SET", 16), ("SET", 128), ("TWRITE", 16))
RATES: Final = (0, 10, 1000)
"""Writes a second whose costs are told."""
DAY_S: Final = 86_400
PATIENCE_S: Final = 300.0
POLL_S: Final = 0.005
Row = dict[str, object]


class Place(NamedTuple):
    """Where a copy is kept."""

    name: str
    url: str
    pid: int
    """Of its server; 0: it has none."""
    log: Path | None
    """Where its server writes one line a request."""


@contextmanager
def open_place(name: str, folder: str) -> Iterator[Place]:
    if name == "folder":
        yield Place(name, f"{folder}/copy", 0, None)
        return
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".log") as log:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            path = Path(log.name)
            if not wait_for(lambda: "Running on http" in path.read_text(), PATIENCE_S):
                raise SystemExit(f"moto's server did not start: {path.read_text()}")
            found = re.search(r"http://127\.0\.0\.1:\d+", path.read_text())
            assert found is not None
            # For this process and for the servers that it starts.
            os.environ.update(
                AWS_ACCESS_KEY_ID="testing",
                AWS_SECRET_ACCESS_KEY="testing-secret",  # moto takes any
                AWS_REGION="us-east-1",
                AWS_ALLOW_HTTP="true",
                AWS_ENDPOINT_URL=found[0],
            )
            urllib.request.urlopen(urllib.request.Request(f"{found[0]}/bucket", method="PUT")).close()
            yield Place(name, "s3://bucket/copy", process.pid, path)
        finally:
            stop_peer(process)


def row(benchmark: str, place: str, what: str, figure: float, unit: str = "", note: str = "") -> Row:
    shown = round(figure) if abs(figure) >= 1000 else round(figure, 3)
    return {"benchmark": benchmark, "place": place, "what": what, "figure": shown, "unit": unit, "note": note}


def ships_all(server: Server) -> bool:
    shipped_ts = int(read_info(server, b"shipping")["shipping_shipped_ts"])
    return shipped_ts >= int(read_info(server, b"tidelog")["last_ts"])


def wait_until_shipped(server: Server) -> None:
    if not wait_for(lambda: ships_all(server), PATIENCE_S):
        raise SystemExit(f"the copy does not catch up: {read_info(server, b'shipping')}")


# --- throughput ---------------------------------------------------------------------------------------------------


def run_throughput(place: Place, given: argparse.Namespace, folder: str) -> Iterator[Row]:
    with (
        running("tidelog", f"{folder}/alone") as alone,
        running("tidelog", f"{folder}/ships", options=("--ship-to", f"{place.url}/throughput")) as ships,
    ):
        for command, pipeline in LOADS:
            words = ["SET", "key:__rand_int__", VALUE] if command == "SET" else ["TWRITE", "stream", "event", VALUE]
            requests = given.requests // (4 if pipeline == 1 else 1)
            rates: dict[int, list[float]] = {alone.pid: [], ships.pid: []}
            costs_us: dict[int, list[float]] = {alone.pid: [], ships.pid: []}
            store_s, began_s = processor_s(place.pid) if place.pid else 0.0, time.monotonic()
            for number in range(given.rounds):
                for server in (alone, ships) if number % 2 else (ships, alone):
                    before_s = processor_s(server.pid)
                    rates[server.pid].append(stock_load(server.port, words, requests, CLIENTS, pipeline, KEYS))
                    if server is ships:
                        wait_until_shipped(ships)
                    costs_us[server.pid].append(1e6 * (processor_s(server.pid) - before_s) / requests)
            elapsed_s = time.monotonic() - began_s
            note = f"of one core, the store: {(processor_s(place.pid) - store_s) / elapsed_s:.2f}" if place.pid else ""
            what, name = f"{command}, pipeline {pipeline}", place.name
            best = max(rates[alone.pid]), max(rates[ships.pid])
            yield row("throughput", name, f"{what}, without", best[0], "/s")
            yield row("throughput", name, f"{what}, with", best[1], "/s", note)
            yield row("throughput", name, f"{what}, part that is left", best[1] / best[0], "", "goal: at least 0.95")
            spent = min(costs_us[alone.pid]), min(costs_us[ships.pid])
            if spent[0]:  # it is counted in hundredths of a second, and a short load may have taken none
                yield row("throughput", name, f"{what}, processor time, times as much", spent[1] / spent[0])


# --- lag ----------------------------------------------------------------------------------------------------------


class ManifestWatch:
    """Notes when each manifest came, on a thread of its own."""

    def __init__(self, url: str) -> None:
        objects = open_object_store(url)
        database_id = only_database(objects, url, None)
        assert database_id is not None
        self._log = ManifestLog(objects, database_id)
        newest = self._log.newest()
        assert newest is not None
        self._next = newest.number + 1
        self.seen: list[tuple[int, int]] = []
        """The last transaction of each, and when it was seen, in microseconds of the wall clock."""
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            manifest = self._log.get(self._next)
            if manifest is None:
                time.sleep(POLL_S)
            else:
                self.seen.append((manifest.lineages[-1].ts, time.time_ns() // 1000))
                self._next += 1

    def finish(self) -> list[tuple[int, int]]:
        self._is_over = True
        self._thread.join()
        return self.seen


def lags_s(seen: list[tuple[int, int]]) -> list[float]:
    """Of a write every ten milliseconds: until the first manifest that has it was seen; in order of their length."""
    found: list[float] = []
    for (before_ts, _), (ts, at_us) in pairwise(seen):
        found += [(at_us - written_us) / 1e6 for written_us in range(before_ts + 1, ts + 1, 10_000)]
    return sorted(found)


def run_lag(place: Place, given: argparse.Namespace, folder: str) -> Iterator[Row]:
    url = f"{place.url}/lag"
    with running("tidelog", f"{folder}/lag", options=("--ship-to", url)) as server:
        fill(server, 10, 64)
        wait_until_shipped(server)
        with PacedWriter(server, given.rate, KEYS, 64) as writer:
            watch = ManifestWatch(url)
            time.sleep(given.seconds)
            seen = watch.finish()
            written = writer.finish()
    lags = lags_s(seen)
    what = f"{written.per_s:.0f} writes/s"
    for part in (0.5, 0.99):
        yield row("lag", place.name, f"{what}, p{100 * part:.0f}", percentile(lags, part), "s")
    yield row("lag", place.name, f"{what}, longest", lags[-1], "s", f"{len(seen)} manifests")


# --- restore ------------------------------------------------------------------------------------------------------


def run_restore(place: Place, given: argparse.Namespace, folder: str) -> Iterator[Row]:
    url, disk = f"{place.url}/restore", SystemDisk()
    with running("tidelog", f"{folder}/full", options=("--ship-to", url)) as server:
        fill(server, given.restore_mb * 1000, 1000)
        wait_until_shipped(server)
    objects = open_object_store(url)
    database_id = only_database(objects, url, None)
    assert database_id is not None
    manifest = ManifestLog(objects, database_id).newest()
    assert manifest is not None
    lineage, _ = lineage_at(manifest, None)
    began_s = time.monotonic()
    size = fetch_directory(disk, f"{folder}/fetched", objects, manifest, lineage, fetch_all)
    seconds = time.monotonic() - began_s
    what = f"{size / 1e6:.0f} MB"
    yield row("restore", place.name, f"{what}, fetched and proved", seconds, "s")
    yield row("restore", place.name, f"{what}, a second", size / 1e6 / seconds, "MB/s")
    began_s = time.monotonic()
    with running("tidelog", f"{folder}/new", options=("--restore-from", url, "--restore-wait", "0")):
        yield row("restore", place.name, f"{what}, until a server answers", time.monotonic() - began_s, "s")


# --- costs --------------------------------------------------------------------------------------------------------


def kind_of(name: str) -> str:
    """Of an object, by its name below the store."""
    parts = name.split("/")
    below = parts[1] if len(parts) > 1 else name
    if below.startswith(("manifest-", "base", "going")):
        return below.partition("-")[0].partition(".")[0] + "s"
    return "pieces" if parts[-1].startswith("piece-") else "other objects"


def objects_of(url: str) -> dict[str, int]:
    """Names and sizes."""
    objects = open_object_store(url)
    found: dict[str, int] = {}
    while page := objects.list("", max(found, default="")):
        found.update(page)
    return found


def requests_of(place: Place) -> Counter[str]:
    if place.log is None:
        return Counter()
    requests = re.findall(r'"(PUT|GET|HEAD|DELETE|POST) (\S+)', place.log.read_text())
    return Counter("LIST" if "list-type=" in path else method for method, path in requests)


def run_costs(place: Place, given: argparse.Namespace, folder: str) -> Iterator[Row]:
    for rate in RATES:
        url = f"{place.url}/costs-{rate}"
        with running("tidelog", f"{folder}/costs-{rate}", options=("--ship-to", url)) as server, ExitStack() as stack:
            fill(server, 10, 64)
            wait_until_shipped(server)
            writer = stack.enter_context(PacedWriter(server, rate, KEYS, 64)) if rate else None
            before, requests, began_s = objects_of(url), requests_of(place), time.monotonic()
            time.sleep(given.seconds)
            asked, days = requests_of(place) - requests, DAY_S / (time.monotonic() - began_s)
            after = objects_of(url)
            if writer is not None:
                writer.finish()
        what = f"{rate} writes/s" if rate else "idle"
        made = {name: size for name, size in after.items() if name not in before}
        counts = Counter(map(kind_of, made))
        for kind, count in sorted(counts.items()):
            size = sum(size for name, size in made.items() if kind_of(name) == kind)
            yield row(
                "costs", place.name, f"{what}, {kind} put", count * days, "/day", f"{size * days / 1e6:.1f} MB/day"
            )
        yield row("costs", place.name, f"{what}, all that is put", sum(counts.values()) * days, "/day")
        yield row("costs", place.name, f"{what}, bytes put", sum(made.values()) * days / 1e6, "MB/day")
        for method in ("GET", "LIST", "DELETE"):
            if place.log is not None:
                yield row("costs", place.name, f"{what}, {method}", asked[method] * days, "/day")


Case = Callable[[Place, argparse.Namespace, str], Iterator[Row]]
CASES: Final[dict[str, Case]] = {
    "throughput": run_throughput,
    "lag": run_lag,
    "restore": run_restore,
    "costs": run_costs,
}
PLACES: Final = ("folder", "s3")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What a copy in an object store costs.")
    parser.add_argument("--case", action="append", choices=CASES, help="only these (default: all)")
    parser.add_argument("--place", action="append", choices=PLACES, help="only these (default: both)")
    parser.add_argument("--requests", type=int, default=400_000, help="of a load; a quarter one at a time")
    parser.add_argument("--rounds", type=int, default=3, help="of `throughput`")
    parser.add_argument("--rate", type=int, default=1000, help="writes a second in `lag`")
    parser.add_argument("--seconds", type=float, default=60.0, help="of `lag`, and of each rate in `costs`")
    parser.add_argument("--restore-mb", type=int, default=1000)
    parser.add_argument("--folder", help="where everything lies (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    given = parser.parse_args(arguments)
    for case in given.case or CASES:
        for name in given.place or PLACES:
            with ExitStack() as stack:
                folder = temporary_folder(stack, given.folder)
                place = stack.enter_context(open_place(name, folder))
                write_rows(CASES[case](place, given, folder), given.json, LINE)


if __name__ == "__main__":
    main()
