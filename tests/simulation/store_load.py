"""Commands of all families, drawn at random over few keys, so that they meet each other: types change, keys move
between shards and databases, collections become empty, expiries are set, kept, lost and passed.

With every family that is added the others come up less often, and with them what takes several of their commands in a
row. So a load may have a focus: most of its commands are of one family then, and the others come between.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

KEYS: Final = [*(b"k%d" % number for number in range(9)), b"{k0}a", b"{k1}b", b"a longer key, with some bytes to it"]
STREAMS: Final = [b"s0", b"s1", b"{k0}s"]
LISTS: Final = [b"l0", b"l1", b"{k0}l"]
MEMBERS: Final = [b"a", b"b", b"c", b"7", b"-1", b"", b"\x00\xff", b"a longer member, with some bytes to it"]
DATABASES: Final = (0, 0, 0, 1)
TIMES_MS: Final = (b"1", b"20", b"500", b"3000", b"3000", b"60000", b"7200000", b"-1")

FOCUS_SHARE: Final = 0.7
"""How many commands are of the focus of a load."""

Words = list[bytes]


class Load:
    """Draws commands; `focus`: mostly of this one of `FOCUSED`."""

    def __init__(self, rng: Random, value_bytes_max: int, focus: str = "") -> None:
        self._rng = rng
        self._value_bytes_max = value_bytes_max
        self._focused = _drawn(FOCUSED.get(focus, []))

    def database(self) -> int:
        return self._rng.choice(DATABASES)

    def command(self) -> Words:
        is_focused = self._focused and self._rng.random() < FOCUS_SHARE
        return self._rng.choice(self._focused if is_focused else _DRAWN)(self)

    def hot(self) -> Words:
        """One that the hot path may take."""
        key = self.key()
        return self._rng.choice(
            (
                [b"SET", key, self.value()],
                [b"INCR", key],
                [b"HSET", key, self.member(), self.value()],
                [b"MSET", key, self.value(), self.key(), self.value()],
            )
        )

    def hot_list_run(self) -> list[Words]:
        """Pushes to one list, or pops from it, that the hot path may take together."""
        rng, key = self._rng, self.list_key()
        if rng.random() < 0.6:
            name = rng.choice((b"LPUSH", b"RPUSH"))
            return [[name, key, self.member()] for _ in range(rng.randint(1, 6))]
        return [[rng.choice((b"LPOP", b"RPOP")), key]] * rng.randint(1, 6)

    # --- arguments ----------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        kind = self._rng.random()
        return self._rng.choice(KEYS) if kind < 0.92 else self.stream() if kind < 0.97 else self.list_key()

    def stream(self) -> bytes:
        """A key that mostly holds a stream, if any."""
        return self._rng.choice(STREAMS)

    def list_key(self) -> bytes:
        """A key that mostly holds a list, if any."""
        return self._rng.choice(LISTS)

    def elements(self) -> Words:
        """So many now and then that they take several records."""
        count = self._rng.randint(1, 8) if self._rng.random() < 0.85 else self._rng.randint(40, 100)
        return [self.member() for _ in range(count)]

    def push(self) -> bytes:
        return self._rng.choice((b"LPUSH", b"RPUSH", b"LPUSH", b"RPUSH", b"LPUSHX", b"RPUSHX"))

    def side(self) -> bytes:
        return self._rng.choice((b"LEFT", b"RIGHT"))

    def index(self) -> bytes:
        return b"%d" % self._rng.choice((0, 0, 1, 2, 5, -1, -1, -2, -5, 100))

    def keys(self, most: int = 3) -> Words:
        return [self.key() for _ in range(self._rng.randint(1, most))]

    def member(self) -> bytes:
        return self._rng.choice(MEMBERS)

    def members(self) -> Words:
        if self._rng.random() < 0.03:
            return [b"m%d" % number for number in range(self._rng.choice((60, 200, 600)))]
        return [self.member() for _ in range(self._rng.randint(1, 4))]

    def value(self) -> bytes:
        rng = self._rng
        if rng.random() < 0.3:
            return b"%d" % rng.randrange(-100, 1000)
        return rng.randbytes(rng.randint(0, rng.choice((10, 10, 100, self._value_bytes_max))))

    def number(self) -> bytes:
        return self._rng.choice((b"1", b"-3", b"10", b"2.5", b"0", b"x"))

    def score(self) -> bytes:
        return self._rng.choice((b"1", b"2", b"-1.5", b"inf", b"0.1", b"1e9"))

    def time_ms(self) -> bytes:
        return self._rng.choice(TIMES_MS)

    def wait(self) -> bytes:
        """Until a pending entry is delivered again, or expires."""
        return self._rng.choice((b"0", b"20", b"500", b"3000"))

    def few(self) -> bytes:
        return b"%d" % self._rng.randint(1, 9)

    def letters(self) -> Words:
        return self._rng.choice(([], [b"DEADLETTER", b"letters", b"MAXDELIVERIES", b"2"]))

    def rule(self) -> Words:
        """Some of what TCONFIG takes; 0 removes."""
        said = [
            [b"MAXBYTES", self._rng.choice((b"0", b"100", b"1000", b"5000"))],
            [b"MAXAGE", self._rng.choice((b"0", b"1", b"500", b"3000", b"60000"))],
            [b"BACKLOG", self._rng.choice((b"0", b"1", b"4", b"20"))],
        ]
        return [word for option in self._rng.sample(said, self._rng.randint(1, 3)) for word in option]

    def pairs(self, first: Callable[[], bytes], second: Callable[[], bytes]) -> Words:
        return [item for _ in range(self._rng.randint(1, 4)) for item in (first(), second())]

    def numbered_keys(self) -> Words:
        keys = self.keys()
        return [b"%d" % len(keys), *keys]

    def scores(self) -> Words:
        return [item for member in self.members() for item in (self.score(), member)]

    def range_delete(self) -> Words:
        first, last = sorted((self.key(), self.key()))
        ranges = [[b"DELRANGE", first, last + b"\0"], [b"DELRANGE", last, b""], [b"DELPREFIX", first[:2]]]
        return self._rng.choice(ranges)

    def option(self, *options: Words) -> Words:
        return self._rng.choice(options)


Weighted = list[tuple[int, Callable[[Load], Words]]]
"""How often each is drawn, and how."""

_STRINGS: Final[Weighted] = [
    (6, lambda load: [b"SET", load.key(), load.value()]),
    (4, lambda load: [b"SET", load.key(), load.value(), b"PX", load.time_ms()]),
    (1, lambda load: [b"SET", load.key(), load.value(), *load.option([b"KEEPTTL"], [b"NX"], [b"XX", b"GET"])]),
    (2, lambda load: [b"APPEND", load.key(), load.value()]),
    (2, lambda load: [b"INCRBY", load.key(), load.number()]),
    (1, lambda load: [b"INCRBYFLOAT", load.key(), load.number()]),
    (1, lambda load: [b"SETRANGE", load.key(), load.option([b"0"], [b"5"], [b"40"])[0], load.value()]),
    (3, lambda load: [b"MSET", *load.pairs(load.key, load.value)]),
    (1, lambda load: [b"MSETNX", *load.pairs(load.key, load.value)]),
    (1, lambda load: [b"GETDEL", load.key()]),
    (1, lambda load: [b"GETSET", load.key(), load.value()]),
    (1, lambda load: [b"GETEX", load.key(), *load.option([b"PERSIST"], [b"PX", load.time_ms()])]),
]
_HASHES: Final[Weighted] = [
    (5, lambda load: [b"HSET", load.key(), *load.pairs(load.member, load.value)]),
    (2, lambda load: [b"HDEL", load.key(), *load.members()]),
    (1, lambda load: [b"HINCRBY", load.key(), load.member(), load.number()]),
    (1, lambda load: [b"HSETNX", load.key(), load.member(), load.value()]),
]
_SETS: Final[Weighted] = [
    (5, lambda load: [b"SADD", load.key(), *load.members()]),
    (2, lambda load: [b"SREM", load.key(), *load.members()]),
    (2, lambda load: [b"SPOP", load.key(), *load.option([], [b"2"], [b"100"])]),
    (1, lambda load: [b"SMOVE", load.key(), load.key(), load.member()]),
    (1, lambda load: [b"SUNIONSTORE", load.key(), *load.keys()]),
    (1, lambda load: [load.option([b"SINTERSTORE"], [b"SDIFFSTORE"])[0], load.key(), *load.keys()]),
]
_SORTED_SETS: Final[Weighted] = [
    (5, lambda load: [b"ZADD", load.key(), *load.scores()]),
    (2, lambda load: [b"ZREM", load.key(), *load.members()]),
    (1, lambda load: [b"ZINCRBY", load.key(), load.score(), load.member()]),
    (1, lambda load: [load.option([b"ZPOPMIN"], [b"ZPOPMAX"])[0], load.key(), b"2"]),
    (1, lambda load: [b"ZREMRANGEBYRANK", load.key(), b"1", b"-2"]),
    (1, lambda load: [b"ZUNIONSTORE", load.key(), *load.numbered_keys()]),
    (1, lambda load: [b"ZRANGESTORE", load.key(), load.key(), b"0", b"-2"]),
]
_LISTS: Final[Weighted] = [
    (3, lambda load: [load.push(), load.key(), *load.members()]),
    (8, lambda load: [load.push(), load.list_key(), *load.elements()]),
    (5, lambda load: [load.option([b"LPOP"], [b"RPOP"])[0], load.list_key(), *load.option([], [b"1"], [b"3"])]),
    (2, lambda load: [b"LMOVE", load.list_key(), load.list_key(), load.side(), load.side()]),
    (1, lambda load: [b"LMPOP", b"2", load.list_key(), load.key(), load.side(), b"COUNT", load.few()]),
    (2, lambda load: [b"LSET", load.list_key(), load.index(), load.value()]),
    (
        3,
        lambda load: [
            b"LINSERT",
            load.list_key(),
            load.option([b"BEFORE"], [b"AFTER"])[0],
            load.member(),
            load.value(),
        ],
    ),
    (3, lambda load: [b"LREM", load.list_key(), load.option([b"0"], [b"2"], [b"-2"])[0], load.member()]),
    (3, lambda load: [b"LTRIM", load.list_key(), load.index(), load.option([b"-1"], [b"-2"], [b"40"])[0]]),
    (2, lambda load: [b"COPY", load.list_key(), load.list_key(), b"REPLACE"]),
    (1, lambda load: [b"DEL", load.list_key()]),
]
_STREAMS: Final[Weighted] = [
    (5, lambda load: [b"TWRITE", load.stream(), b"ENTRIES", *load.pairs(load.member, load.value)]),
    (6, lambda load: [b"TREAD", load.stream(), b"0", load.few(), b"GROUP", b"g", b"RETRY", load.wait(), load.wait()]),
    (2, lambda load: [b"TACK", load.stream(), b"g", load.few(), load.few()]),
    (2, lambda load: [b"TGROUP", load.stream(), b"g", *load.letters(), b"MAXPENDING", load.few()]),
    (1, lambda load: [b"TCONFIG", load.stream(), *load.rule()]),
    (1, lambda load: [b"TCOMPACT", load.stream()]),
    (1, lambda load: [b"XTRIM", load.stream(), b"MAXLEN", load.few()]),
]
"""With one group each."""
_COOLING: Final[Weighted] = [
    (14, lambda load: [b"TWRITE", load.stream(), b"ENTRIES", *load.pairs(load.member, load.value)]),
    (5, lambda load: [b"XADD", load.stream(), b"*", *load.pairs(load.member, load.member)]),
    *_STREAMS,
    (2, lambda load: [b"COPY", load.stream(), load.stream(), *load.option([b"REPLACE"], [b"DB", b"1", b"REPLACE"])]),
    (1, lambda load: [b"RENAME", load.stream(), load.stream()]),
    (1, lambda load: [b"MOVE", load.stream(), b"1"]),
    (1, lambda load: [b"DEL", load.stream()]),
]
_KEYS: Final[Weighted] = [
    (4, lambda load: [b"DEL", *load.keys()]),
    (6, lambda load: [b"PEXPIRE", load.key(), load.time_ms()]),
    (2, lambda load: [b"PEXPIRE", load.list_key(), load.time_ms()]),
    (2, lambda load: [b"PERSIST", load.key()]),
    (2, lambda load: [b"RENAME", load.key(), load.key()]),
    (2, lambda load: [b"COPY", load.key(), load.key(), *load.option([], [b"REPLACE"], [b"DB", b"1", b"REPLACE"])]),
    (1, lambda load: [b"MOVE", load.key(), b"1"]),
    (1, lambda load: load.option([b"FLUSHDB"], [b"FLUSHDB"], [b"FLUSHALL"])),
]
_READS: Final[Weighted] = [
    (2, lambda load: [b"MGET", *load.keys()]),
    (1, lambda load: load.option([b"RANDOMKEY"], [b"KEYS", b"k*"], [b"SCAN", b"0"])),
]
"""They come across what has expired."""
_EXPIRING: Final[Weighted] = [
    (2, lambda load: [b"SET", load.key(), load.value(), b"PX", load.time_ms()]),
    (3, lambda load: [b"PEXPIRE", load.key(), load.time_ms()]),
    (1, lambda load: [b"HSET", load.key(), *load.pairs(load.member, load.value)]),
]

FOCUSED: Final[dict[str, Weighted]] = {
    "streams": _STREAMS,
    "lists": _LISTS,
    "cooling": _COOLING,
    "expiries": _EXPIRING,
    "ranges": [(1, lambda load: load.range_delete()), *((4 * weight, draw) for weight, draw in _EXPIRING)],
}
"""Ranges are here alone: each looks at all slots, again with every start."""


def _drawn(weighted: Weighted) -> list[Callable[[Load], Words]]:
    return [draw for weight, draw in weighted for _ in range(weight)]


_DRAWN: Final = _drawn([*_STRINGS, *_HASHES, *_SETS, *_SORTED_SETS, *_LISTS, *_STREAMS, *_KEYS, *_READS])
