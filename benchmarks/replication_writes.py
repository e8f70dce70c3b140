"""What a follower costs its leader: writes a second and processor time a write, with one follower and with none.

There are two leaders of each kind, alike but for the follower that one of them has. They are loaded in turn, so that
what disturbs the machine disturbs both; of several rounds the best counts. A round is over when the follower has
everything, and the next begins then.

The processor time is that of the leader's process, from the first write until its follower has the last. It does not
depend on how many cores there are. Writes a second do: the load, the leader and the follower share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.followers import Pair, fill, running_pair, temporary_folder
from benchmarks.loads import compared, stock_load
from benchmarks.processes import processor_s
from benchmarks.servers import NAMES, Server, running

CLIENTS: Final = 20
VALUE: Final = "x" * 64
LOADS: Final = (("SET", 1), ("SET", 16), ("SET", 128), ("TWRITE/XADD", 16))
PART_GOAL: Final = 0.85


class Cost(NamedTuple):
    """Of a load on a leader."""

    writes_per_s: float
    processor_us: float
    """Of the leader, a write."""
    behind_ms: float
    """That the follower needed after the load until it had everything."""

    def best(self, other: Cost) -> Cost:
        return Cost(
            max(self.writes_per_s, other.writes_per_s),
            min(self.processor_us, other.processor_us),
            min(self.behind_ms, other.behind_ms),
        )


def words_of(name: str, test: str) -> list[str]:
    if test == "SET":
        return ["SET", "key:__rand_int__", VALUE]
    return ["TWRITE", "stream", "event", VALUE] if name == "tidelog" else ["XADD", "stream", "*", "event", VALUE]


def measure(leader: Server, pair: Pair | None, load: tuple[str, int], requests: int, keys: int) -> Cost:
    test, pipeline = load
    before_s = processor_s(leader.pid)
    rate = stock_load(leader.port, words_of(leader.name, test), requests, CLIENTS, pipeline, keys)
    behind_ms = 1000 * pair.catch_up() if pair is not None else 0.0
    return Cost(rate, 1e6 * (processor_s(leader.pid) - before_s) / requests, behind_ms)


def run_writes(requests: int, keys: int, rounds: int) -> Iterator[dict[str, object]]:
    with ExitStack() as stack:
        folder = temporary_folder(stack)
        alone = {name: stack.enter_context(running(name, f"{folder}/{name}")) for name in NAMES}
        pairs = {name: stack.enter_context(running_pair(name)) for name in NAMES}
        for name in NAMES:
            for leader in (alone[name], pairs[name].leader):
                fill(leader, keys, len(VALUE))
            pairs[name].follow()
            pairs[name].wait_until_linked()
        for load in LOADS:
            test, pipeline = load
            count = requests // (4 if pipeline == 1 else 1)
            without: dict[str, Cost] = {}
            with_one: dict[str, Cost] = {}
            for _ in range(rounds):
                for name in NAMES:
                    cost = measure(alone[name], None, load, count, keys)
                    without[name] = cost.best(without.get(name, cost))
                    cost = measure(pairs[name].leader, pairs[name], load, count, keys)
                    with_one[name] = cost.best(with_one.get(name, cost))
            yield from _rows(f"{test}, pipeline {pipeline}", without, with_one)


def _rows(load: str, without: dict[str, Cost], with_one: dict[str, Cost]) -> Iterator[dict[str, object]]:
    def figures(costs: dict[str, Cost], field: str) -> dict[str, float | None]:
        return {name: getattr(costs[name], field) for name in NAMES}

    def parts(field: str) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name in NAMES:
            divisor = getattr(without[name], field)
            found[name] = getattr(with_one[name], field) / divisor if divisor else None
        return found

    goal = f"goal: at least {PART_GOAL}"
    yield compared("writes", f"{load}, no follower", "/s", figures(without, "writes_per_s"))
    yield compared("writes", f"{load}, one follower", "/s", figures(with_one, "writes_per_s"))
    yield compared("writes", f"{load}, part that is left", "", parts("writes_per_s"), goal=goal)
    yield compared("writes", f"{load}, leader's time, no follower", "us/write", figures(without, "processor_us"))
    yield compared("writes", f"{load}, leader's time, one follower", "us/write", figures(with_one, "processor_us"))
    yield compared("writes", f"{load}, leader's time, times as much", "", parts("processor_us"))
    yield compared("writes", f"{load}, follower has all after", "ms", figures(with_one, "behind_ms"))
