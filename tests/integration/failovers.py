"""Servers that Sentinels watch, harmed under load, round by round.

Each round does harm to one server while clients write and feeds read, waits until Sentinels have done what they do,
heals it, and waits until all servers have joined by themselves. Then everything is compared (`failover_ledger`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import redis

from tests.cli.command_line import invoke
from tests.integration.failover_ledger import Fate, FeedReader, Writer, judge
from tests.integration.waiting import wait_until
from tests.integration.watched_servers import DOWN_MS, WatchedServer, WatchedServers

BATCHES_AWAY: Final = 5
"""Written to a leader that is cut off: nobody else ever has them."""
GET_AT_ONCE: Final = 1000
LOOKS_MAX: Final = 5


class Look(NamedTuple):
    """What all servers have, at a moment when nobody writes."""

    ts: int
    """Of that moment."""
    found: list[set[bytes]]
    """By server: which of some keys it has ..."""
    sizes: list[int]
    """... and the number of all its keys."""


class Failovers:
    """One service over any number of rounds. Leaving the block stops it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = Random(seed)
        self.numbers: Counter[str] = Counter()
        """What happened, by name."""
        self.options = "--shards", self._rng.choice("123"), "--fsync", self._rng.choice(("everysec", "always"))
        with ExitStack() as running:
            self._servers = running.enter_context(WatchedServers(folder, *self.options))
            self._servers.wait_until_joined()
            sentinels = self._servers.sentinels
            self._writer = running.enter_context(Writer(sentinels, "sure"))
            self._hasty = running.enter_context(Writer(sentinels, "hasty", confirms=False))
            self._away = Writer(sentinels, "away")  # not started: it writes when it is told to
            self._feeds = [
                running.enter_context(FeedReader(sentinels.url, from_followers=each)) for each in (False, True)
            ]
            self._running = running.pop_all()
        self._survivors: set[bytes] = set()
        """What is there, of writes whose fate is settled."""
        self._harms: dict[str, Callable[[], None]] = {
            "kill": self._kill_leader,
            "cut": self._cut_leader,
            "stop": self._stop_leader,
            "kill_after_stop": self._kill_leader_after_stop,
            "kill_follower": self._kill_follower,
            "stop_follower": self._stop_follower,
            "blink": self._blink,
        }

    def __enter__(self) -> Failovers:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def run(self, rounds: int) -> None:
        """All harms in turn, each time in another order; the ones first that a failover follows."""
        names = list(self._harms)
        order = names[:4]
        for number in range(rounds):
            if not order:
                order = self._rng.sample(names, len(names))
            harm = order.pop(0)
            try:
                self.run_round(harm)
            except BaseException as problem:
                logs = "".join(f"--- {each.data.name}\n{each.process.stderr[-3000:]}" for each in self._servers.servers)
                problem.add_note(f"round {number}, {harm}, {self.options}; {logs}{self._servers.sentinels.logs}")
                raise

    def run_round(self, harm: str) -> None:
        """One harm, and all that follows from it."""
        self._let_write()
        self._harms[harm]()
        self._servers.wait_until_joined()
        self._let_write()
        self._check()
        self.numbers["rounds"] += 1
        self.numbers[harm] += 1

    def _let_write(self) -> None:
        """Until something was confirmed that was written from now on."""
        before = self._writer.confirmed_count
        wait_until(lambda: self._writer.has_confirmed(before), 60)

    # --- harm ---------------------------------------------------------------------------------------------------

    def _kill_leader(self) -> None:
        leader = self._servers.leader
        leader.kill()
        self._servers.wait_for_failover(leader)
        leader.start_again()

    def _stop_leader(self) -> None:
        leader = self._servers.leader
        leader.stop()
        self._servers.wait_for_failover(leader)
        leader.go_on()

    def _cut_leader(self) -> None:
        """A client on its side of the cut goes on writing."""
        leader = self._servers.leader
        leader.proxy.cut()
        with leader.process.client() as client:
            for _ in range(BATCHES_AWAY):
                assert self._away.write_to(client, enough=1) == 0, "a follower confirmed what it cannot have"
        self._servers.wait_for_failover(leader)
        leader.proxy.mend()

    def _kill_leader_after_stop(self) -> None:
        """A follower hears nothing for a while. What the other has confirmed survives: only that one can lead."""
        leader = self._servers.leader
        stopped, other = self._rng.sample(self._servers.followers, 2)
        stopped.stop()
        with self._writer.paused():
            self._writer.enough = 1
        self._servers.sentinels.wait_until_ready(1)
        self._let_write()
        leader.kill()
        with self._writer.paused():
            self._writer.enough = 2
        self._servers.wait_for_failover(leader)
        assert self._servers.leader is other
        stopped.go_on()
        leader.start_again()

    def _kill_follower(self) -> None:
        follower = self._rng.choice(self._servers.followers)
        follower.kill()
        self._servers.sentinels.wait_until_ready(1)
        follower.start_again()

    def _stop_follower(self) -> None:
        follower = self._rng.choice(self._servers.followers)
        follower.stop()
        self._servers.sentinels.wait_until_ready(1)
        follower.go_on()

    def _blink(self) -> None:
        """All connections to the leader are lost, and nobody takes it for dead."""
        leader = self._servers.leader
        leader.proxy.cut()
        time.sleep(DOWN_MS / 4000)
        leader.proxy.mend()

    # --- comparing ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        with self._writer.paused(), self._hasty.paused():
            fates: dict[bytes, Fate] = {}
            for writer in (self._writer, self._hasty, self._away):
                fates |= writer.fates
                writer.fates = {}
            look = self._look(list(fates))
            found = look.found[0]
            assert all(each == found for each in look.found), "a follower has other keys than its leader"
            self._survivors |= found
            assert look.sizes == [len(self._survivors) + 1] * len(look.sizes)
            lost = judge(fates, found, self._set_aside)
            self.numbers.update(lost=len(lost), survived=len(found))
            self.numbers.update(fate.name.lower() for fate in fates.values())
            for feed in self._feeds:
                feed.check(self._survivors, look.ts)
            self.numbers["divergences"] = sum(feed.divergences for feed in self._feeds)

    def _look(self, keys: list[bytes]) -> Look:
        """Look at all servers, while nobody writes."""
        for _ in range(LOOKS_MAX):
            leader = self._servers.leader
            try:
                with leader.process.client() as client:
                    client.set("settled", self.numbers["rounds"])
                    assert client.wait(2, 10_000) == 2
                    ts = min(each[1] for each in client.execute_command("FEED", "POSITION"))
                found, sizes = [], []
                for server in self._servers.servers:
                    found.append(self._found(server, keys))
                    with server.process.client() as client:
                        sizes.append(client.dbsize())
            except redis.RedisError:
                pass  # this machine was so slow that Sentinels have promoted another meanwhile
            else:
                if leader is self._servers.leader:
                    return Look(ts, found, sizes)
            self.numbers["unasked_failovers"] += 1
            self._servers.wait_until_joined()
        raise AssertionError("there is no end of failovers")

    def _found(self, server: WatchedServer, keys: list[bytes]) -> set[bytes]:
        found = set()
        with server.process.client() as client:
            for begin in range(0, len(keys), GET_AT_ONCE):
                some = keys[begin : begin + GET_AT_ONCE]
                found |= {key for key, value in zip(some, client.mget(some), strict=True) if value is not None}
        return found

    def _set_aside(self) -> set[bytes]:
        """Keys that some server has kept for its operator."""
        found = set()
        for server in self._servers.servers:
            for folder in [*server.data.glob("diverged-*"), *server.data.glob("set-aside-*")]:
                shown = invoke("journal", "show", folder, "--opcode", "val", "--payload", "--json")
                assert shown.status == 0, shown.stderr
                found |= {key.encode() for each in shown.of_kind("record") for key, _ in each["payload"]["pairs"]}
        return found
