"""A full sync: how fast an empty follower gets everything, and what the leader's memory does meanwhile.

**Speed.** The time runs from REPLICAOF until the follower says that its link is up and has as many keys as the leader.
MB are those of the values, which nothing compresses. The first follower comes to a leader that has no snapshot. For the
ones after it Tidelog sends the snapshot that it has, and Redis makes another: these are rows of their own.

**Memory** under a load that overwrites values as fast as the leader takes it. Each server is started twice with the
same data: once it is asked for a snapshot (BGSAVE) under the load, and once a follower comes. What counts is the peak
of its memory (`processes`) above its level under the same load before. A full sync needs a snapshot, so the difference
of the two is what a follower costs beyond it. Redis gives a replica up that is too far behind
(`client-output-buffer-limit`), and begins anew: the last row says how often.
"""

from __future__ import annotations

import random
import statistics
import string
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

from benchmarks.followers import (
    FOLLOW_S_MAX,
    begin_following,
    command_count,
    fill,
    full_sync_count,
    is_linked,
    read_info,
    running_follower,
    temporary_folder,
    wait_for,
)
from benchmarks.loads import compared, endless_load
from benchmarks.processes import MemoryWatch
from benchmarks.servers import NAMES, Server, running

MB: Final = 1_000_000
MIB: Final = 1024 * 1024
VALUE_BYTES: Final = 1000
CLIENTS: Final = 20
PIPELINE: Final = 16
SPEED_GOAL: Final = "goal: ratio of 0.7"
GROWTH_GOAL: Final = "goal: less than 32 MiB"


# --- speed ------------------------------------------------------------------------------------------------------


def time_sync(leader: Server, folder: str) -> float:
    """Seconds until a new follower has everything."""
    wanted = leader.ask(b"DBSIZE")
    with ExitStack() as stack:
        follower = running_follower(stack, leader.name, folder)
        began_s = time.perf_counter()
        begin_following(follower, leader)
        if not wait_for(lambda: is_linked(follower) and follower.ask(b"DBSIZE") == wanted, FOLLOW_S_MAX):
            raise SystemExit(f"{leader.name}: the follower did not have everything in {FOLLOW_S_MAX:g} s")
        return time.perf_counter() - began_s


def run_sync(megabytes: int, rounds: int, parent: str | None) -> Iterator[dict[str, object]]:
    first: dict[str, float | None] = {}
    again: dict[str, float | None] = {}
    for name in NAMES:
        with ExitStack() as stack:
            folder = temporary_folder(stack, parent)
            leader = stack.enter_context(running(name, f"{folder}/leader"))
            fill(leader, megabytes * MB // VALUE_BYTES, VALUE_BYTES)
            took = [time_sync(leader, f"{folder}/{number}") for number in range(rounds)]
        first[name] = megabytes / took[0]
        again[name] = megabytes / statistics.median(took[1:]) if took[1:] else None
    yield compared("sync", f"full sync of {megabytes} MB, no snapshot there", "MB/s", first, goal=SPEED_GOAL)
    yield compared("sync", f"full sync of {megabytes} MB, the next ones", "MB/s", again, goal=SPEED_GOAL)


# --- memory -----------------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """Of a leader's memory, above its level under the load alone."""

    level_bytes: int
    grown_bytes: int
    seconds: float
    """That it took ..."""
    is_done: bool
    """... if it was done in time."""
    writes_per_s: float
    full_syncs: int


@contextmanager
def full_load(server: Server, keys: int) -> Iterator[None]:
    """Values of the same size are overwritten as fast as the server takes them, for as long as the block lasts."""
    value = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=VALUE_BYTES))
    with endless_load(server.port, ["SET", "key:__rand_int__", value], CLIENTS, PIPELINE, keys):
        yield


def measure_growth(leader: Server, follower: Server | None, keys: int, level_s: float, seconds_max: float) -> Growth:
    """Of a full sync, or without a follower of a snapshot."""
    fill(leader, keys, VALUE_BYTES)
    with full_load(leader, keys), MemoryWatch(leader.pid) as memory:
        time.sleep(level_s / 2)  # buffers get their size
        memory.take_peak()
        time.sleep(level_s / 2)
        level_bytes = memory.take_peak()
        writes, began_s = command_count(leader), time.perf_counter()
        if follower is not None:
            begin_following(follower, leader)
            is_done = wait_for(partial(is_linked, follower), seconds_max)
        else:
            reply = leader.ask(b"BGSAVE")
            if not reply.startswith(b"+"):
                raise SystemExit(f"{leader.name} answered BGSAVE with {reply!r}")
            is_done = wait_for(lambda: not _is_saving(leader), seconds_max)
        seconds = time.perf_counter() - began_s
        time.sleep(level_s / 2)  # a follower that has landed still has to catch up
        writes_per_s = (command_count(leader) - writes) / (time.perf_counter() - began_s)
        grown_bytes = memory.take_peak() - level_bytes
        return Growth(level_bytes, grown_bytes, seconds, is_done, writes_per_s, full_sync_count(leader))


def _is_saving(server: Server) -> bool:
    return read_info(server, b"persistence")["rdb_bgsave_in_progress"] == "1"


def run_memory(megabytes: int, level_s: float, seconds_max: float, parent: str | None) -> Iterator[dict[str, object]]:
    keys = megabytes * MB // VALUE_BYTES
    saved: dict[str, Growth] = {}
    synced: dict[str, Growth] = {}
    for name in NAMES:
        for found, follows in ((saved, False), (synced, True)):
            with ExitStack() as stack:
                folder = temporary_folder(stack, parent)
                leader = stack.enter_context(running(name, f"{folder}/leader"))
                follower = running_follower(stack, name, folder) if follows else None
                found[name] = measure_growth(leader, follower, keys, level_s, seconds_max)

    def mib(found: dict[str, Growth]) -> dict[str, float | None]:
        return {name: found[name].grown_bytes / MIB for name in NAMES}

    what = f"full sync of {megabytes} MB under load"
    levels = ", ".join(f"{name} {synced[name].level_bytes / MIB:.0f} MiB" for name in NAMES)
    rates = ", ".join(f"{name} {synced[name].writes_per_s:.0f} writes/s" for name in NAMES)
    beyond: dict[str, float | None] = {
        name: (synced[name].grown_bytes - saved[name].grown_bytes) / MIB for name in NAMES
    }
    yield compared("memory", "BGSAVE under load, leader grows by", "MiB", mib(saved))
    yield compared("memory", f"{what}, leader grows by", "MiB", mib(synced), note=f"from {levels}")
    yield compared("memory", f"{what}, beyond BGSAVE", "MiB", beyond, goal=GROWTH_GOAL)
    seconds = {name: synced[name].seconds if synced[name].is_done else None for name in NAMES}
    note = "; ".join([rates, *(f"{name} was not done in {seconds_max:g} s" for name in NAMES if seconds[name] is None)])
    yield compared("memory", f"{what}, time", "s", seconds, note=note)
    yield compared("memory", f"{what}, attempts", "", {name: synced[name].full_syncs for name in NAMES})
