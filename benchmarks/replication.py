"""Replication beside Redis: what followers cost, how late they are, how they join, and how fast one takes over.

    python -m benchmarks.replication [--case NAME ...] [--requests N] [--keys N] [--rounds N] [--rate N]
                                     [--lag-seconds N] [--sync-mb N] [--memory-mb N] [--level-seconds N]
                                     [--slow-seconds N] [--patience-seconds N] [--failovers N] [--down-ms N]
                                     [--folder DIR] [--json]

    case       what                                                        goal for Tidelog
    writes     a leader with one follower beside one with none             0.85 of the writes a second
    lag        a steady 20,000 writes a second                             p99 of the lag less than 10 ms
    sync       an empty follower joins                                     0.7 of Redis's MB/s
    memory     leader's memory during a full sync under full load          less than 32 MiB beyond a snapshot's
    slow       a follower whose link passes a tenth of what it needs       no full sync; the leader does not grow
    failover   the leader is killed under Sentinels                        as fast as Redis

Each row has a figure of Tidelog, one of Redis in the same run, and the first divided by the second: more is better for
speeds, less for everything else. Both append to a log and fsync it every second. Load, leader and follower share the
machine's cores, for both alike. How each case measures is described in its own module: `replication_writes`,
`replication_lag`, `replication_sync` (also memory), `slow_follower` and `failover`. The folder must have space for some
times `--memory-mb` and for the log of the load.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.failover import run_failover
from benchmarks.loads import COMPARED_LINE
from benchmarks.replication_lag import run_lag
from benchmarks.replication_sync import run_memory, run_sync
from benchmarks.replication_writes import run_writes
from benchmarks.servers import write_rows
from benchmarks.slow_follower import run_slow

Case = Callable[[argparse.Namespace], Iterator[dict[str, object]]]
CASES: Final[dict[str, Case]] = {
    "writes": lambda given: run_writes(given.requests, given.keys, given.rounds),
    "lag": lambda given: run_lag(given.rate, given.keys, given.lag_seconds, given.rounds),
    "sync": lambda given: run_sync(given.sync_mb, given.rounds, given.folder),
    "memory": lambda given: run_memory(given.memory_mb, given.level_seconds, given.patience_seconds, given.folder),
    "slow": lambda given: run_slow(
        given.rate, given.keys, given.level_seconds, given.slow_seconds, given.patience_seconds, given.folder
    ),
    "failover": lambda given: run_failover(given.failovers, given.down_ms, given.folder),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Replication beside Redis.")
    parser.add_argument("--case", action="append", choices=CASES, help="only these (default: all)")
    parser.add_argument("--requests", type=int, default=400_000, help="of a load in `writes`; a quarter one at a time")
    parser.add_argument("--keys", type=int, default=100_000, help="that `writes`, `lag` and `slow` overwrite")
    parser.add_argument("--rounds", type=int, default=3, help="of `writes`, `lag` and `sync`")
    parser.add_argument("--rate", type=int, default=20_000, help="writes a second in `lag` and `slow`")
    parser.add_argument("--lag-seconds", type=float, default=10.0, help="of each round, twice: for lag and for WAIT")
    parser.add_argument("--sync-mb", type=int, default=1000)
    parser.add_argument("--memory-mb", type=int, default=2000)
    parser.add_argument("--level-seconds", type=float, default=20.0, help="load before `memory` and `slow` measure")
    parser.add_argument("--slow-seconds", type=float, default=120.0)
    parser.add_argument("--patience-seconds", type=float, default=300.0, help="how long `memory` and `slow` may take")
    parser.add_argument("--failovers", type=int, default=5)
    parser.add_argument("--down-ms", type=int, default=1000, help="after so long Sentinels take a server for dead")
    parser.add_argument("--folder", help="where the servers write (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    given = parser.parse_args(arguments)
    for name in given.case or CASES:
        write_rows(CASES[name](given), given.json, COMPARED_LINE)


if __name__ == "__main__":
    main()
