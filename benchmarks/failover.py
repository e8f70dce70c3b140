"""A failover by Sentinels: how long nobody can write after the leader was killed.

Three Sentinels watch a leader and two followers, with a quorum of two. A client writes through redis-py's Sentinel
client, one write after the other. The leader is killed (SIGKILL), and the time runs from there until the client has the
reply to a write that it sent after it: detection, election, promotion and the client's own search are all in it. Beside
it stands the time until a Sentinel names the new leader.

Sentinels draw at random when they begin, so rounds differ by up to a second; rounds alternate between the servers and
the median counts. Each round has new servers and Sentinels. These look around faster until they know each other and the
followers, and then as often as they do by default.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.followers import begin_following, temporary_folder
from benchmarks.loads import compared
from benchmarks.sentinels import SERVICE, USUAL_PERIODS_MS, Sentinels
from benchmarks.servers import NAMES, running

FOLLOWERS: Final = 2
QUICK_PERIODS_MS: Final = {"info-period": 1000, "publish-period": 500}
FAILOVER_MS: Final = 10_000
WRITES_BEFORE: Final = 20
PAUSE_S: Final = 0.01
SOCKET_S: Final = 0.5
FAILOVER_S_MAX: Final = 120.0


class Outage(NamedTuple):
    """After the leader was killed."""

    named_s: float
    """Until a Sentinel names another."""
    written_s: float
    """Until a write was acknowledged."""


def measure(name: str, down_ms: int, parent: str | None) -> Outage:
    with ExitStack() as stack:
        folder = temporary_folder(stack, parent)
        leader, *followers = (
            stack.enter_context(running(name, f"{folder}/{number}")) for number in range(FOLLOWERS + 1)
        )
        for follower in followers:
            begin_following(follower, leader)
        sentinels = stack.enter_context(
            Sentinels(Path(folder), leader.port, down_ms=down_ms, failover_ms=FAILOVER_MS, periods_ms=QUICK_PERIODS_MS)
        )
        sentinels.wait_until_ready(FOLLOWERS)
        sentinels.set_periods(USUAL_PERIODS_MS)
        client = stack.enter_context(
            sentinels.client().master_for(  # type: ignore[no-untyped-call]
                SERVICE, socket_timeout=SOCKET_S, socket_connect_timeout=SOCKET_S, retry=Retry(NoBackoff(), 0)
            )
        )
        for _ in range(WRITES_BEFORE):
            client.set("written", "before")
            time.sleep(PAUSE_S)
        began_s = time.monotonic()
        leader.kill()
        with ThreadPoolExecutor(1) as thread:
            named = thread.submit(_until, lambda: bool(sentinels.leader_ports() - {leader.port}), began_s)
            written_s = _until(lambda: client.set("written", "after"), began_s)
            return Outage(named.result(), written_s)


def _until(is_so: Callable[[], Any], began_s: float) -> float:
    """Seconds until it is so; until then, servers may refuse or be gone."""
    while time.monotonic() < began_s + FAILOVER_S_MAX:
        with contextlib.suppress(redis.RedisError):
            if is_so():
                return time.monotonic() - began_s
        time.sleep(PAUSE_S)
    raise SystemExit(f"there was no failover in {FAILOVER_S_MAX:g} s")


def run_failover(rounds: int, down_ms: int, parent: str | None) -> Iterator[dict[str, object]]:
    found: dict[str, list[Outage]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        for name in NAMES:
            found[name].append(measure(name, down_ms, parent))
    for place, label in enumerate(("a Sentinel names the new leader", "a write is acknowledged")):
        figures = {name: statistics.median(each[place] for each in found[name]) for name in NAMES}
        each_round = "; ".join(f"{name} " + ", ".join(f"{each[place]:.2f}" for each in found[name]) for name in NAMES)
        yield compared("failover", f"kill until {label}", "s", figures, note=f"rounds: {each_round}")
