"""Lists that are rebuilt from feeds are the lists of the store: after every change, from disk, and begun in the middle.

`tests/feeds/rebuilt.py` is the reader: it also checks that what a pop or a removal tells was there.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.feeds.made import EVERYTHING, Watched
from tests.feeds.rebuilt import difference, state_of
from tidelog import limits
from tidelog.ids import Ts


def some_command(rng: Random) -> list[str]:
    """A change of one of few lists, which are often short and sometimes long."""
    key, other = (f"l{rng.randrange(3)}" for _ in range(2))
    element, index, count = rng.choice(["a", "b", "c", "longer"]), rng.randrange(-6, 6), rng.choice([1, 1, 2, 5])
    many = [rng.choice(["a", "b", "c", "longer", "d"]) for _ in range(rng.choice([1, 1, 2, 9, 30]))]
    end, to = rng.choice(["LEFT", "RIGHT"]), rng.choice(["LEFT", "RIGHT"])
    return rng.choice(
        [
            ["LPUSH", key, *many],
            ["RPUSH", key, *many],
            ["LPOP", key],
            ["RPOP", key],
            [rng.choice(["LPOP", "RPOP"]), key, str(count * rng.choice([1, 9]))],
            ["LMPOP", "2", key, other, end, "COUNT", str(count)],
            ["LSET", key, str(index), element],
            ["LINSERT", key, rng.choice(["BEFORE", "AFTER"]), element, rng.choice("xyz")],
            ["LREM", key, str(rng.choice([0, 1, -1, 3, -20])), element],
            ["LTRIM", key, str(index), str(rng.randrange(-3, 30))],
            ["LMOVE", key, other, end, to],
            ["RENAME", key, other],
            ["COPY", key, other, "REPLACE"],
            ["DEL", key],
            ["SET", "s", element],
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_lists_are_rebuilt(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 7)
    if seed % 2:  # pops of this much do not tell their elements
        monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 5)
    watched = Watched(shard_count=rng.choice([1, 3]))
    readers = [watched.watch()[1]]
    for step in range(300):
        watched(*some_command(rng))
        if step % 60 == 30:
            if step % 120 == 30:  # changes come between the pieces of the values that it begins with
                watched.feeds.work(0)
            readers.append(watched.watch(is_initial=True, protocol=rng.choice([2, 3]))[1])
            watched.feeds.work(0)
        if rng.random() < 0.3:
            watched.settle()
    watched.settle()
    readers.append(watched.watch(since=Ts(0))[1])
    watched.settle()
    expected = state_of(watched.store.database(0), EVERYTHING)
    for known in readers:
        assert known.is_steady
        assert difference(known.state, expected) == ""
    watched.restart()
    assert difference(state_of(watched.store.database(0), EVERYTHING), expected) == ""
