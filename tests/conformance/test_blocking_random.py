"""Random commands of several clients, of whom many wait: the same clients are served with the same replies as by Redis.

After each step both servers say which clients wait (CLIENT LIST): they must be the same ones. Those that wait no longer
have a reply, which must be the same too.

Redis 7.0 serves a client from the key that woke it, 7.2 and Tidelog run its command anew. So that it makes no
difference, clients wait for several keys only of those that hold nothing but lists (or nothing but sorted sets), and
no step makes two of these at once. `properties/test_blocking_model.py` has no such bounds.
"""

from __future__ import annotations

import random
import re
import select
from typing import Final

import pytest

from tests.conformance.redis_oracle import Argument, pack
from tests.conformance.socket_pair import Both, Connection

LISTS: Final = ["p0", "p1", "p2"]
"""Waited for together; always lists. No client moves to them while it waits."""
SETS: Final = ["z0", "z1"]
"""The same, of sorted sets."""
MIXED: Final = ["m0", "m1", "m2"]
"""Of any type; clients wait for one of them."""
ENDS: Final = ["LEFT", "RIGHT"]
CLIENTS: Final = 7
_CLIENT: Final = re.compile(rb"id=(\d+) .* flags=(\w+) ")

Words = list[Argument]


class Commands:
    """Draws commands."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0

    def _element(self) -> str:
        self._next += 1
        return f"e{self._next}"

    def _some(self, keys: list[str], most: int = 3) -> list[str]:
        return self._rng.choices(keys, k=self._rng.randint(1, most))

    def waiting(self, timeout: str = "0") -> Words:
        """One that may wait."""
        rng = self._rng
        end = rng.choice(ENDS)
        count: Words = ["COUNT", rng.randint(1, 3)] if rng.random() < 0.5 else []
        where = rng.choice(["MIN", "MAX"])
        kind = rng.randrange(10)
        if kind < 3:
            keys = self._some(LISTS) if rng.random() < 0.6 else [rng.choice(MIXED)]
            return [rng.choice(["BLPOP", "BRPOP"]), *keys, timeout]
        if kind < 5:
            keys = self._some(LISTS) if rng.random() < 0.6 else [rng.choice(MIXED)]
            return ["BLMPOP", timeout, len(keys), *keys, end, *count]
        if kind < 7:
            source, target = rng.choice(LISTS + MIXED), rng.choice(MIXED)
            if rng.random() < 0.3:
                return ["BRPOPLPUSH", source, target, timeout]
            return ["BLMOVE", source, target, end, rng.choice(ENDS), timeout]
        keys = self._some(SETS) if rng.random() < 0.6 else [rng.choice(MIXED)]
        if kind < 9:
            return [f"BZPOP{where}", *keys, timeout]
        return ["BZMPOP", timeout, len(keys), *keys, where, *count]

    def push(self, key: str) -> Words:
        rng = self._rng
        if key in LISTS or (key in MIXED and rng.random() < 0.6):
            return [rng.choice(["LPUSH", "RPUSH"]), key, *(self._element() for _ in range(rng.choice((1, 1, 1, 2, 5))))]
        pairs = [part for _ in range(rng.choice((1, 1, 3))) for part in (rng.randint(-2, 2), self._element())]
        return ["ZADD", key, *pairs]

    def changing(self) -> Words:
        """One that never waits, and makes at most one key."""
        rng = self._rng
        key = rng.choice(LISTS + SETS + MIXED)
        kind = rng.randrange(20)
        if kind < 11:
            return self.push(key)
        if kind == 11:
            return [rng.choice(["LPOP", "RPOP"]), rng.choice(LISTS)]
        if kind == 12:
            return [rng.choice(["ZPOPMIN", "ZPOPMAX"]), rng.choice(SETS)]
        if kind == 13:
            return ["DEL", *self._some(LISTS + SETS + MIXED)]
        if kind == 14:
            pool = rng.choice([LISTS, SETS, MIXED])
            return [rng.choice(["RENAME", "COPY"]), rng.choice(pool), rng.choice(pool)]
        if kind == 15:
            pool = rng.choice([LISTS, SETS])
            return ["COPY", rng.choice(pool), rng.choice(MIXED), "REPLACE"]
        if kind == 16:
            return ["LMOVE", rng.choice(LISTS + MIXED), rng.choice(LISTS + MIXED), rng.choice(ENDS), rng.choice(ENDS)]
        if kind == 17:
            return ["SET", rng.choice(MIXED), "text"]
        if kind == 18:
            return ["LTRIM", rng.choice(LISTS), 1, -1]
        return ["ZRANGESTORE", rng.choice(SETS), rng.choice(SETS), 0, 1]

    def transaction(self) -> list[Words]:
        """Several on any keys, but of those that are waited for together on one."""
        rng = self._rng
        keys = [*MIXED, rng.choice(LISTS + SETS)]
        inside: list[Words] = []
        for _ in range(rng.randint(1, 5)):
            key, kind = rng.choice(keys), rng.randrange(10)
            if kind < 6:
                inside.append(self.push(key))
            elif kind < 8:
                inside.append(["DEL", key])
            elif kind == 8:
                inside.append(["BLPOP", key, "0"])
            else:
                inside.append(["BZPOPMIN", key, "0"])
        return [["MULTI"], *inside, ["EXEC"]]


class Client:
    """A connection to both, and its number on each."""

    def __init__(self, both: Both, protocol: int) -> None:
        self.link = both.connect(protocol)
        self.ids = self.link.each("CLIENT", "ID")
        self.is_blocked = False


class Play:
    """Runs steps, and compares after each."""

    def __init__(self, both: Both, seed: int) -> None:
        self._both = both
        self._rng = random.Random(seed)
        self._commands = Commands(self._rng)
        self._clients = [self._connect() for _ in range(CLIENTS)]
        self.count = 0
        """Commands that were sent."""
        self.served = 0
        """Clients that had waited when their reply came."""

    def _connect(self) -> Client:
        return Client(self._both, self._rng.choice((2, 3)))

    def _blocked(self) -> tuple[set[int], set[int]]:
        """The numbers of those who wait, on each."""
        replies = self._both.admin.each("CLIENT", "LIST")
        redis, tidelog = (
            {int(number) for number, flags in _CLIENT.findall(reply) if b"b" in flags}
            for reply in (bytes(each) for each in replies)
        )
        return redis, tidelog

    def step(self) -> None:
        rng = self._rng
        free = [client for client in self._clients if not client.is_blocked]
        kind = rng.random()
        if kind < 0.5 and free:
            self._wait(rng.choice(free), self._commands.waiting())
        elif kind < 0.51 and free:
            self._time_out(rng.choice(free))
        elif kind < 0.53:
            self._end_one(rng.choice(self._clients))
        elif kind < 0.63:
            self._run(self._both.admin, self._commands.transaction())
        else:
            self._run(rng.choice([self._both.admin, *(client.link for client in free)]), [self._commands.changing()])
        self._settle()

    def _run(self, link: Connection, commands: list[Words]) -> None:
        """Commands that are answered at once, sent together."""
        for words in commands:
            link.send(*words)
        for words in commands:
            link.read(what=f"{words}")
        self.count += len(commands)

    def _wait(self, client: Client, words: Words) -> None:
        """A command that may have to wait: until both have answered it or made the client wait."""
        self.count += 1
        client.link.send(*words)
        lines = client.link.redis, client.link.tidelog
        while True:
            for number, line, blocked in zip(client.ids, lines, self._blocked(), strict=True):
                if number not in blocked and not select.select([line.socket], [], [], 0)[0]:
                    break  # it has not come there yet
            else:
                break
        is_blocked = [not select.select([line.socket], [], [], 0)[0] for line in lines]
        assert is_blocked[0] == is_blocked[1], f"{words}: on Redis {is_blocked[0]}, on Tidelog {is_blocked[1]}"
        client.is_blocked = is_blocked[0]
        if not client.is_blocked:
            client.link.read(what=f"{words}")

    def _time_out(self, client: Client) -> None:
        self.count += 1
        client.link(*self._commands.waiting("0.001"))

    def _end_one(self, client: Client) -> None:
        """A client goes away, or CLIENT UNBLOCK."""
        self.count += 1
        lines = self._both.admin.redis, self._both.admin.tidelog
        if self._rng.random() < 0.5:
            how = self._rng.choice(["TIMEOUT", "ERROR"])
            for line, number in zip(lines, client.ids, strict=True):
                line.send(pack(["CLIENT", "UNBLOCK", number, how]))
            assert self._both.admin.read() == client.is_blocked
            return
        client.link.close()
        self._clients[self._clients.index(client)] = self._connect()
        self._both.eventually(
            lambda: not any(number in found for number, found in zip(client.ids, self._blocked(), strict=True))
        )

    def _settle(self) -> None:
        """The same clients wait on both; those who do no longer have the same reply."""
        redis, tidelog = self._blocked()
        for at, client in enumerate(self._clients):
            waits = client.ids[0] in redis, client.ids[1] in tidelog
            assert waits[0] == waits[1], f"client {at} waits on Redis: {waits[0]}, on Tidelog: {waits[1]}"
            if client.is_blocked and not waits[0]:
                client.is_blocked = False
                client.link.read(what=f"a client that waited, {at}")
                self.served += 1

    def compare_keys(self) -> None:
        admin = self._both.admin
        for key in LISTS + SETS + MIXED:
            kind = admin("TYPE", key)
            if kind == b"list":
                admin("LRANGE", key, 0, -1)
            elif kind == b"zset":
                admin("ZRANGE", key, 0, -1, "WITHSCORES")


def play(both: Both, seed: int, commands: int) -> None:
    game = Play(both, seed)
    steps = 0
    try:
        while game.count < commands:
            game.step()
            steps += 1
            if steps % 50 == 0:
                game.compare_keys()
        game.compare_keys()
    except Exception as error:
        error.add_note(f"seed {seed}, step {steps}")
        raise
    assert game.served > commands / 20


@pytest.mark.parametrize("seed", range(3))
def test_random_clients(both: Both, seed: int) -> None:
    play(both, seed, 500)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 120))
def test_random_clients_for_long(both: Both, seed: int) -> None:
    """100,000 commands in all."""
    play(both, seed, 5000)
