"""The commands of `store_load`, and those of streams: appended, evicted, cut, copied, read by groups."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.store_load import Load, Words

_NUMBERED: Final = b"k3s"
"""Has entries whose ids are known."""
_LATE_MS: Final = 10**13
"""After all ids that come from the clock."""
STREAMS: Final = [b"k7", b"k2s", b"{k0}s", _NUMBERED]
LISTS: Final = [b"k1", b"k8l", b"{k0}l"]
GROUPS: Final = [b"g", b"h"]


class FeedLoad(Load):
    """Draws commands."""

    def __init__(self, rng: Random, value_bytes_max: int) -> None:
        super().__init__(rng, value_bytes_max)
        self._entry_count = 0

    def command(self) -> Words:
        if self._rng.random() < 0.3:
            return self._rng.choice(_DRAWN)(self)
        return super().command()

    def stream(self) -> bytes:
        return self._rng.choice(STREAMS)

    def list_key(self) -> bytes:
        return self._rng.choice(LISTS)

    def elements(self) -> Words:
        """Often so many that INITIAL tells of them in several events."""
        return super().elements() * self._rng.choice((1, 1, 9))

    def group(self) -> bytes:
        return self._rng.choice(GROUPS)

    def new_id(self) -> bytes:
        self._entry_count += 1
        return b"%d-0" % (_LATE_MS + self._entry_count)

    def known_id(self) -> bytes:
        return b"%d-0" % (_LATE_MS + max(1, self._entry_count - self._rng.randint(0, 4)))

    def around_a_flush(self) -> list[Words]:
        """A transaction over several shards with a flush in the middle."""
        return [
            [b"MSET", *self.pairs(self.key, self.value)],
            self._rng.choice(([b"FLUSHDB"], self.range_delete())),
            *([b"MSET", *self.pairs(self.key, self.value)] for _ in range(self._rng.randint(0, 2))),
        ]

    def offset(self) -> bytes:
        return b"%d" % self._rng.randint(1, 30)


_COMMANDS: Final[list[tuple[int, Callable[[FeedLoad], Words]]]] = [
    (5, lambda load: [b"XADD", load.stream(), b"*", load.member(), load.value()]),
    (3, lambda load: [b"XADD", _NUMBERED, load.new_id(), load.member(), load.value()]),
    (2, lambda load: [b"XDEL", _NUMBERED, load.known_id()]),
    (3, lambda load: [b"TWRITE", load.stream(), b"ENTRIES", *[b"t", b"an entry of many"] * 30]),
    (2, lambda load: [b"XADD", load.stream(), b"MAXLEN", b"4", b"*", load.member(), load.value()]),
    (5, lambda load: [b"TWRITE", load.stream(), b"ENTRIES", *load.pairs(load.member, load.value)]),
    (1, lambda load: [b"TWRITE", load.stream(), b"BACKLOG", b"3", b"ENTRIES", *load.pairs(load.member, load.value)]),
    (2, lambda load: [b"TEVICT", load.stream(), load.offset()]),
    (2, lambda load: [b"XTRIM", load.stream(), b"MAXLEN", load.option([b"2"], [b"5"])[0]]),
    (2, lambda load: [b"TCOMPACT", load.stream()]),
    (1, lambda load: [b"TCONFIG", load.stream(), *load.rule()]),
    (2, lambda load: [b"XSETID", load.stream(), load.new_id()]),
    (1, lambda load: [b"XGROUP", b"CREATE", load.stream(), load.group(), b"0", b"MKSTREAM"]),
    (2, lambda load: [b"XREADGROUP", b"GROUP", load.group(), b"c", b"COUNT", b"2", b"STREAMS", load.stream(), b">"]),
    (1, lambda load: [b"XGROUP", b"DESTROY", load.stream(), load.group()]),
    (1, lambda load: [b"DEL", load.stream()]),
    (2, lambda load: load.range_delete()),
    (2, lambda load: [b"RENAME", load.stream(), load.stream()]),
    (3, lambda load: [b"COPY", load.stream(), load.stream(), b"REPLACE"]),
]
_DRAWN: Final = [draw for weight, draw in _COMMANDS for _ in range(weight)]
