"""One stream, two families of commands: what T and X show of it agrees, whoever wrote it, also after a restart."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.redis_oracle import InProcess, decode, pack

WORD = st.sampled_from(["a", "b", "tag", "entry", "", "x" * 300])
FIELDS = st.lists(st.tuples(WORD, WORD), min_size=1, max_size=3).map(
    lambda pairs: [word for pair in pairs for word in pair]
)
TAGGED = st.tuples(WORD, WORD).map(lambda two: ["tag", two[0], "entry", two[1]])
COUNT = st.integers(1, 4)
PLACE = st.integers(0, 30)


def step(text: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Words, with what is drawn in the place of each `?`."""
    drawn = iter(parts)
    return st.tuples(*(next(drawn) if word == "?" else st.just(word) for word in text.split()))


STEP = st.one_of(
    step("XADD s * ?", FIELDS),
    step("XADD s * ?", TAGGED),
    step("TWRITE s ? ?", WORD, WORD),
    step("TWRITE s ENTRIES ? ? t e", WORD, WORD),
    step("XDEL ?", PLACE),
    step("XTRIM s MAXLEN ?", st.integers(0, 20)),
    step("TEVICT s ?", st.integers(-20, 30)),
    step("TREAD s 1 ? GROUP g", COUNT),
    step("TREAD s 1 ? GROUP g RETRY 1000000 0", COUNT),
    step("XREADGROUP GROUP g c COUNT ? STREAMS s >", COUNT),
    step("TACK s g ?", PLACE),
    step("XACK ?", PLACE),
    step("XGROUP SETID s g ?", st.sampled_from(["0", "$"])),
    step("restart"),
)


class Views:
    """A stream, and what was seen of its group."""

    def __init__(self) -> None:
        self.server = InProcess()
        self.server.reset(2)

    def call(self, *words: Any) -> Any:
        return decode(self.server.call(pack(words)))

    def run(self, step: tuple[Any, ...]) -> None:
        flat: list[Any] = []
        for word in step:
            flat += word if isinstance(word, list) else [word]
        if flat[0] == "restart":
            self.server.restart()
        elif flat[0] in ("XDEL", "XACK"):
            ids = [row[0] for row in self.call("XRANGE", "s", "-", "+")]
            if flat[1] < len(ids):
                self.call(flat[0], "s", *(["g"] if flat[0] == "XACK" else []), ids[flat[1]])
        elif flat[0] in ("XREADGROUP", "XGROUP") and isinstance(self.call("XINFO", "GROUPS", "s"), Exception):
            self.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        else:
            self.call(*flat)
        self.server.wait(1)

    def check(self) -> None:
        self.check_entries()
        self.check_group()

    def check_entries(self) -> None:
        through_x = self.call("XRANGE", "s", "-", "+")
        through_t = self.call("TREAD", "s", 1, 10_000)
        there = [row for row in through_t if row is not None]
        assert len(there) == len(through_x) == self.call("XLEN", "s")
        assert through_x == self.call("XREVRANGE", "s", "+", "-")[::-1]
        for (_, tag, entry), (_, fields) in zip(there, through_x, strict=True):
            if isinstance(entry, list):
                assert entry == fields
                at = next((at for at in range(0, len(fields), 2) if fields[at] == b"tag"), None)
                assert tag == (b"" if at is None else fields[at + 1])
            else:
                assert fields == [b"tag", tag, b"entry", entry]

    def check_group(self) -> None:
        groups = self.call("XINFO", "GROUPS", "s")
        if isinstance(groups, Exception):
            return
        info = self.call("TINFO", "s")
        through_t = dict(zip(info[::2], info[1::2], strict=True))
        assert through_t[b"length"] == self.call("XLEN", "s")
        for theirs, ours in zip(groups, through_t[b"groups"], strict=True):
            x, t = (dict(zip(each[::2], each[1::2], strict=True)) for each in (theirs, ours))
            assert (x[b"name"], x[b"pending"]) == (t[b"name"], t[b"pending"])
            total, _, _, consumers = self.call("XPENDING", "s", x[b"name"])
            assert total == x[b"pending"] == sum(int(count) for _, count in consumers or [])
            assert len(self.call("XPENDING", "s", x[b"name"], "-", "+", 10_000)) == total


@given(st.lists(STEP, min_size=5, max_size=60))
@settings(max_examples=60)
def test_both_families_see_the_same(steps: list[tuple[Any, ...]]) -> None:
    views = Views()
    for step in steps:
        views.run(step)
        views.check()
    views.server.restart()
    views.check()


@given(st.lists(STEP, min_size=5, max_size=60), st.integers(1, 5))
@settings(max_examples=40)
def test_a_group_gives_every_entry_once(steps: list[tuple[Any, ...]], count: int) -> None:
    """Readers of both families share a group: together they get everything that is there, nothing twice."""
    views = Views()
    for step in steps:
        if step[0] in ("XADD", "TWRITE", "XDEL", "XTRIM", "restart"):
            views.run(step)
    views.call("XGROUP", "CREATE", "s", "both", "0", "MKSTREAM")
    expected = [row[0] for row in views.call("XRANGE", "s", "-", "+")]
    offsets = [row[0] for row in views.call("TREAD", "s", 1, 10_000) if row is not None]
    found: list[Any] = []
    while True:
        reply = views.call("XREADGROUP", "GROUP", "both", "c", "COUNT", count, "STREAMS", "s", ">")
        found += [row[0] for row in reply[0][1]] if reply else []
        rows = views.call("TREAD", "s", 1, 1, "GROUP", "both", "RETRY", 10**6, 0)
        found += [expected[offsets.index(row[0])] for row in rows]
        if not rows:
            break
    assert found == expected
    pending = views.call("XPENDING", "s", "both", "-", "+", 10_000)
    assert [row[0] for row in pending] == expected
    assert views.call("XACK", "s", "both", *(expected or ["1-1"])) == len(expected)
    assert views.call("XPENDING", "s", "both")[0] == 0
