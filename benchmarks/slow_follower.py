"""A follower behind a slow link: what it costs its leader, and how it comes back.

A leader takes writes at a steady pace. Its follower is linked over a proxy (`throttle`), first without a limit: that
shows how many bytes a second it needs, and the level of the leader's memory under the load. Then the link passes a
tenth of those bytes, for some time, and then all again. The load goes on all the while.

    growth         peak of the leader's memory (`processes`) until the follower has caught up, above its level before
    disconnects    links that ended in the same time
    full syncs     likewise
    caught up      after the link is fast again: until a write reaches the follower within 0.1 s
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from benchmarks.followers import MARKER, Pair, fill, full_sync_count, running_pair, wait_for
from benchmarks.loads import compared
from benchmarks.paced_writer import PacedWriter
from benchmarks.processes import MemoryWatch
from benchmarks.servers import NAMES, Server, encode
from benchmarks.throttle import Throttle

VALUE_BYTES: Final = 256
PART: Final = 0.1
CAUGHT_UP_S: Final = 0.1
MIB: Final = 1024 * 1024


class Slowness(NamedTuple):
    """What became of a leader and its slow follower."""

    needed_bytes_per_s: float
    """On the link, for the follower to keep up."""
    grown_bytes: int
    disconnects: int
    full_syncs: int
    caught_up_s: float | None
    """None: it had not caught up when the patience was over."""
    writes_per_s: float


def measure(pair: Pair, per_s: int, keys: int, level_s: float, slow_s: float, patience_s: float) -> Slowness:
    fill(pair.leader, keys, VALUE_BYTES)
    with (
        Throttle(pair.leader.port) as throttle,
        MemoryWatch(pair.leader.pid) as memory,
        PacedWriter(pair.leader, per_s, keys, VALUE_BYTES) as writer,
    ):
        pair.follow(throttle.port)
        pair.wait_until_linked()
        if catch_up(pair, patience_s) is None:
            raise SystemExit(f"{pair.name}: the follower does not keep up with {per_s} writes/s")
        time.sleep(level_s / 2)  # buffers get their size
        memory.take_peak()
        passed, began_s = throttle.passed_bytes, time.monotonic()
        time.sleep(level_s / 2)
        needed = (throttle.passed_bytes - passed) / (time.monotonic() - began_s)
        level_bytes = memory.take_peak()
        ended, syncs = throttle.ended_links, full_sync_count(pair.leader)
        throttle.limit(PART * needed)
        time.sleep(slow_s)
        throttle.limit(0)
        caught_up_s = catch_up(pair, patience_s)
        grown_bytes = memory.take_peak() - level_bytes
        return Slowness(
            needed,
            grown_bytes,
            throttle.ended_links - ended,
            full_sync_count(pair.leader) - syncs,
            caught_up_s,
            writer.finish().per_s,
        )


def catch_up(pair: Pair, patience_s: float) -> float | None:
    """Seconds until a write reaches the follower soon; None: that takes longer than the patience."""
    began_s = time.monotonic()
    while (left_s := began_s + patience_s - time.monotonic()) > 0:
        value = b"%d" % time.monotonic_ns()
        pair.leader.send_all([encode(b"SET", MARKER, value)], 1)
        wrote_s = time.monotonic()
        if not wait_for(partial(has_marker, pair.follower, value), left_s):
            return None
        if time.monotonic() - wrote_s < CAUGHT_UP_S:
            return time.monotonic() - began_s
    return None


def has_marker(follower: Server, value: bytes) -> bool:
    """A follower that is loading has none."""
    with follower.connect() as connection, connection.makefile("rb") as lines:
        connection.sendall(encode(b"GET", MARKER))
        return lines.readline() == b"$%d\r\n" % len(value) and lines.readline() == value + b"\r\n"


def run_slow(
    per_s: int, keys: int, level_s: float, slow_s: float, patience_s: float, parent: str | None
) -> Iterator[dict[str, object]]:
    found: dict[str, Slowness] = {}
    for name in NAMES:
        with running_pair(name, parent) as pair:
            found[name] = measure(pair, per_s, keys, level_s, slow_s, patience_s)
    what = f"a tenth of the link for {slow_s:g} s"
    needed = ", ".join(f"{name} needs {each.needed_bytes_per_s / 1e6:.1f} MB/s" for name, each in found.items())
    rates = ", ".join(f"{name} {each.writes_per_s:.0f} writes/s" for name, each in found.items())
    late = [f"{name} had not caught up after {patience_s:g} s" for name in NAMES if found[name].caught_up_s is None]
    grown = {name: each.grown_bytes / MIB for name, each in found.items()}
    yield compared("slow", f"{what}, leader grows by", "MiB", grown, note=needed)
    yield compared("slow", f"{what}, disconnects", "", {name: each.disconnects for name, each in found.items()})
    syncs = {name: each.full_syncs for name, each in found.items()}
    yield compared("slow", f"{what}, full syncs", "", syncs, goal="goal: 0")
    caught_up = {name: each.caught_up_s for name, each in found.items()}
    yield compared("slow", f"{what}, then caught up", "s", caught_up, note="; ".join([rates, *late]))
