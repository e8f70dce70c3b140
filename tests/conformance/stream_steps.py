"""Random commands on streams, drawn from a seed, with ids that are given so that both servers agree.

Consumers are made right after a command that may have made them: Redis 7.2 makes them in more cases than 7.0. What
depends on the time (idle, seen) is left out of the comparison; claims ask for entries that were idle for 0 ms, or for
so long that none was.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.conformance.redis_oracle import EXACT, Argument, Order, Pair, decode, pack
from tests.conformance.test_streams_groups import IDLE, SETTLED
from tidelog.commands.stream_ids import strict_id

KEYS: Final = ("s", "t", "{s}u")
GROUPS: Final = ("g", "h")
CONSUMERS: Final = ("a", "b", "c")
_LONG_MS: Final = 10**9


class Steps:
    """A source of commands. Ids move on, mostly, so that most additions succeed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1

    def key(self) -> str:
        return self.random.choice(KEYS)

    def number(self, *, is_new: bool = False) -> str:
        random = self.random
        if is_new and random.random() < 0.9:
            self.now += random.choice((0, 1, 1, 2))
            return f"{self.now}-{random.choice(('*', '*', random.randrange(9)))}"
        ms = max(self.now - int(random.expovariate(0.05)), 0)
        return random.choice((f"{ms}", f"{ms}-{random.randrange(9)}", f"{ms}-0", f"{ms}-1"))

    def bound(self, special: str) -> str:
        return self.random.choice((special, special, self.number(), "(" + self.number()))

    def fields(self) -> list[str]:
        random = self.random
        if random.random() < 0.3:
            return ["tag", random.choice("xyz"), "entry", "e" * random.randrange(5)]
        return [random.choice(("a", "b", "tag", "entry", "")) for _ in range(2 * random.randrange(1, 4))]

    def trim(self) -> list[str]:
        random = self.random
        strategy = ["MAXLEN", str(random.randrange(40))] if random.random() < 0.5 else ["MINID", self.number()]
        return [strategy[0], *random.choice(([], ["="])), strategy[1]]

    def known_ids(self, pair: Pair, key: str) -> list[str]:
        """Ids of which most are there."""
        rows = decode(pair.tidelog.call(pack(["XRANGE", key, "-", "+", "COUNT", 40])))
        known = [row[0].decode() for row in rows] if isinstance(rows, list) else []
        pool = [*known, self.number(), self.number()]
        return [self.random.choice(pool) for _ in range(self.random.randrange(1, 4))]

    def step(self, pair: Pair) -> list[Argument]:
        """The next command."""
        random, key = self.random, self.key()
        group, consumer = random.choice(GROUPS), random.choice(CONSUMERS)
        kind = random.randrange(100)
        if kind < 24:
            options = self.trim() if random.random() < 0.15 else []
            options += ["NOMKSTREAM"] if random.random() < 0.1 else []
            return ["XADD", key, *options, self.number(is_new=True), *self.fields()]
        if kind < 44:
            several = [self.key() for _ in range(random.choice((1, 1, 1, 2)))]
            keys = list(dict.fromkeys(several))
            ids = [">" if random.random() < 0.7 else self.number() for _ in keys]
            options = random.choice(("", f"COUNT {random.randrange(5)}", "NOACK", "COUNT 3 BLOCK 1")).split()
            return ["XREADGROUP", "GROUP", group, consumer, *options, "STREAMS", *keys, *ids]
        if kind < 54:
            return ["XACK", key, group, *self.known_ids(pair, key)]
        if kind < 60:
            options = random.choice(("", "FORCE", "JUSTID", "RETRYCOUNT 3", f"LASTID {self.number()}")).split()
            idle = random.choice((0, 0, 0, _LONG_MS))
            return ["XCLAIM", key, group, consumer, idle, *self.known_ids(pair, key), *options]
        if kind < 66:
            idle = random.choice((0, 0, 0, _LONG_MS))
            options = random.choice(("", f"COUNT {random.randrange(1, 5)}", "JUSTID")).split()
            return ["XAUTOCLAIM", key, group, consumer, idle, self.bound("0"), *options]
        if kind < 71:
            return ["XDEL", key, *self.known_ids(pair, key)]
        if kind < 73:
            return ["XTRIM", key, *self.trim()]
        return self.rare(key, group, consumer, kind)

    def rare(self, key: str, group: str, consumer: str, kind: int) -> list[Argument]:
        random = self.random
        reads: list[list[Any]] = [
            ["XRANGE", key, self.bound("-"), self.bound("+"), "COUNT", random.randrange(-1, 20)],
            ["XREVRANGE", key, self.bound("+"), self.bound("-")],
            ["XREAD", "COUNT", random.randrange(6), "STREAMS", key, self.number()],
            ["XLEN", key],
            ["XPENDING", key, group],
            ["XPENDING", key, group, self.bound("-"), self.bound("+"), random.randrange(9)],
            ["XPENDING", key, group, "IDLE", 0, "-", "+", 9, consumer],
            ["XINFO", "STREAM", key],
            ["XINFO", "STREAM", key, "FULL", "COUNT", random.randrange(5)],
            ["XINFO", "GROUPS", key],
            ["XINFO", "CONSUMERS", key, group],
        ]
        if kind < 91:
            return random.choice(reads)
        start = random.choice(("0", "$", self.number()))
        read = ["ENTRIESREAD", random.randrange(-1, 30)] if random.random() < 0.2 else []
        changes: list[list[Any]] = [
            ["XGROUP", "CREATE", key, group, start, *random.choice(([], ["MKSTREAM"])), *read],
            ["XGROUP", "CREATE", key, group, start, "MKSTREAM"],
            ["XGROUP", "CREATE", key, group, "0", "MKSTREAM"],
            ["XGROUP", "SETID", key, group, start, *read],
            ["XGROUP", "DELCONSUMER", key, group, consumer],
            ["XGROUP", "CREATECONSUMER", key, group, consumer],
        ]
        if random.random() < 0.85:
            return random.choice(changes)
        rare: list[list[Any]] = [
            ["XGROUP", "DESTROY", key, group],
            ["XSETID", key, self.number(is_new=True).replace("*", "0")],
            ["XSETID", key, f"{self.now}-9", "ENTRIESADDED", random.randrange(60), "MAXDELETEDID", self.number()],
            ["DEL", key],
            ["RENAME", key, self.key()],
            ["COPY", key, self.key(), "REPLACE"],
        ]
        return random.choice(rare)


