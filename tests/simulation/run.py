"""Run any number of crash points outside pytest: `python -m tests.simulation.run --crash-points 500000`; or of lives of
servers that follow each other: `python -m tests.simulation.run --replication 100000`; or that ship themselves:
`--shipping 1000`.

Seeds are dealt out to the processes one after the other, so the same first seed and number of crash points try the
same crashes, however many processes there are. The first failure ends the run, with its seed and the line that
replays it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from typing import Final

from tests.simulation.replication_world import ReplicationWorld
from tests.simulation.shipping_world import ShippingWorld
from tests.simulation.world import World

TRACE_SHOWN: Final = 30
COLLECTIONS: Final = (50_000, 20, 1000)
"""Of garbage: after how many new objects."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without logs, and with few collections of garbage, which see nothing that is older than a world.

    As usual they would take a third of the time: they look at every slot of every store. What a world leaves is
    collected at its end.
    """
    collections, logs = gc.get_threshold(), logging.root.manager.disable
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logs)
        gc.set_threshold(*collections)
        gc.collect()
        gc.unfreeze()


def run_seed(seed: int) -> tuple[int, int, Counter[str], str]:
    """One world: its seed, crash points, coverage, and what went wrong."""
    world = World(seed)
    try:
        world.run()
    except Exception:  # whatever it is, it is to be reported with its seed
        steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
        return seed, world.crash_points, world.coverage, f"{traceback.format_exc()}\nthe last steps:\n  {steps}"
    return seed, world.crash_points, world.coverage, ""


def run_replication_seed(seed: int) -> tuple[int, int, Counter[str], str]:
    """The same of one life of several servers; it counts as one."""
    with undisturbed():
        world, problem = ReplicationWorld(seed), ""
        try:
            world.run()
        except Exception:  # whatever it is, it is to be reported with its seed
            steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
            problem = f"{traceback.format_exc()}\nthe last steps:\n  {steps}"
        coverage = world.coverage
        del world  # so that all of it is collected now
    return seed, 1, coverage, problem


def run_shipping_seed(seed: int) -> tuple[int, int, Counter[str], str]:
    """The same of one life of servers that ship themselves."""
    with undisturbed():
        world, problem = ShippingWorld(seed), ""
        try:
            world.run()
        except Exception:  # whatever it is, it is to be reported with its seed
            steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
            problem = f"{traceback.format_exc()}\nthe last steps:\n  {steps}"
        coverage = world.coverage
        del world  # so that all of it is collected now
    return seed, 1, coverage, problem


def replay_command(seed: int, file: str = "test_crashes.py") -> str:
    return f"bin/test tests/simulation/{file} --seed {seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crash-points", type=int, default=20_000)
    parser.add_argument("--replication", type=int, default=0, help="so many lives of servers instead")
    parser.add_argument("--shipping", type=int, default=0, help="so many lives of servers that ship themselves instead")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    arguments = parser.parse_args()
    begun = last_shown = time.monotonic()
    total = failures = 0
    coverage = Counter[str]()
    seeds = iter(range(arguments.first_seed, sys.maxsize))
    run, wanted, what, file = run_seed, arguments.crash_points, "crash points", "test_crashes.py"
    if arguments.replication:
        run, wanted, what, file = run_replication_seed, arguments.replication, "lives", "test_replication_worlds.py"
    if arguments.shipping:
        run, wanted, what, file = run_shipping_seed, arguments.shipping, "lives", "test_shipping_worlds.py"
    with Pool(arguments.processes) as pool:
        while total < wanted and (not failures or arguments.keep_going):
            batch = [next(seeds) for _ in range(8 * arguments.processes)]
            for seed, crash_points, covered, problem in pool.imap_unordered(run, batch):
                total += crash_points
                coverage += covered
                if problem:
                    failures += 1
                    command = replay_command(seed, file)
                    print(f"\nseed {seed} failed; to replay it:\n  {command}\n{problem}", flush=True)
            now = time.monotonic()
            if now - last_shown > 5:
                last_shown = now
                print(f"  {total} {what}, seed {batch[-1]}, {total / (now - begun):.0f}/s", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(coverage.items())))
    print(f"{total} {what}, {failures} failures, {total / (time.monotonic() - begun):.0f}/s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
