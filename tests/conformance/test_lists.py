"""Lists on Tidelog and on a real Redis: every command, option and error, and what is journaled."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import Pair

I64_MAX = 2**63 - 1
INDEXES = ["0", "1", "2", "5", "6", "7", "-1", "-2", "-6", "-7", "100", "-100", str(I64_MAX), str(-I64_MAX - 1)]
BAD_INDEXES = ["x", "", "1.5", " 1", "+1", str(I64_MAX + 1)]


def test_push(pair: Pair) -> None:
    pair("LPUSH", "k", "a")
    pair("LPUSH", "k", "b", "c", "b")
    pair("RPUSH", "k", "x", "y", "")
    pair("RPUSH", "other", 1, 2, 3)
    pair("LRANGE", "k", 0, -1)
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_push_only_to_a_list_that_is_there(pair: Pair) -> None:
    for command in ("LPUSHX", "RPUSHX"):
        assert pair.records(command, "k", "a") == 0
        assert pair.records(command, "k", "a", "b") == 0
    pair("RPUSH", "k", "a")
    pair("LPUSHX", "k", "b", "c")
    pair("RPUSHX", "k", "d", "e")
    pair.same_state()


def test_pop(pair: Pair) -> None:
    pair("RPUSH", "k", *"abcdefghij")
    for command in ("LPOP", "RPOP"):
        pair(command, "k")
        pair(command, "k", 0)
        pair(command, "k", 1)
        pair(command, "k", 2)
        pair(command, "no")
        pair(command, "no", 0)
        pair(command, "no", 1)
        for count in ("-1", *BAD_INDEXES):
            pair(command, "k", count)
            pair(command, "no", count)
        pair(command, "k", 1, 1)
        pair(command, "no", 1, "x")
        pair.same_state()
    pair("LPOP", "k", I64_MAX)
    pair("LPOP", "k")
    pair.same_state()
    pair("RPUSH", "k", "a", "b", "c")
    pair("RPOP", "k", 100)
    pair("EXISTS", "k")
    pair.same_state()


def test_length_and_index(pair: Pair) -> None:
    pair("RPUSH", "k", "c", "d", "e", "f")
    pair("LPUSH", "k", "b", "a")
    pair("LLEN", "k")
    pair("LLEN", "no")
    for index in INDEXES + BAD_INDEXES:
        pair("LINDEX", "k", index)
        pair("LINDEX", "no", index)


def test_range(pair: Pair) -> None:
    pair("RPUSH", "k", "c", "d", "e", "f")
    pair("LPUSH", "k", "b", "a")
    for start in INDEXES:
        for stop in INDEXES:
            pair("LRANGE", "k", start, stop)
    for index in BAD_INDEXES:
        for key in ("k", "no"):
            pair("LRANGE", key, index, 0)
            pair("LRANGE", key, 0, index)
    pair("LRANGE", "no", 0, -1)


def test_trim(pair: Pair) -> None:
    for start in INDEXES:
        for stop in INDEXES:
            pair("DEL", "k")
            pair("RPUSH", "k", "c", "d", "e", "f")
            pair("LPUSH", "k", "b", "a")
            pair("LTRIM", "k", start, stop)
            pair("LRANGE", "k", 0, -1)
            pair("EXISTS", "k")
    for index in BAD_INDEXES:
        for key in ("k", "no"):
            pair("LTRIM", key, index, 0)
            pair("LTRIM", key, 0, index)
    pair("LTRIM", "no", 0, -1)
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_set(pair: Pair) -> None:
    pair("RPUSH", "k", "c", "d", "e", "f")
    pair("LPUSH", "k", "b", "a")
    for index in INDEXES + BAD_INDEXES:
        pair("LSET", "k", index, f"at {index}")
        pair("LSET", "no", index, "x")
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_insert(pair: Pair) -> None:
    pair("RPUSH", "k", "c", "d", "c", "f")
    pair("LPUSH", "k", "b", "a")
    for where in ("BEFORE", "after", "Before", "AFTER", "x", ""):
        for pivot in ("a", "b", "c", "f", "none", ""):
            pair("LINSERT", "k", where, pivot, f"{where} {pivot}")
        pair("LINSERT", "no", where, "a", "x")
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_remove(pair: Pair) -> None:
    for count in (0, 1, 2, 3, -1, -2, -3, 100, -100, I64_MAX, -I64_MAX, -I64_MAX - 1):
        pair("DEL", "k")
        pair("RPUSH", "k", *"aabcaba")
        pair("LPUSH", "k", *"xaay")
        pair("LREM", "k", count, "a")
        pair("LRANGE", "k", 0, -1)
        pair("LREM", "k", count, "none")
        pair("LREM", "no", count, "a")
    for word in BAD_INDEXES:
        pair("LREM", "k", word, "a")
        pair("LREM", "no", word, "a")
    pair.same_state()
    for element in "abcxy":
        pair("LREM", "k", 0, element)
    pair("EXISTS", "k")
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_remove_many(pair2: Pair) -> None:
    pair2("RPUSH", "k", *(number % 3 for number in range(5000)))
    pair2("LPUSH", "k", *(number % 5 for number in range(5000)))
    for count, element in ((20, 0), (-30, 1), (3, 2), (-4, 4), (0, 0), (0, 3)):
        pair2("LREM", "k", count, element)
        pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_position(pair: Pair) -> None:
    pair("RPUSH", "k", *"abcabca")
    pair("LPUSH", "k", *"cbad")
    for element in "abd?":
        pair("LPOS", "k", element)
        for rank in (1, 2, 3, 4, -1, -2, -3, -4, I64_MAX, -I64_MAX):
            pair("LPOS", "k", element, "RANK", rank)
            for count in (0, 1, 2, 3, I64_MAX):
                pair("LPOS", "k", element, "RANK", rank, "COUNT", count)
                for length in (0, 1, 3, 8, 11, 12, I64_MAX):
                    pair("LPOS", "k", element, "RANK", rank, "MAXLEN", length)
                    pair("LPOS", "k", element, "count", count, "maxlen", length, "rank", rank)


def test_position_errors(pair: Pair) -> None:
    pair("RPUSH", "k", *"abcabca")
    for options in ("RANK", "COUNT", "MAXLEN", "RANK 0", "RANK x", f"RANK {I64_MAX + 1}",
                    "COUNT -1", "COUNT x", "MAXLEN -1", "MAXLEN x", "FOO", "FOO 1", "RANK 0 COUNT", "COUNT 1 FOO",
                    "FOO 1 RANK 0", "RANK 1 RANK 2", "COUNT 0 COUNT 1", "COUNT 1", "RANK 1", "MAXLEN 1"):  # fmt: skip
        pair("LPOS", "k", "a", *options.split())
        pair("LPOS", "no", "a", *options.split())


def test_move(pair: Pair) -> None:
    pair("RPUSH", "k", *"abcdef")
    pair("RPUSH", "l", "x", "y")
    for start in ("LEFT", "right"):
        for end in ("left", "RIGHT"):
            pair("LMOVE", "k", "l", start, end)
            pair("LMOVE", "l", "l", start, end)
            pair("LMOVE", "k", f"new {end}", start, end)
            pair("LMOVE", "k", "l", start, end)
            pair("LMOVE", "no", "l", start, end)
            pair("LMOVE", "no", "no", start, end)
            pair.same_state()
    pair("RPOPLPUSH", "l", "k")
    pair("RPOPLPUSH", "l", "l")
    pair("RPOPLPUSH", "no", "l")
    pair("RPOPLPUSH", "no", "no")
    for words in ("LEFT x", "x LEFT", "LEFT", "", "LEFT RIGHT LEFT"):
        pair("LMOVE", "k", "l", *words.split())
    pair.same_state()
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("ends", ["LEFT RIGHT", "RIGHT LEFT", "LEFT LEFT", "RIGHT RIGHT"])
def test_a_list_moved_onto_itself_keeps_its_expiry(pair2: Pair, ends: str) -> None:
    for elements in ("a", "ab"):
        pair2("RPUSH", elements, *elements)
        pair2("EXPIRE", elements, 100)
        pair2("LMOVE", elements, elements, *ends.split())
        pair2("RPOPLPUSH", elements, elements)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_pop_from_the_first_of_several(pair: Pair) -> None:
    pair("RPUSH", "k", *"abcdef")
    pair("RPUSH", "l", *"uvwxyz")
    pair("LMPOP", 1, "k", "LEFT")
    pair("LMPOP", 3, "no", "l", "k", "right", "COUNT", 2)
    pair("LMPOP", 2, "k", "k", "RIGHT", "count", 3)
    pair("LMPOP", 2, "k", "l", "LEFT", "COUNT", 100)
    pair("LMPOP", 2, "k", "l", "LEFT", "COUNT", I64_MAX)
    pair("LMPOP", 2, "k", "l", "LEFT", "COUNT", 1)
    pair.same_state()


def test_pop_from_several_errors(pair: Pair) -> None:
    pair("RPUSH", "k", "a")
    pair("SET", "text", "a")
    for words in ("0 k LEFT", "-1 k LEFT", "x k LEFT", "1 k", "2 k LEFT", "2 k l", "1 k MIN", "1 k LEFT COUNT",
                  "1 k LEFT COUNT 0", "1 k LEFT COUNT -1", "1 k LEFT COUNT x", "1 k LEFT COUNT 1 COUNT 1",
                  "1 k LEFT FOO 1", "1 k LEFT 1", "1 k LEFT COUNT 1 x", "2 no text LEFT", "2 text no LEFT",
                  "2 text k LEFT COUNT 0", "9223372036854775807 k LEFT", "9223372036854775808 k LEFT",
                  "1 no LEFT COUNT 0", "1 k LEFT RIGHT", "2 k text LEFT", "1 k LEFT"):  # fmt: skip
        pair("LMPOP", *words.split())
    pair.same_state()


@pytest.mark.parametrize(
    "command",
    ["LPUSH k a", "RPUSH k a b", "LPUSHX k a", "RPUSHX k a", "LPOP k", "RPOP k", "LPOP k 0", "RPOP k 1", "LPOP k x",
     "LPOP k -1", "LPOP k 1 1", "LLEN k", "LINDEX k 0", "LINDEX k x", "LSET k 0 a", "LSET k x a", "LRANGE k 0 -1",
     "LRANGE k x 0", "LINSERT k BEFORE a b", "LINSERT k x a b", "LREM k 0 a", "LREM k x a", "LTRIM k 0 -1",
     "LTRIM k 0 x", "LPOS k a", "LPOS k a RANK 0", "LPOS k a COUNT 1", "LMOVE k l LEFT LEFT", "LMOVE l k LEFT LEFT",
     "LMOVE no k LEFT LEFT", "LMOVE k no LEFT LEFT", "LMOVE k k LEFT LEFT", "LMOVE k l x LEFT", "RPOPLPUSH k l",
     "RPOPLPUSH l k", "RPOPLPUSH no k", "LMPOP 1 k LEFT", "LMPOP 2 no k LEFT", "LMPOP 1 k x"],
)  # fmt: skip
def test_wrong_type(pair: Pair, command: str) -> None:
    pair("RPUSH", "l", "a")
    pair("SET", "k", "text")
    assert pair.records(*command.split()) == 0
    pair("DEL", "k")
    pair("HSET", "k", "f", "v")
    pair(*command.split())
    pair.same_state()


@pytest.mark.parametrize(
    "command", ["GET l", "APPEND l x", "HGET l f", "SADD l a", "ZADD l 1 a", "XADD l * f v", "INCR l", "GETSET l x"]
)
def test_a_list_is_the_wrong_type_for_others(pair: Pair, command: str) -> None:
    pair("RPUSH", "l", "a")
    pair(*command.split())
    pair.same_state()


@pytest.mark.parametrize(
    "command",
    ["LPUSH", "LPUSH k", "RPUSH k", "LPUSHX k", "RPUSHX k", "LPOP", "RPOP", "LLEN", "LLEN k l", "LINDEX k",
     "LINDEX k 0 0", "LSET k 0", "LSET k 0 a b", "LRANGE k 0", "LRANGE k 0 1 2", "LINSERT k BEFORE a",
     "LINSERT k BEFORE a b c", "LREM k 0", "LREM k 0 a b", "LTRIM k 0", "LTRIM k 0 1 2", "LPOS k", "LMOVE k l LEFT",
     "LMOVE k l LEFT LEFT x", "RPOPLPUSH k", "RPOPLPUSH k l m", "LMPOP", "LMPOP 1", "LMPOP 1 k"],
)  # fmt: skip
def test_wrong_number_of_arguments(pair: Pair, command: str) -> None:
    assert pair.records(*command.split()) == 0


def test_only_changes_are_journaled(pair2: Pair) -> None:
    assert pair2.records("RPUSH", "k", *range(10)) == 1
    assert pair2.records("LPOP", "k", 0) == 0
    assert pair2.records("LPOP", "k", 2) == 1
    assert pair2.records("LSET", "k", 0, "x") == 1
    assert pair2.records("LSET", "k", 100, "x") == 0
    assert pair2.records("LINSERT", "k", "BEFORE", "none", "x") == 0
    assert pair2.records("LREM", "k", 0, "none") == 0
    assert pair2.records("LREM", "k", 0, "x") == 1
    assert pair2.records("LTRIM", "k", 0, -1) == 0
    assert pair2.records("LTRIM", "k", 1, -2) == 1
    assert pair2.records("LMOVE", "k", "l", "LEFT", "LEFT") == 2
    assert pair2.records("LMOVE", "no", "l", "LEFT", "LEFT") == 0
    assert pair2.records("LTRIM", "k", 5, 1) == 1
    assert pair2.records("LTRIM", "k", 5, 1) == 0
    pair2.same_state()


def test_a_long_list_outlives_a_restart(pair2: Pair) -> None:
    pair2("RPUSH", "k", *range(2000))
    pair2("LPUSH", "k", *range(2000))
    pair2("RPOP", "k", 1500)
    pair2("LPOP", "k", 700)
    pair2("LSET", "k", 1000, "x" * 300_000)
    pair2("LINSERT", "k", "AFTER", "x" * 300_000, "y")
    pair2("LPUSH", "l", "x" * 300_000, "y" * 300_000)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_expiry(pair: Pair) -> None:
    pair("RPUSH", "k", "a")
    pair("PEXPIRE", "k", 50)
    pair("RPUSH", "k", "b")
    pair("LSET", "k", 0, "c")
    pair("RPUSH", "l", "a", "b")
    pair("EXPIRE", "l", 100)
    pair("LPOP", "l")
    pair.same_state()
    pair.wait(60)
    for command in ("LPOP k", "LPOP k 1", "LLEN k", "LRANGE k 0 -1", "LMOVE k l LEFT LEFT", "LPUSHX k a",
                    "LINDEX k 0", "LSET k 0 a", "LMPOP 2 k l LEFT"):  # fmt: skip
        pair(*command.split())
    pair("RPUSH", "k", "new")
    pair("PTTL", "k")
    pair("LPOP", "l", 10)
    pair("RPUSH", "l", "new")
    pair("PTTL", "l")
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_whole_lists_under_other_names(pair: Pair) -> None:
    pair("RPUSH", "k", *range(1000))
    pair("LPUSH", "k", *range(1000))
    pair("EXPIRE", "k", 100)
    pair("COPY", "k", "copy")
    pair("LPUSH", "copy", "x")
    pair("RENAME", "k", "l")
    pair("TYPE", "l")
    pair("SET", "text", "x")
    pair("COPY", "l", "text")
    pair("COPY", "l", "text", "REPLACE")
    pair("MOVE", "copy", 1)
    pair("SCAN", 0, "TYPE", "list", "COUNT", 100, "MATCH", "t*")
    pair.same_state()
    pair.restart()
    pair.same_state()