_ORDERS: Final[dict[str, Order]] = {
    "XPENDING": IDLE,
    "XINFO": SETTLED,
}


def _is_below_deleted(pair: Pair, words: list[Argument]) -> bool:
    """Whether the id of XSETID lies below one that was deleted."""
    info = decode(pair.tidelog.call(pack(["XINFO", "STREAM", words[1]])))
    if isinstance(info, Exception):
        return False
    facts = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2], strict=True))
    deleted = facts[b"max-deleted-entry-id"].decode()
    return strict_id(str(words[2]).encode()) < strict_id(deleted.encode())


def run(pair: Pair, steps: Steps, count: int) -> None:
    """Run so many commands on both, and compare their replies."""
    for _ in range(count):
        words = steps.step(pair)
        name = words[0]
        if name in ("COPY", "RENAME") and words[1] == words[2]:
            continue
        if name == "XSETID" and _is_below_deleted(pair, words):
            continue  # Redis 7.2 refuses it, 7.0 does not always
        pair(*words, order=_ORDERS.get(str(name), EXACT))
        if name == "XREADGROUP":
            at = words.index("STREAMS") + 1
            for key in words[at : at + (len(words) - at) // 2]:
                pair.each("XGROUP", "CREATECONSUMER", key, words[2], words[3])
        elif name in ("XCLAIM", "XAUTOCLAIM"):
            pair.each("XGROUP", "CREATECONSUMER", words[1], words[2], words[3])


def compare(pair: Pair) -> None:
    """Everything that can be seen of the streams."""
    pair.same_state()
    for key in KEYS:
        pair("XINFO", "STREAM", key, "FULL", "COUNT", 0, order=SETTLED)
        for group in GROUPS:
            pair("XPENDING", key, group)
            pair("XPENDING", key, group, "-", "+", 10_000, order=IDLE)
