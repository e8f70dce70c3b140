"""XGROUP, XREADGROUP, XACK, XPENDING, XCLAIM, XAUTOCLAIM and XINFO on Tidelog and on a real Redis.

Redis 7.2 differs from the 7.0 that may be here in this: a consumer is made also if it is given nothing, and XINFO tells
when it was last given something (`inactive`, `active-time`). Where that shows, the test says so.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.redis_oracle import Item, Pair, decode

MAX: Final = 2**64 - 1
_TIMES: Final = (b"idle", b"seen-time")
_OF_7_2: Final = (b"inactive", b"active-time")
_OF_NODES: Final = (b"radix-tree-keys", b"radix-tree-nodes")


def SETTLED(item: Item) -> Any:
    """A reply without times (numbers above a million), without what only Redis 7.2 tells, and without nodes."""
    if not isinstance(item.value, tuple):
        return "time" if item.mark == ":" and int(item.value) > 1_000_000 else item
    inner = list(item.value)
    found = []
    at = 0
    while at < len(inner):
        name = inner[at].value
        if isinstance(name, bytes) and name in _OF_7_2 + _OF_NODES:
            at += 2
        elif isinstance(name, bytes) and name in _TIMES:
            found.append(name)
            at += 2
        else:
            found.append(SETTLED(inner[at]))
            at += 1
    return item.mark, found


def IDLE(item: Item) -> Any:
    """XPENDING with a range, or anything else, without how long entries have been idle."""
    if isinstance(item.value, tuple) and len(item.value) == 4 and item.value[2].mark == ":":
        return item.value[0], item.value[1], item.value[3]
    return (item.mark, [IDLE(inner) for inner in item.value]) if isinstance(item.value, tuple) else item


def look(pair: Pair, key: str = "s", group: str = "g") -> None:
    """Everything that can be seen of a group."""
    pair("XINFO", "GROUPS", key)
    pair("XINFO", "CONSUMERS", key, group, order=SETTLED)
    pair("XPENDING", key, group)
    pair("XPENDING", key, group, "-", "+", 1000, order=IDLE)
    pair("XINFO", "STREAM", key, order=SETTLED)
    pair("XINFO", "STREAM", key, "FULL", "COUNT", 0, order=SETTLED)


def fill(pair: Pair, count: int = 10, key: str = "s") -> None:
    for number in range(1, count + 1):
        pair("XADD", key, f"{number}-1", "n", number)


def consumers(pair: Pair, *names: str, key: str = "s", group: str = "g") -> None:
    """Make consumers, so that it does not matter when Redis does."""
    for name in names:
        pair("XGROUP", "CREATECONSUMER", key, group, name)


@pytest.mark.parametrize("words", [
    "CREATE s g 0", "CREATE s g $", "CREATE s g 3", "CREATE s g 3-1", "CREATE s g 99", "CREATE s g x", "CREATE s g -",
    "CREATE s g +", "CREATE s g 0 MKSTREAM", "CREATE new g 0", "CREATE new g $ MKSTREAM", "CREATE new g 5 MKSTREAM",
    "CREATE new g x MKSTREAM", "CREATE s old 0", "CREATE s old 0 MKSTREAM", "CREATE s g 0 ENTRIESREAD 3",
    "CREATE s g 0 ENTRIESREAD -1", "CREATE s g 0 ENTRIESREAD -2", "CREATE s g 0 ENTRIESREAD x",
    "CREATE s g 0 ENTRIESREAD",
    "CREATE s g 0 FOO", "CREATE s g 0 MKSTREAM MKSTREAM", "CREATE s g 0 MKSTREAM ENTRIESREAD 5",
    "CREATE new g 0 MKSTREAM MKSTREAM ENTRIESREAD 5", "CREATE new g 0 ENTRIESREAD 1 ENTRIESREAD 2",
    "CREATE s g 0 mkstream",
    "CREATE none g 0 FOO", "CREATE text g 0 FOO", "CREATE text g 0", "create s g 0", "SETID s old 0", "SETID s old $",
    "SETID s old 4-1", "SETID s old 99", "SETID s old x", "SETID s old -", "SETID s old +", "SETID s none 0",
    "SETID none g 0", "SETID s old 0 ENTRIESREAD 7", "SETID s old 0 ENTRIESREAD", "SETID s old 0 ENTRIESREAD -3",
    "SETID s old 0 MKSTREAM", "SETID s old 0 ENTRIESREAD 1 ENTRIESREAD 2", "SETID s none x", "DESTROY s old",
    "DESTROY s none", "DESTROY none g", "CREATECONSUMER s old new", "CREATECONSUMER s old c",
    "CREATECONSUMER s none c",
    "CREATECONSUMER none g c", "DELCONSUMER s old c", "DELCONSUMER s old none", "DELCONSUMER s none c",
    "DELCONSUMER none g c",
])  # fmt: skip
def test_groups(pair2: Pair, words: str) -> None:
    pair = pair2
    pair("SET", "text", "x")
    fill(pair, 5)
    pair("XGROUP", "CREATE", "s", "old", "0")
    pair("XREADGROUP", "GROUP", "old", "c", "COUNT", 2, "STREAMS", "s", ">")
    pair("XGROUP", *words.split())
    for group in ("g", "old"):
        pair("XGROUP", "CREATECONSUMER", "s", group, "c")
    for again in range(2):
        for key in ("s", "new"):
            pair("XINFO", "GROUPS", key)
            pair("XINFO", "STREAM", key, "FULL", order=SETTLED)
            pair("XADD", key, "NOMKSTREAM", f"{6 + again}-1", "a", "b")
        for group in ("g", "old"):
            pair("XREADGROUP", "GROUP", group, "c", "COUNT", 3, "STREAMS", "s", ">")
            pair("XPENDING", "s", group)
        pair.restart()


@pytest.mark.parametrize("command", ["XGROUP HELP", "XINFO HELP", "OBJECT HELP", "object help"])
def test_help(both: Any, command: str) -> None:
    both.admin(*command.split())


def test_group_reads(pair: Pair) -> None:
    fill(pair, 10)
    fill(pair, 3, "t")
    for key in ("s", "t"):
        pair("XGROUP", "CREATE", key, "g", "0")
        consumers(pair, "a", "b", key=key)
    read = ("XREADGROUP", "GROUP", "g")
    pair(*read, "a", "COUNT", 2, "STREAMS", "s", ">")
    pair(*read, "b", "COUNT", 1, "STREAMS", "s", "t", ">", ">")
    pair(*read, "a", "STREAMS", "s", "0")
    pair(*read, "b", "STREAMS", "s", "t", "0", "1-1")
    pair(*read, "a", "COUNT", 1, "STREAMS", "s", "0")
    pair(*read, "a", "STREAMS", "s", "1-1")
    pair(*read, "a", "STREAMS", "s", f"{MAX}-{MAX}")
    pair(*read, "a", "NOACK", "COUNT", 2, "STREAMS", "t", ">")
    look(pair)
    look(pair, "t")
    pair("XDEL", "s", "1-1", "5-1", "4-1")
    pair(*read, "a", "STREAMS", "s", "0")
    pair(*read, "a", "COUNT", 100, "STREAMS", "s", "t", ">", ">")
    pair(*read, "a", "COUNT", 100, "STREAMS", "s", "t", ">", ">")
    pair(*read, "a", "BLOCK", 1, "COUNT", 100, "STREAMS", "s", "0")
    look(pair)
    pair.restart()
    look(pair)
    look(pair, "t")


@pytest.mark.parametrize("ids", ["> 0", "> >", "0 0", "> 0 >", "0 > 0", "> 0 0"])
@pytest.mark.parametrize("options", ["", "COUNT 2", "NOACK", "COUNT 1 NOACK"])
def test_a_key_that_is_named_twice(pair2: Pair, ids: str, options: str) -> None:
    fill(pair2, 5)
    pair2("XGROUP", "CREATE", "s", "g", "0")
    pair2("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")
    for _ in range(2):
        keys = ["s"] * len(ids.split())
        pair2("XREADGROUP", "GROUP", "g", "c", *options.split(), "STREAMS", *keys, *ids.split())
        look(pair2)


def test_group_reads_that_fail(pair: Pair) -> None:
    fill(pair, 3)
    pair("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair, "c")
    pair("SET", "text", "x")
    for words in (
        "GROUP g c STREAMS s $", "GROUP g c STREAMS s x", "GROUP g c STREAMS s -", "GROUP g c STREAMS s +",
        "GROUP none c STREAMS s >", "GROUP g c STREAMS none >", "GROUP g c STREAMS s none > >",
        "GROUP g c STREAMS text >",
        "GROUP g c STREAMS none text > >", "GROUP g c STREAMS s text x >", "COUNT 1 COUNT 1 STREAMS s >",
        "GROUP g c COUNT x STREAMS s >",
        "GROUP g c BLOCK -1 STREAMS s >", "GROUP g c BLOCK x STREAMS s >", "GROUP g c FOO STREAMS s >",
        "GROUP g c COUNT 1 NOACK FOO",
        "GROUP g STREAMS s > x y", "NOACK BLOCK 0 STREAMS s >", "GROUP g c COUNT 5 BLOCK 5",
    ):  # fmt: skip
        pair("XREADGROUP", *words.split())
    look(pair)


def test_groups_that_go_back_and_forth(pair: Pair) -> None:
    fill(pair, 10)
    pair("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair, "a", "b")
    for number, consumer in (("0", "a"), ("3", "b"), ("8-1", "a"), ("99", "b"), ("$", "a"), ("5", "b"), ("-", "a")):
        pair("XGROUP", "SETID", "s", "g", number)
        pair("XINFO", "GROUPS", "s")
        pair("XREADGROUP", "GROUP", "g", consumer, "COUNT", 3, "STREAMS", "s", ">")
        look(pair)
    pair("XACK", "s", "g", "4-1", "4-1", "5-1", "77-1")
    pair("XACK", "s", "g", "1-1", "x")
    pair("XACK", "s", "none", "x")
    pair("XACK", "none", "g", "x")
    pair("XGROUP", "DELCONSUMER", "s", "g", "a")
    look(pair)
    pair.restart()
    look(pair)


@pytest.mark.parametrize("words", [
    "", "- +", "- + 10", "- + 2", "3 5 10", "(3-1 (5-1 10", "- + 10 a", "- + 10 b", "- + 10 none", "- + 0", "- + -1",
    "- + x", "x + 10", "- x 10", "IDLE 0 - + 10", "IDLE 0 - + 10 a", "IDLE 100000 - + 10", "IDLE x - + 10",
    "IDLE 0 - +",
    "IDLE 0 - 10", "IDLE -5 - + 10", "- + 10 a x", "- + 10 a x y", "- + 10 a x y z", "idle 0 - + 10 b", "+ - 10", "5",
    f"({MAX}-{MAX} + 10", "- (0-0 10", "(3 5 10", "3 (5 10",
])  # fmt: skip
def test_pending(pair: Pair, words: str) -> None:
    fill(pair, 8)
    pair("XGROUP", "CREATE", "s", "g", "0")
    pair("XPENDING", "s", "g", *words.split(), order=IDLE)
    consumers(pair, "a", "b", "idle")
    pair("XREADGROUP", "GROUP", "g", "b", "COUNT", 3, "STREAMS", "s", ">")
    pair("XREADGROUP", "GROUP", "g", "a", "COUNT", 3, "STREAMS", "s", ">")
    pair("XDEL", "s", "2-1")
    for key, group in (("s", "g"), ("none", "g"), ("s", "none")):
        pair("XPENDING", key, group, *words.split(), order=IDLE)


def test_idle_times(pair2: Pair) -> None:
    pair = pair2
    fill(pair, 4)
    pair("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair, "a", "b")
    pair("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">")
    pair.wait(300)
    pair("XREADGROUP", "GROUP", "g", "a", "COUNT", 1, "STREAMS", "s", ">")
    pair("XPENDING", "s", "g", "IDLE", 200, "-", "+", 10, order=IDLE)
    pair("XPENDING", "s", "g", "IDLE", 200, "-", "+", 10, "a", order=IDLE)
    pair("XCLAIM", "s", "g", "b", 200, "1-1", "3-1")
    pair("XAUTOCLAIM", "s", "g", "b", 200, "-")
    pair("XCLAIM", "s", "g", "b", 200, "1-1")
    for row in pair.each("XPENDING", "s", "g", "-", "+", 10):
        assert all(0 <= idle < 200 for _, _, idle, _ in row)
    pair("XCLAIM", "s", "g", "a", 0, "1-1", "IDLE", 5000)
    pair("XCLAIM", "s", "g", "a", 0, "2-1", "TIME", 1000)
    pair("XCLAIM", "s", "g", "a", 0, "3-1", "TIME", 2**60)
    for row in pair.each("XPENDING", "s", "g", "-", "+", 10):
        idles = [idle for _, _, idle, _ in row]
        assert 5000 <= idles[0] < 5300
        assert idles[1] > 10**12
        assert idles[2] < 300
    for name, inactive in ((b"a", None), (b"b", None)):
        theirs, ours = pair.each("XINFO", "CONSUMERS", "s", "g")
        found = {row[1]: dict(zip(row[::2], row[1::2], strict=True)) for row in ours}
        assert found[name][b"inactive"] < 300, inactive
        assert len(theirs) == 2


@pytest.mark.parametrize("words", [
    "0 1-1", "0 1-1 2-1 9-1", "0 1-1 1-1", "1000000 1-1", "1000000 1-1 FORCE", "0 8-1 FORCE", "0 8-1", "0 99-1 FORCE",
    "0 2-1", "0 2-1 FORCE", "0 1-1 JUSTID", "0 1-1 8-1 FORCE JUSTID", "0 1-1 RETRYCOUNT 7",
    "0 1-1 RETRYCOUNT 0 JUSTID",
    "0 1-1 RETRYCOUNT -1", "0 1-1 RETRYCOUNT x", "0 1-1 IDLE x", "0 1-1 TIME x", "0 1-1 IDLE", "0 1-1 FOO",
    "0 FORCE", "0 x",
    "0 1-1 x", "0 1-1 FORCE 3-1", "x 1-1", "-5 1-1", "0 1-1 LASTID 9-1", "0 1-1 LASTID 1-1", "0 1-1 LASTID x",
    "0 1-1 LASTID 99", "0 1-1 IDLE 5 TIME 6 RETRYCOUNT 3 FORCE JUSTID LASTID 7", "0 1-1 IDLE -5", "0 1-1 TIME -1",
    "0 1-1 8-1 8-1 FORCE", "0 1-1 3-1 force justid", "0 8-1 FORCE RETRYCOUNT 5", "0 6", "0 1-1 TIME 5 IDLE 6",
    "1000000 8-1 8-1 FORCE", "9223372036854775807 1-1", "0 2-1 2-1 FORCE LASTID 2", "0 1-1 LASTID",
])  # fmt: skip
def test_claim(pair: Pair, words: str) -> None:
    fill(pair, 10)
    pair("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair, "a", "b")
    pair("XREADGROUP", "GROUP", "g", "a", "COUNT", 5, "STREAMS", "s", ">")
    pair("XDEL", "s", "2-1")
    for key, group in (("none", "g"), ("s", "none"), ("s", "g")):
        for consumer in ("b", "a", "b"):
            pair("XCLAIM", key, group, consumer, *words.split())
    look(pair)
    pair("XREADGROUP", "GROUP", "g", "b", "COUNT", 5, "STREAMS", "s", ">")
    pair.restart()
    look(pair)


@pytest.mark.parametrize("words", [
    "0 0", "0 -", "0 +", "0 3-1", "0 (3-1", "0 3", "0 99", "0 x", "x 0", "-1 0", "1000000 0", "0 0 COUNT 1",
    "0 0 COUNT 2",
    "0 0 COUNT 3", "0 0 COUNT 0", "0 0 COUNT -1", "0 0 COUNT x", "0 0 COUNT", "0 0 JUSTID", "0 0 JUSTID COUNT 4",
    "0 0 COUNT 4 JUSTID", "0 0 FOO", "0 0 COUNT 1 COUNT 2", "1000000 0 COUNT 1", "0 0 COUNT 5", "0 0 COUNT 6 justid",
    f"0 ({MAX}-{MAX}", "0 0 COUNT 9223372036854775807", "0 0 COUNT 9223372036854775808",
])  # fmt: skip
def test_claim_of_what_is_idle(pair: Pair, words: str) -> None:
    fill(pair, 30)
    pair("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair, "a", "b")
    pair("XREADGROUP", "GROUP", "g", "a", "COUNT", 25, "STREAMS", "s", ">")
    pair("XDEL", "s", "2-1", "3-1", "5-1")
    for key, group in (("none", "g"), ("s", "none"), ("s", "g")):
        for consumer in ("b", "a"):
            pair("XAUTOCLAIM", key, group, consumer, *words.split())
    look(pair)
    pair.restart()
    look(pair)


def test_claiming_until_the_end(pair2: Pair) -> None:
    fill(pair2, 57)
    pair2("XGROUP", "CREATE", "s", "g", "0")
    consumers(pair2, "a", "b")
    pair2("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    pair2("XDEL", "s", *(f"{number}-1" for number in range(1, 57, 5)))
    cursor = b"0"
    while True:
        cursor, *_ = pair2("XAUTOCLAIM", "s", "g", "b", 0, cursor, "COUNT", 10)
        look(pair2)
        if cursor == b"0-0":
            break


@pytest.mark.parametrize("words", ["", "FULL", "FULL COUNT 0", "FULL COUNT 1", "FULL COUNT -1", "FULL COUNT 2",
                                   "FULL COUNT x",
                                   "FULL COUNT", "FOO", "FULL FOO 1", "full count 3", "FULL COUNT 1 2"])  # fmt: skip
def test_info(pair: Pair, words: str) -> None:
    fill(pair, 20)
    for group, number in (("zeta", "0"), ("alpha", "$"), ("mid", "5")):
        pair("XGROUP", "CREATE", "s", group, number)
        consumers(pair, "b", "a", "c", group=group)
        pair("XREADGROUP", "GROUP", group, "b", "COUNT", 4, "STREAMS", "s", ">")
        pair("XREADGROUP", "GROUP", group, "a", "COUNT", 9, "STREAMS", "s", ">")
    for key in ("s", "none"):
        pair("XINFO", "STREAM", key, *words.split(), order=SETTLED)
    pair("XINFO", "GROUPS", "s")
    pair("XINFO", "GROUPS", "none")
    pair("XINFO", "CONSUMERS", "s", "mid", order=SETTLED)
    pair("XINFO", "CONSUMERS", "s", "none")
    pair("XINFO", "CONSUMERS", "none", "g")


def test_lag(pair2: Pair) -> None:
    """When Redis knows how far behind a group is, and when it does not."""
    pair = pair2
    pair("XGROUP", "CREATE", "s", "new", "$", "MKSTREAM")
    fill(pair, 10)
    for name, number in (("zero", "0"), ("mid", "4-1"), ("first", "1-1"), ("last", "$"), ("future", "99")):
        pair("XGROUP", "CREATE", "s", name, number)
    pair("XGROUP", "CREATE", "s", "told", "4-1", "ENTRIESREAD", "4")

    for name in ("new", "zero", "mid", "first", "last", "future", "told"):
        consumers(pair, "c", group=name)

    def reads() -> None:
        for name in ("new", "zero", "mid", "first", "last", "future", "told"):
            pair("XREADGROUP", "GROUP", name, "c", "COUNT", 2, "STREAMS", "s", ">")
            pair("XINFO", "GROUPS", "s")

    reads()
    for command in ("XDEL s 1-1", "XDEL s 7-1", "XTRIM s MAXLEN 6", "XADD s 11-1 a b", "XTRIM s MAXLEN 2",
                    "XDEL s 10-1",
                    "XADD s 12-1 a b", "XSETID s 20-1 ENTRIESADDED 50", "XADD s 21-1 a b", "XDEL s 21-1",
                    "XTRIM s MAXLEN 0", "XADD s 22-1 a b", "XDEL s 22-1", "XSETID s 30-1 MAXDELETEDID 29-1",
                    "XADD s 31-1 a b", "XADD s 32-1 a b", "XSETID s 40-1 MAXDELETEDID 32-1"):  # fmt: skip
        pair(*command.split())
        pair("XINFO", "GROUPS", "s")
        reads()
        pair("XINFO", "STREAM", "s", "FULL", order=SETTLED)
    pair.restart()
    pair("XINFO", "GROUPS", "s")


# --- what Redis 7.2 does and 7.0 does not -------------------------------------------------------------------------


def test_a_consumer_is_made_whatever_it_gets(pair2: Pair) -> None:
    """Redis 7.2; 7.0 makes it when it is given something."""
    fill(pair2, 2)
    pair2("XGROUP", "CREATE", "s", "g", "$")
    for command in ("XREADGROUP GROUP g a STREAMS s >", "XCLAIM s g b 0 1-1", "XAUTOCLAIM s g c 0 0"):
        pair2(*command.split())
    assert pair2.each("XGROUP", "CREATECONSUMER", "s", "g", "d")[1] == 1
    pair2.restart()
    rows = pair2.each("XINFO", "CONSUMERS", "s", "g")[1]
    assert [row[1] for row in rows] == [b"a", b"b", b"c", b"d"]
    assert all(row[-2:] == [b"inactive", -1] for row in rows)


def test_seen_and_active(pair2: Pair) -> None:
    """Redis 7.2: `idle` is since it last tried, `inactive` since it last was given something to keep."""

    def times() -> dict[bytes, tuple[int, int]]:
        return {row[1]: (row[5], row[7]) for row in pair2.each("XINFO", "CONSUMERS", "s", "g")[1]}

    fill(pair2, 6)
    pair2("XGROUP", "CREATE", "s", "g", "0")
    for command in ("XREADGROUP GROUP g a COUNT 1 STREAMS s >", "XREADGROUP GROUP g b COUNT 1 NOACK STREAMS s >"):
        pair2.each(*command.split())
    pair2.tidelog.wait(2000)
    pair2.restart()
    assert times() == {b"a": (2000, 2000), b"b": (2000, -1)}
    pair2.each("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", "0")
    assert times() == {b"a": (0, 2000), b"b": (2000, -1)}
    pair2.each("XCLAIM", "s", "g", "b", 0, "99-1")
    assert times() == {b"a": (0, 2000), b"b": (0, -1)}
    pair2.each("XAUTOCLAIM", "s", "g", "b", 0, "0")
    assert times() == {b"a": (0, 2000), b"b": (0, 0)}


def test_polling_for_nothing_is_journaled_once_a_second(pair2: Pair) -> None:
    pair2("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    read = ("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    assert pair2.records(*read) == 1
    assert pair2.records(*read) == 0
    pair2.tidelog.wait(1000)
    assert pair2.records(*read) == 1


def test_records(pair2: Pair) -> None:
    fill(pair2, 10)
    assert pair2.records("XGROUP", "CREATE", "s", "g", "0") == 1
    assert pair2.records("XGROUP", "CREATE", "s", "g", "0") == 0
    assert pair2.records("XREADGROUP", "GROUP", "g", "a", "COUNT", 5, "STREAMS", "s", ">") == 1
    assert pair2.records("XACK", "s", "g", "1-1", "2-1") == 1
    assert pair2.records("XACK", "s", "g", "1-1", "2-1") == 0
    assert pair2.records("XPENDING", "s", "g", order=IDLE) == 0
    assert pair2.records("XGROUP", "DELCONSUMER", "s", "g", "none") == 0
    assert pair2.records("XGROUP", "DELCONSUMER", "s", "g", "a") == 1
    assert pair2.records("XGROUP", "DESTROY", "s", "g") == 1
    assert pair2.records("XGROUP", "DESTROY", "s", "g") == 0


def test_the_empty_name_is_no_consumer(pair2: Pair) -> None:
    """It is that of everyone who reads with TREAD; Redis takes it for a name like any other."""
    fill(pair2, 2)
    pair2("XGROUP", "CREATE", "s", "g", "0")
    for command in (["XREADGROUP", "GROUP", "g", "", "STREAMS", "s", ">"], ["XGROUP", "CREATECONSUMER", "s", "g", ""],
                    ["XCLAIM", "s", "g", "", "0", "1-1"], ["XAUTOCLAIM", "s", "g", "", "0", "0"]):  # fmt: skip
        reply = decode(pair2.tidelog.call([word.encode() for word in command]))
        assert str(reply) == "ERR the name of a consumer must not be empty"
