"""XADD, XLEN, XRANGE, XREVRANGE, XDEL, XTRIM, XSETID and XREAD on Tidelog and on a real Redis."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.redis_oracle import Item, Pair, decode

MAX: Final = 2**64 - 1


def NODES(item: Item) -> Any:
    """XINFO without what it tells of the radix tree: nodes are of other sizes here."""
    value = item.value
    if not isinstance(value, tuple):
        return item
    names = [inner.value for inner in value]
    skipped = {at + 1 for at, name in enumerate(names) if isinstance(name, bytes) and name.startswith(b"radix-tree")}
    return item.mark, [NODES(inner) for at, inner in enumerate(value) if at not in skipped]


def info(pair: Pair, key: str = "s") -> None:
    pair("XINFO", "STREAM", key, order=NODES)
    pair("XLEN", key)
    pair("XRANGE", key, "-", "+")


def fill(pair: Pair, count: int = 10, key: str = "s") -> None:
    for number in range(1, count + 1):
        pair("XADD", key, f"{number}-1", "n", number, "name", f"value {number}")


def test_add(pair: Pair) -> None:
    pair("XADD", "s", "1-1", "a", "b")
    pair("XADD", "s", "1-2", "a", "b", "a", "c")
    pair("XADD", "s", "1-*", "", "")
    pair("XADD", "s", "2-*", "x", b"\x00\xff\r\n")
    pair("XADD", "s", "5", "x" * 300, "y" * 70_000)
    pair("XADD", "s", "6-0", "tag", "t", "entry", "e")
    pair("XADD", "s", "7-0", "entry", "e", "tag", "t")
    pair("XADD", "s", "8-0", *range(2000))
    pair("XADD", "new", "0-*", "a", "b")
    pair("XADD", "new2", "0-1", "a", "b")
    pair("TYPE", "s")
    info(pair)
    pair.same_state()
    pair.restart()
    pair.same_state()
    info(pair)


@pytest.mark.parametrize("number", ["1-1", "0-0", "0", "0-*", "1", "1-0", "2-0", "2-1", "2-2", "2-*", "3-0", "1-*",
                                    "-", "+", "$", ">", "", "x", "1-", "-1", "1-x", "1-1-1", "1--1", "1-*x", "*-1",
                                    "1-**", "01-002", " 4-1", "+4-+7", "4-1 ", "4- 9", "4--09", "(5", "(5-1", "1.5",
                                    MAX, MAX + 1, f"{MAX}-{MAX}", f"{MAX}-{MAX + 1}", f"{MAX}-*", f"2-{MAX}",
                                    "9" * 130, "0" * 120 + "7", b"5\x00x", b"5-3\x00-3"])  # fmt: skip
def test_ids_that_are_given(pair2: Pair, number: Any) -> None:
    pair = pair2
    for key, before in (("none", None), ("s", "2-1"), ("t", f"2-{MAX}"), ("u", f"{MAX}-{MAX - 1}")):
        if before:
            pair("XADD", key, before, "a", "b")
        if (key, number) == ("t", "2-*"):
            continue  # see below
        pair("XADD", key, number, "c", "d")
        pair("XADD", key, "NOMKSTREAM", "MAXLEN", "~", "10", number, "c", "d")
        pair("XRANGE", key, "-", "+")
        pair("XRANGE", key, number, "+")
        pair("XRANGE", key, "-", number)
        pair("XREVRANGE", key, number, number, "COUNT", 1)
        pair("XREAD", "STREAMS", key, number if number not in ("$", "+") else "0")
        pair("XDEL", key, number)
        pair("XTRIM", key, "MINID", number)
        pair("XSETID", key, number)
        pair("XRANGE", key, "-", "+")
    pair.same_state()


def test_what_redis_7_2_says_and_the_one_here_does_not_yet(pair2: Pair) -> None:
    pair2("XADD", "t", f"2-{MAX}", "a", "b")
    ours = pair2.each("XADD", "t", "2-*", "a", "b")[1]
    assert str(ours) == "ERR The ID specified in XADD is equal or smaller than the target stream top item"
    for command, mark in (("xread", "$"), ("xreadgroup", ">")):
        group = ["GROUP", "g", "c"] if command == "xreadgroup" else []
        ours = pair2.each(command, *group, "STREAMS", "s", "t", "0")[1]
        assert str(ours) == (
            f"ERR Unbalanced '{command}' list of streams: for each stream key an ID or '{mark}' must be specified."
        )
    ours = pair2.each("XREAD", "BLOCK", 2**63 - 1, "STREAMS", "t", "0")[1]
    assert str(ours) == "ERR timeout is out of range"
    pair2("XADD", "t", "4-1", "a", "b")
    pair2("XADD", "t", "5-1", "a", "b")
    pair2("XDEL", "t", "4-1")
    ours = pair2.each("XSETID", "t", "4-0")[1]
    assert str(ours) == "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"


def test_a_stream_can_be_exhausted(pair2: Pair) -> None:
    pair2("XADD", "s", f"{MAX}-{MAX - 1}", "a", "b")
    pair2("XADD", "s", "*", "a", "b")
    for number in ("*", f"{MAX}-*", f"{MAX}-{MAX}", "1-1", "0-0"):
        pair2("XADD", "s", number, "a", "b")
    info(pair2)
    pair2("XADD", "t", f"{2**62}-{MAX}", "a", "b")
    pair2("XADD", "t", "*", "a", "b")
    pair2("XADD", "t", f"{2**62 + 1}-*", "a", "b")
    info(pair2, "t")


def test_ids_by_the_clock(pair2: Pair) -> None:
    seen = []
    for _ in range(5):
        _, ours = pair2.each("XADD", "s", "*", "a", "b")
        ms, seq = map(int, ours.split(b"-"))
        assert ms == pair2.tidelog.clock.wall_us() // 1000
        seen.append((ms, seq))
    assert seen == sorted(set(seen))
    pair2.wait(5)
    assert pair2.each("XADD", "s", "*", "a", "b")[1] == b"%d-0" % (pair2.tidelog.clock.wall_us() // 1000)


@pytest.mark.parametrize("words", [
    "", "a", "1-1", "1-1 a", "1-1 a b c", "* a", "* a b c", "MAXLEN", "MAXLEN 1", "MAXLEN 1 * a", "MAXLEN x 9-1 a b",
    "MAXLEN -1 9-1 a b", "MAXLEN ~ x 9-1 a b", "MAXLEN ~ 9-1 a b", "MAXLEN = 9-1 a b", "MAXLEN ~ = 9-1 a b",
    "MAXLEN 1 MINID 1 9-1 a b", "MINID 1 MAXLEN 1 9-1 a b", "MAXLEN 1 MAXLEN 1 9-1 a b", "MINID x 9-1 a b",
    "MINID - 9-1 a b", "MINID + 9-1 a b", "MINID ~ 1 9-1 a b", "MINID = 1 9-1 a b", "LIMIT 1 9-1 a b",
    "LIMIT 0 9-1 a b", "LIMIT -1 9-1 a b", "LIMIT x 9-1 a b", "MAXLEN 1 LIMIT 1 9-1 a b",
    "MAXLEN = 1 LIMIT 0 9-1 a b",
    "MAXLEN ~ 1 LIMIT 1 9-1 a b", "MAXLEN ~ 1 LIMIT 0 9-1 a b", "LIMIT 5 MAXLEN ~ 1 9-1 a b",
    "MAXLEN ~ 1 LIMIT 9-1 a b",
    "NOMKSTREAM 9-1 a b", "NOMKSTREAM NOMKSTREAM 9-1 a b", "nomkstream maxlen = 5 9-1 a b", "NOMKSTREAM",
    "FOO 9-1 a b",
    "MAXLEN 5 FOO 9-1 a b", "MAXLEN 0 9-1 a b", "MAXLEN 1 9-1 a b", "MINID 9-1 9-1 a b", "MINID 9-2 9-1 a b",
    "MINID 1-1 9-1 a b", "MINID 7 9-1 a b", "MAXLEN = 3 0-0 a b", "MAXLEN 9223372036854775807 9-1 a b",
    "MAXLEN 9223372036854775808 9-1 a b", "MAXLEN 2 1-1 a b", "MAXLEN 2 9-1 a", "9-1 MAXLEN 2", "9-1 MAXLEN 2 a",
])  # fmt: skip
def test_options_of_add(pair2: Pair, words: str) -> None:
    pair = pair2
    for key in ("none", "text", "s"):
        if key == "text":
            pair("SET", "text", "x")
        if key == "s":
            for number in range(1, 9):
                pair("XADD", "s", f"{number}-1", "a", "b")
        if "*" not in words:
            pair("XADD", key, *words.split())
        else:
            theirs, ours = pair.each("XADD", key, *words.split())
            assert str(theirs) == str(ours)
    pair.same_state()
    info(pair)
    pair.restart()
    pair.same_state()
    info(pair)


@pytest.mark.parametrize("words", [
    "", "MAXLEN", "MAXLEN x", "MAXLEN -1", "MAXLEN 0", "MAXLEN 3", "MAXLEN = 3", "MAXLEN = 100", "MINID 4",
    "MINID = 4-1",
    "MINID 4-2", "MINID 0", "MINID 99", "MINID x", "MINID -", "MAXLEN 3 MINID 3", "MAXLEN 3 x", "MAXLEN 3 LIMIT 1",
    "LIMIT 1", "LIMIT 0", "MAXLEN = 3 LIMIT 0", "NOMKSTREAM MAXLEN 3", "FOO 3", "MAXLEN ~ 3 LIMIT -1",
    "MAXLEN ~ 3 LIMIT x",
    "MAXLEN ~ 3 LIMIT", "MAXLEN ~ 3 LIMIT 5", "MAXLEN ~ 3", "MINID ~ 3", "MAXLEN ~ 0", "MINID ~ 99",
    "MAXLEN ~ 0 LIMIT 5",
    "MAXLEN ~ 0 LIMIT 0", "MAXLEN ~ 0 LIMIT 10", "*", "MAXLEN 3 *", "limit 0 maxlen ~ 0",
])  # fmt: skip
def test_trim(pair2: Pair, words: str) -> None:
    pair = pair2
    pair("SET", "text", "x")
    fill(pair)
    pair("XDEL", "s", "5-1", "2-1")
    for key in ("s", "none", "text", "s"):
        pair("XTRIM", key, *words.split())
        info(pair)
    pair("XADD", "s", "50-1", "a", "b")
    info(pair)
    pair.restart()
    info(pair)


def test_trim_of_hundreds(pair2: Pair) -> None:
    """`~` takes what a Redis with nodes of a hundred entries takes."""
    pair = pair2
    pair.redis.call([b"CONFIG", b"SET", b"stream-node-max-bytes", b"0"])
    try:
        for number in range(1, 3551):
            pair("XADD", "s", f"{number}-0", "n", number)
        pair("XDEL", "s", *(f"{number}-0" for number in range(300, 900, 7)))
        for words in ("MAXLEN ~ 3500", "MAXLEN ~ 3200", "MAXLEN ~ 3199", "MAXLEN ~ 0 LIMIT 99", "MAXLEN ~ 0 LIMIT 150",
                      "MAXLEN 2899", "MAXLEN ~ 2850", "MINID ~ 1000", "MINID ~ 1000-1", "MINID ~ 1100", "MINID ~ 1101",
                      "MAXLEN ~ 5 LIMIT 1000", "MAXLEN ~ 51", "MAXLEN ~ 50", "MAXLEN ~ 49", "MINID ~ 3549",
                      "MAXLEN ~ 0 LIMIT 49", "MAXLEN ~ 0 LIMIT 50"):  # fmt: skip
            pair("XTRIM", "s", *words.split())
            info(pair)
        for number in range(4001, 5700):
            pair("XADD", "t", "MAXLEN", "~", 150, f"{number}-0", "n", number)
            pair("XLEN", "t")
            if number % 30 == 0:
                pair("XADD", "t", "MINID", "~", number - 120, f"{number}-1", "n", number)
        for number in range(1, 10_301):
            pair.each("XADD", "u", f"{number}-0", "n", number)
        pair("XADD", "u", "MAXLEN", "~", 10, "20000-0", "n", "last")
        pair("XLEN", "u")
        info(pair)
        pair.restart()
        info(pair)
    finally:
        pair.redis.call([b"CONFIG", b"SET", b"stream-node-max-bytes", b"4096"])


def test_exact_trim_of_a_long_stream(pair2: Pair) -> None:
    for number in range(1, 2600):
        pair2("XADD", "s", "MAXLEN", "=", 1200, f"{number}-0", "n", number)
    info(pair2)
    pair2("XDEL", "s", *(f"{number}-0" for number in range(1900, 2300, 3)))
    for length in (1001, 700, 699, 300):
        pair2("XTRIM", "s", "MAXLEN", length)
        info(pair2)
    pair2("XTRIM", "s", "MINID", "2400-1")
    info(pair2)
    pair2.restart()
    info(pair2)


@pytest.mark.parametrize("start", ["-", "0", "1", "3", "3-1", "3-2", "(3-1", "(3", "(0", "99", f"{MAX}", "+", "(-",
                                   f"({MAX}-{MAX}", "x", "(", "((1", "", "$"])  # fmt: skip
def test_ranges(pair: Pair, start: str) -> None:
    fill(pair, 6)
    for end in ("+", "0", "1", "4", "4-0", "4-1", "(4-1", "(4", "(0-0", "(0", "99", "-", "(+", "x"):
        pair("XRANGE", "s", start, end)
        pair("XREVRANGE", "s", end, start)
        pair("XRANGE", "none", start, end)
        for count in (1, 2, 100):
            pair("XRANGE", "s", start, end, "COUNT", count)
            pair("XREVRANGE", "s", end, start, "COUNT", count)


def test_counts_of_ranges(pair: Pair) -> None:
    fill(pair, 3)
    pair("SET", "text", "x")
    for words in ("COUNT 0", "COUNT -1", "COUNT -5", "COUNT x", "COUNT", "FOO 1", "COUNT 1 COUNT 2", "COUNT 2 x",
                  "count 1", "COUNT 9223372036854775807", "COUNT 9223372036854775808", ""):  # fmt: skip
        for key in ("s", "none", "text"):
            pair("XRANGE", key, "-", "+", *words.split())
            pair("XREVRANGE", key, "+", "-", *words.split())


def test_ranges_over_nodes(pair2: Pair) -> None:
    for number in range(1, 2501):
        pair2("XADD", "s", f"{number // 3 + 1}-{number}", "n", number)
    pair2("XDEL", "s", *(f"{number // 3 + 1}-{number}" for number in range(990, 1010)))
    pair2("XTRIM", "s", "MAXLEN", 2200)
    for first, last in ((1, 5000), (300, 400), (333, 334), (333, 333), (334, 700), (667, 668), (800, 834), (834, 835)):
        for count in (1, 3, 1000, 100_000):
            pair2("XRANGE", "s", first, last, "COUNT", count)
            pair2("XREVRANGE", "s", last, first, "COUNT", count)
            pair2("XREAD", "COUNT", count, "STREAMS", "s", first)
    pair2.restart()
    info(pair2)


def test_delete(pair: Pair) -> None:
    fill(pair, 10)
    for ids in (["5-1"], ["5-1"], ["6-1", "6-1", "7-1"], ["99-1"], ["1-1"], ["2"], ["10-1"], ["x"], ["3-1", "x"],
                ["3-1", "-"], ["2-1", "3-1", "4-1", "8-1", "9-1"], ["9-1"]):  # fmt: skip
        pair("XDEL", "s", *ids)
        info(pair)
    pair("EXISTS", "s")
    pair("XADD", "s", "10-1", "a", "b")
    pair("XADD", "s", "11-1", "a", "b")
    info(pair)
    pair("XDEL", "none", "1-1")
    pair("XDEL", "none", "x")
    pair.restart()
    info(pair)


@pytest.mark.parametrize("words", [
    "", "10-1", "10-1 ENTRIESADDED", "9-1", "7", "20-5", "20 ENTRIESADDED 10", "20 ENTRIESADDED 9",
    "20 ENTRIESADDED 8",
    "20 ENTRIESADDED 7", "20 ENTRIESADDED -1", "20 ENTRIESADDED x", "20 MAXDELETEDID 3-1", "20 MAXDELETEDID 21",
    "20 MAXDELETEDID 20", "20 MAXDELETEDID x", "20 MAXDELETEDID 0", "20 ENTRIESADDED 100 MAXDELETEDID 15", "20 FOO 1",
    "20 MAXDELETEDID 1 ENTRIESADDED 50 MAXDELETEDID 2", "20 ENTRIESADDED 0", "x", "-", "+", "20 20",
    f"{MAX}-{MAX}", "20 MAXDELETEDID 5-1", "20 MAXDELETEDID 10-1",
])  # fmt: skip
def test_set_id(pair2: Pair, words: str) -> None:
    pair = pair2
    pair("SET", "text", "x")
    pair("XSETID", "none", *words.split())
    pair("XSETID", "text", *words.split())
    fill(pair)
    pair("XDEL", "s", "6-1", "4-1")
    pair("XGROUP", "CREATE", "empty", "g", "0", "MKSTREAM")
    pair("XGROUP", "CREATE", "s", "g", "3-1")
    for key in ("s", "empty"):
        pair("XSETID", key, *words.split())
        info(pair, key)
        pair("XADD", key, "21-1", "a", "b")
        info(pair, key)
        pair("XINFO", "GROUPS", key)
    pair.restart()
    info(pair)
    info(pair, "empty")


def test_read(pair: Pair) -> None:
    fill(pair, 5)
    fill(pair, 3, "t")
    pair("SET", "text", "x")
    pair("XGROUP", "CREATE", "empty", "g", "0", "MKSTREAM")
    for words in (
        "STREAMS s 0", "STREAMS s t 0 0", "STREAMS s none t 3 0 1", "COUNT 2 STREAMS s t 0 0", "STREAMS s $",
        "STREAMS s 5-1", "STREAMS s 5-0", "STREAMS s t 5-1 2", "STREAMS none 0", "STREAMS empty 0", "STREAMS text 0",
        "STREAMS s text 0 0", "STREAMS none $", "STREAMS s >", "STREAMS s -", "STREAMS s +", "STREAMS s x", "STREAMS",
        "STREAMS s", "COUNT 0 STREAMS s 0", "COUNT -3 STREAMS s 0", "COUNT x STREAMS s 0",
        "BLOCK x STREAMS s 0", "BLOCK -1 STREAMS s 0", "BLOCK 0 STREAMS s 0", "BLOCK 1 STREAMS s t 5-1 0",
        "BLOCK 1 COUNT 1 STREAMS s 2", "GROUP g c STREAMS s >", "NOACK STREAMS s 0", "FOO STREAMS s 0", "COUNT 1",
        "COUNT 1 COUNT 2 STREAMS s 0", "streams s 0", "STREAMS s s 0 3", "BLOCK 1.5 STREAMS s 0", "COUNT STREAMS s 0",
        "BLOCK 9223372036854775808 STREAMS s 0", f"STREAMS s {MAX}-{MAX}",
    ):  # fmt: skip
        pair("XREAD", *words.split())


def test_wrong_types(pair: Pair) -> None:
    pair("SET", "k", "text")
    for command in (
        "XADD k 1-1 a b", "XADD k NOMKSTREAM 1-1 a b", "XLEN k", "XRANGE k - +", "XREVRANGE k + -",
        "XREAD STREAMS k 0",
        "XDEL k 1-1", "XDEL k x", "XTRIM k MAXLEN 0", "XSETID k 1-1", "XGROUP CREATE k g 0",
        "XGROUP CREATE k g 0 MKSTREAM",
        "XGROUP SETID k g 0", "XGROUP DESTROY k g", "XGROUP CREATECONSUMER k g c", "XGROUP DELCONSUMER k g c",
        "XREADGROUP GROUP g c STREAMS k >", "XACK k g 1-1", "XACK k g x", "XPENDING k g", "XPENDING k g - + 1",
        "XCLAIM k g c 0 1-1", "XAUTOCLAIM k g c 0 0", "XINFO STREAM k", "XINFO GROUPS k", "XINFO CONSUMERS k g",
        "XINFO STREAM k FULL",
    ):  # fmt: skip
        assert pair.records(*command.split()) == 0
    pair("DEL", "k")
    pair("XADD", "k", "1-1", "a", "b")
    for command in ("GET k", "SET k x NX", "APPEND k x", "HGET k f", "SADD k a", "ZADD k 1 a", "INCR k", "STRLEN k"):
        pair(*command.split())
    pair.same_state()


@pytest.mark.parametrize("command", [
    "XADD", "XADD k", "XADD k *", "XADD k * a", "XLEN", "XLEN k l", "XRANGE k -", "XRANGE", "XREVRANGE k +", "XREAD",
    "XREAD STREAMS", "XREAD STREAMS k", "XREADGROUP", "XREADGROUP GROUP g c STREAMS k", "XGROUP", "XGROUP FOO",
    "XGROUP CREATE", "XGROUP CREATE k", "XGROUP CREATE k g", "XGROUP SETID k g", "XGROUP DESTROY k",
    "XGROUP DESTROY k g c",
    "XGROUP CREATECONSUMER k g", "XGROUP DELCONSUMER k g", "XGROUP DELCONSUMER k g c d", "XACK k g", "XPENDING k",
    "XCLAIM k g c 0", "XAUTOCLAIM k g c 0", "XDEL k", "XTRIM k", "XTRIM k MAXLEN", "XINFO", "XINFO FOO",
    "XINFO STREAM",
    "XINFO GROUPS", "XINFO GROUPS k l", "XINFO CONSUMERS k", "XINFO CONSUMERS k g c", "XSETID k",
])  # fmt: skip
def test_wrong_number_of_arguments(pair2: Pair, command: str) -> None:
    assert pair2.records(*command.split()) == 0


def test_only_changes_are_journaled(pair2: Pair) -> None:
    assert pair2.records("XADD", "s", "1-1", "a", "b") == 1
    assert pair2.records("XADD", "s", "1-1", "a", "b") == 0
    assert pair2.records("XADD", "s", "MAXLEN", "5", "2-1", "a", "b") == 1
    assert pair2.records("XADD", "s", "MAXLEN", "1", "3-1", "a", "b") == 2
    assert pair2.records("XADD", "none", "NOMKSTREAM", "3-1", "a", "b") == 0
    assert pair2.records("XTRIM", "s", "MAXLEN", "1") == 0
    assert pair2.records("XTRIM", "s", "MAXLEN", "0") == 1
    assert pair2.records("XDEL", "s", "3-1") == 0
    assert pair2.records("XADD", "s", "4-1", "a", "b") == 1
    assert pair2.records("XDEL", "s", "4-1", "4-1", "5-1") == 1
    assert pair2.records("XSETID", "s", "9-1") == 1
    assert pair2.records("XREAD", "STREAMS", "s", "0") == 0


def test_keys_commands(pair: Pair) -> None:
    fill(pair, 4)
    pair("XDEL", "s", "2-1")
    pair("XGROUP", "CREATE", "s", "g", "0")
    pair("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">")
    for command in (["COPY", "s", "t"], ["RENAME", "s", "u"], ["EXPIRE", "t", 100], ["OBJECT", "ENCODING", "t"]):
        pair(*command)
    for key in ("t", "u"):
        info(pair, key)
        pair("XINFO", "GROUPS", key)
        pair("XPENDING", key, "g")
    pair("XADD", "t", "9-1", "a", "b")
    pair("XACK", "t", "g", "1-1")
    info(pair, "u")
    pair("XPENDING", "u", "g")
    pair("XADD", "s", "1-1", "a", "b")
    pair("PEXPIRE", "s", 20)
    pair.wait(30)
    pair("XLEN", "s")
    pair("XADD", "s", "NOMKSTREAM", "1-1", "a", "b")
    pair("XADD", "s", "1-1", "a", "b")
    pair.same_state()
    pair.restart()
    pair.same_state()
    info(pair, "t")


def test_what_is_read_is_what_was_written(pair: Pair) -> None:
    pair("XADD", "s", "1-1", "tag", "colour", "entry", "red")
    ours = decode(pair.tidelog.call([b"TREAD", b"s", b"1", b"10"]))
    assert ours == [[1, b"colour", b"red"]]
