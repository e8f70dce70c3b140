"""Pops and moves that wait, with several clients, on Tidelog and on a real Redis: who gets what, and in which order.

Redis 7.2 runs a command anew when it is woken, 7.0 served it from the key that woke it. Where that makes a difference
(several keys that come at once, a key of another type before the one that came, CLIENT PAUSE) only our reply is
checked. It is, too, where Redis forgets to wake: a sorted set stored in the place of another type.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.conformance.blocked_pair import block, wait_for_blocked
from tests.conformance.redis_oracle import decode
from tests.conformance.socket_pair import Both, Connection

WAITING: Final = [
    "BLPOP k 0",
    "BRPOP k 0",
    "BLMPOP 0 1 k LEFT",
    "BLMPOP 0 1 k RIGHT COUNT 2",
    "BLMOVE k to LEFT RIGHT 0",
    "BLMOVE k to RIGHT LEFT 0",
    "BRPOPLPUSH k to 0",
    "BZPOPMIN k 0",
    "BZPOPMAX k 0",
    "BZMPOP 0 1 k MIN",
    "BZMPOP 0 1 k MAX COUNT 2",
]
LISTS: Final = WAITING[:7]
SETS: Final = WAITING[7:]


def fill(both: Both, words: str, key: str = "k") -> None:
    """What a command waits for."""
    pushed = ("ZADD", key, 1, "a", 2.5, "b", "inf", "c") if "BZ" in words else ("RPUSH", key, "a", "b", "c")
    both.admin(*pushed)


def ours(connection: Connection) -> Any:
    """What Tidelog replied; Redis did something else."""
    return decode(connection.tidelog.read()[1])


def state(both: Both) -> None:
    for key in sorted(both.admin("KEYS", "*", order=lambda item: sorted(each.value for each in item.value))):
        words = {b"list": ("LRANGE", key, 0, -1), b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}
        kind = both.admin("TYPE", key)
        both.admin(*words.get(kind, ("EXISTS", key)))


# --- one client -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WAITING)
def test_woken(both: Both, protocol: int, words: str) -> None:
    a = block(both, *words.split(), protocol=protocol)
    fill(both, words)
    a.read()
    a("PING")
    state(both)


@pytest.mark.parametrize("words", WAITING)
def test_at_once(both: Both, protocol: int, words: str) -> None:
    fill(both, words)
    both.connect(protocol)(*words.split())
    state(both)


@pytest.mark.parametrize("words", WAITING)
def test_time_is_over(both: Both, protocol: int, words: str) -> None:
    a, began = both.connect(protocol), time.monotonic()
    parts = words.split()
    parts[1 if parts[1] == "0" else -1] = "0.02"
    a(*parts)
    assert time.monotonic() - began >= 0.02
    a("PING")


@pytest.mark.parametrize("words", WAITING)
def test_inside_a_transaction(both: Both, protocol: int, words: str) -> None:
    a = both.connect(protocol)
    for command in ("MULTI", words, "LLEN to", words, "EXEC"):
        a(*command.split())
    fill(both, words)
    for command in ("MULTI", words, words, words, words, "EXEC"):
        a(*command.split())
    state(both)


@pytest.mark.parametrize("words", WAITING)
@pytest.mark.parametrize("how", ["", "TIMEOUT", "ERROR", "error"])
def test_unblock(both: Both, protocol: int, words: str, how: str) -> None:
    a = both.connect(protocol)
    numbers = a.each("CLIENT", "ID")
    a.send(*words.split())
    wait_for_blocked(both, 1)
    for line, number in zip((both.admin.redis, both.admin.tidelog), numbers, strict=True):
        line.send([b"CLIENT", b"UNBLOCK", b"%d" % number, *(word.encode() for word in how.split())])
    assert both.admin.read() == 1
    a.read()
    a("PING")
    fill(both, words)
    state(both)


@pytest.mark.parametrize("words", WAITING)
def test_another_type(both: Both, protocol: int, words: str) -> None:
    both.admin("SET", "k", "text")
    both.connect(protocol)(*words.split())
    both.admin("SET", "to", "text")
    both.admin("DEL", "k")
    fill(both, words)
    both.connect(protocol)(*words.split())
    state(both)


@pytest.mark.parametrize(
    "word",
    ["-1", "-0.5", "x", "", "1 ", " 1", "nan", "-inf", "-1e30", "0x", "1e", "1e5000"],
)
@pytest.mark.parametrize("words", ["BLPOP k T", "BLMPOP T 1 k LEFT", "BLMOVE k l LEFT LEFT T", "BZPOPMIN k T"])
def test_timeouts_that_are_refused(both: Both, words: str, word: str) -> None:
    assert "timeout" in str(both.admin(*(word if part == "T" else part for part in words.split())))


@pytest.mark.parametrize("word", ["inf", "1e30", "9223372036854775", "1e400"])
def test_timeouts_that_are_too_long(both: Both, word: str) -> None:
    """Redis 7.0 takes them for negative, or for ever."""
    a = both.connect()
    a.send("BLPOP", "k", word)
    assert str(ours(a)) == "ERR timeout is out of range"


@pytest.mark.parametrize("word", ["0.01", "1e-3", ".01", "0x.01p0", "0.0001", "1e-2", "+0.01"])
def test_timeouts(both: Both, word: str) -> None:
    both.admin("BLPOP", "k", word)


@pytest.mark.parametrize(
    "words",
    [
        "BLMPOP 0 0 k LEFT", "BLMPOP 0 x k LEFT", "BLMPOP 0 -1 k LEFT", "BLMPOP 0 2 k LEFT", "BLMPOP 0 1 k MIDDLE",
        "BLMPOP 0 1 k LEFT COUNT", "BLMPOP 0 1 k LEFT COUNT 0", "BLMPOP 0 1 k LEFT COUNT x", "BLMPOP x 1 k MIDDLE",
        "BLMPOP x 1 k LEFT COUNT 1 COUNT 1", "BLMOVE k l LEFT MIDDLE x", "BLMOVE k l MIDDLE LEFT 0",
        "BZMPOP 0 0 k MIN", "BZMPOP 0 1 k LEFT", "BZMPOP x 1 k MIN COUNT", "BZMPOP x 1 k MIN COUNT 0",
        "BZMPOP x 0 k MIN", "BZMPOP 0 9 k MIN", "BLPOP k", "BLPOP", "BLMOVE k l LEFT LEFT", "BRPOPLPUSH k l",
        "BRPOPLPUSH k l 0 0", "BZPOPMIN k", "BZMPOP 0 1 k", "BLMPOP 0 1 k",
    ],
)  # fmt: skip
def test_arguments_that_are_refused(both: Both, words: str) -> None:
    assert isinstance(both.admin(*words.split()), Exception | str)


# --- one line -------------------------------------------------------------------------------------------------------


def test_one_push_serves_several_commands_in_order(both: Both) -> None:
    lines = [block(both, *words.split(), before=at) for at, words in enumerate([*LISTS, *LISTS, "BLPOP k 0"])]
    both.admin("RPUSH", "k", *range(18))
    for line in lines:
        line.read()
    state(both)


def test_one_push_serves_several_in_order_for_sorted_sets(both: Both) -> None:
    lines = [block(both, *words.split(), before=at) for at, words in enumerate([*SETS, *SETS, "BZPOPMIN k 0"])]
    both.admin("ZADD", "k", *(part for at in range(8) for part in (at, f"m{at}")))
    for line in lines[:7]:
        line.read()
    assert all(line.is_quiet() for line in lines[7:])
    state(both)


def test_lines_of_both_types_on_one_key(both: Both) -> None:
    kinds = ["BLPOP k 0", "BZPOPMIN k 0", "BRPOP k 0", "BZPOPMAX k 0"]
    lines = [block(both, *words.split(), before=at) for at, words in enumerate(kinds)]
    for command, line in (("ZADD k 1 a", 1), ("RPUSH k x", 0), ("RPUSH k y", 2), ("ZADD k 2 b", 3)):
        both.admin(*command.split())
        lines[line].read()
    state(both)


def test_several_pushes_one_after_the_other(both: Both) -> None:
    """The first element goes before the second comes, also where they come together."""
    a = block(both, "BLPOP", "k", 0)
    b = block(both, "BRPOP", "k", 0, before=1)
    pushes = b"".join(b"*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$1\r\n%d\r\n" % at for at in range(4))
    both.admin.send_bytes(pushes)
    for _ in range(4):
        both.admin.read()
    a.read()
    b.read()
    state(both)


def test_a_served_client_goes_to_the_end(both: Both) -> None:
    lines = [block(both, "BLPOP", "k", 0, before=at) for at in range(3)]
    for at in range(7):
        both.admin("RPUSH", "k", at)
        lines[at % 3].read()
        lines[at % 3].send("BRPOP" if at % 2 else "BLPOP", "k", 0)
        wait_for_blocked(both, 3)


def test_many_wait(both: Both) -> None:
    lines = [both.connect() for _ in range(200)]
    for at, line in enumerate(lines):
        line.send(*[("BLPOP", "k", 0), ("BRPOP", "k", 0), ("BLMOVE", "k", "to", "LEFT", "RIGHT", 0)][at % 3])
        wait_for_blocked(both, at + 1)
    both.admin("RPUSH", "k", *range(150))
    for line in lines[:150]:
        line.read()
    wait_for_blocked(both, 50)
    both.admin("RPUSH", "k", *range(60))
    for line in lines[150:]:
        line.read()
    state(both)


# --- several keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["BLPOP a k b k 0", "BLMPOP 0 4 a k k b RIGHT", "BZPOPMAX a k b k 0"])
def test_several_keys(both: Both, protocol: int, words: str) -> None:
    a = block(both, *words.split(), protocol=protocol)
    fill(both, words)
    a.read()
    fill(both, words, "b")
    a(*words.split())
    state(both)


def test_a_transaction_wakes_in_the_order_of_its_changes(both: Both) -> None:
    lines = [block(both, "BLPOP", *keys, 0, before=at) for at, keys in enumerate(("b", "ab", "ca", "a"))]
    for command in ("MULTI", "RPUSH a 1", "RPUSH b 2", "RPUSH a 3", "RPUSH c 4", "EXEC"):
        both.admin(*command.split())
    lines[0].read()
    lines[1].read()
    assert ours(lines[2]) == [b"c", b"4"]  # by its keys in the order named: 7.0 gives it what is in a
    assert ours(lines[3]) == [b"a", b"3"]


def test_the_keys_of_a_transaction_are_tried_in_the_order_named(both: Both) -> None:
    a = block(both, "BLPOP", "a", "b", 0)
    for command in ("MULTI", "RPUSH b 1", "RPUSH a 2", "EXEC"):
        both.admin(*command.split())
    assert ours(a) == [b"a", b"2"]


def test_what_is_gone_when_a_transaction_ends_wakes_nobody(both: Both) -> None:
    a = block(both, "BLPOP", "k", 0)
    for last in ("DEL k", "LPOP k 3", "SET k text", "RENAME k other", "FLUSHALL"):
        for command in ("DEL k", "MULTI", "RPUSH k 1 2 3", last, "EXEC"):
            both.admin(*command.split())
        assert a.is_quiet()
    both.admin("DEL", "k")
    for command in ("MULTI", "RPUSH k 1 2 3", "LPOP k", "EXEC"):
        both.admin(*command.split())
    a.read()
    state(both)


# --- moving ---------------------------------------------------------------------------------------------------------


def test_a_chain_of_moves(both: Both) -> None:
    moves = ["d e", "c d", "b c", "a b"]
    lines = [block(both, "BLMOVE", *keys.split(), "LEFT", "RIGHT", 0, before=at) for at, keys in enumerate(moves)]
    last = block(both, "BLPOP", "e", 0, before=4)
    both.admin("RPUSH", "a", "x", "y")
    for line in (*lines, last):
        line.read()
    state(both)


def test_moves_in_a_circle(both: Both) -> None:
    moves = ["a b", "b a", "a a", "a c"]
    lines = [block(both, "BRPOPLPUSH", *keys.split(), 0, before=at) for at, keys in enumerate(moves)]
    both.admin("RPUSH", "a", "x")
    for line in lines:
        line.read()
    state(both)


@pytest.mark.parametrize("words", ["BLMOVE k to LEFT LEFT 0", "BRPOPLPUSH k to 0"])
def test_a_target_of_another_type(both: Both, words: str) -> None:
    a = block(both, *words.split())
    b = block(both, "BLPOP", "k", 0, before=1)
    both.admin("SET", "to", "text")
    both.admin("RPUSH", "k", 1)
    a.read()
    b.read()
    a("PING")
    state(both)


# --- keys that come and go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "RPUSH x 1,RENAME x k", "RPUSH x 1,RENAMENX x k", "RPUSH x 1,COPY x k", "RPUSH x 1,LMOVE x k LEFT LEFT",
        "RPUSH x 1,RPOPLPUSH x k", "RPUSHX k 1,LPUSHX k 1,RPUSH k 1", "SET k t,DEL k,RPUSH k 1",
        "SET k t,RPUSH x 1,COPY x k REPLACE",
        "ZADD k 1 m,DEL k,RPUSH k 1", "XADD k * f v,UNLINK k,LPUSH k 1", "SET k t PX 5,DEBUG SLEEP 0.01,RPUSH k 1",
        "RPUSH x 1,SELECT 1,RPUSH k 1,MOVE k 0,SELECT 0", "FLUSHALL,RPUSH k 1", "FLUSHDB,RPUSH k 1",
        "RPUSH x 1,COPY x k DB 0 REPLACE", "SET k t,RPUSH x 1,RENAME x k",
        "SADD k m,HSET h f v,RENAME h k,DEL k,RPUSH k 1 2",
    ],
)  # fmt: skip
def test_how_a_list_comes(both: Both, script: str) -> None:
    a = block(both, "BLPOP", "k", 0)
    for command in script.split(","):
        both.admin.each(*command.split())
    a.read()
    state(both)


@pytest.mark.parametrize(
    "script",
    [
        "ZUNIONSTORE k 1 z", "ZINTERSTORE k 1 z", "ZDIFFSTORE k 1 z", "ZRANGESTORE k z 0 -1", "ZINCRBY k 3 m",
        "RENAME z k", "COPY z k", "ZADD k NX 1 n", "ZADD k XX 1 n,ZADD k INCR 2 n",
    ],
)  # fmt: skip
def test_how_a_sorted_set_comes(both: Both, script: str) -> None:
    both.admin("ZADD", "z", 1, "m", 2, "n")
    a = block(both, "BZPOPMAX", "k", 0)
    for command in script.split(","):
        both.admin(*command.split())
    a.read()
    state(both)


def test_a_sorted_set_in_the_place_of_another_type(both: Both) -> None:
    both.admin("ZADD", "z", 1, "m", 2, "n")
    for other in ("SET k text", "RPUSH k x"):
        a = both.connect()
        a.send("BZPOPMAX", "k", 0)
        both.eventually(lambda: b"blocked_clients:1" in both.admin.each("INFO", "clients")[1])
        for command in (other, "ZUNIONSTORE k 1 z"):
            both.admin(*command.split())
        assert ours(a) == [b"k", b"n", b"2"]
        both.admin("DEL", "k")


def test_a_key_of_another_type_before_the_one_that_came(both: Both) -> None:
    a = block(both, "BLPOP", "a", "b", 0)
    both.admin("SET", "a", "text")
    assert a.is_quiet()
    both.admin("RPUSH", "b", 1)
    assert str(ours(a)).startswith("WRONGTYPE")


def test_in_another_database(both: Both) -> None:
    a = both.connect()
    a("SELECT", 2)
    a.send("BLPOP", "k", 0)
    wait_for_blocked(both, 1)
    both.admin("RPUSH", "k", 1)
    assert a.is_quiet()
    both.admin("SELECT", 2)
    both.admin("RPUSH", "k", 2)
    a.read()


# --- clients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "CLIENT KILL"])
def test_who_goes_away_takes_nothing_along(both: Both, how: str) -> None:
    a = both.connect()
    numbers = a.each("CLIENT", "ID")
    a.send("BLPOP", "k", "l", 0)
    wait_for_blocked(both, 1)
    b = block(both, "BRPOP", "l", 0, before=1)
    if how == "close":
        a.close()
    else:
        for line, number in zip((both.admin.redis, both.admin.tidelog), numbers, strict=True):
            line.send([b"CLIENT", b"KILL", b"ID", b"%d" % number])
        both.admin.read()
        assert a.is_closed()
    wait_for_blocked(both, 1)
    both.admin("RPUSH", "k", 1)
    both.admin("RPUSH", "l", 2)
    b.read()
    state(both)


def test_what_others_see(both: Both) -> None:
    a = block(both, "BLPOP", "k", 0)
    for reply in both.admin.each("CLIENT", "LIST"):
        (line,) = [line for line in reply.splitlines() if b"cmd=blpop" in line]
        assert b" flags=b " in line
    both.admin("RPUSH", "k", 1)
    a.read()
    for reply in both.admin.each("CLIENT", "LIST"):
        assert not any(b" flags=b " in line for line in reply.splitlines())


def test_commands_behind_one_that_waits(both: Both) -> None:
    a = block(both, "BLPOP", "k", 0)
    for command in ("RPUSH l x", "BLPOP k 0", "PING"):
        a.send(*command.split())
    b = block(both, "BRPOP", "l", 0, before=1)
    both.admin("RPUSH", "k", 1)
    a.read()
    a.read()
    b.read()
    both.admin("RPUSH", "k", 2)
    a.read()
    a.read()


def test_a_client_that_waits_and_pushes_to_itself(both: Both) -> None:
    a = both.connect()
    for command in ("RPUSH k 1", "BLMOVE k k LEFT RIGHT 0", "BLPOP k 0"):
        a(*command.split())
    b = block(both, "BLMOVE", "k", "k", "LEFT", "RIGHT", 0)
    both.admin("RPUSH", "k", 1, 2)
    b.read()
    state(both)


def test_a_pause_puts_them_off(both: Both) -> None:
    a = block(both, "BLPOP", "k", 0)
    for command in ("MULTI", "RPUSH k 1 2", "CLIENT PAUSE 100000 WRITE", "EXEC"):
        both.admin(*command.split())
    assert a.tidelog.is_quiet()
    assert both.admin.each("LLEN", "k") == (1, 2)
    both.admin("CLIENT", "UNPAUSE")
    a.read()
    state(both)


def test_replies_that_are_not_wanted(both: Both) -> None:
    a = both.connect()
    a.send("CLIENT", "REPLY", "SKIP")
    a.send("BLPOP", "k", 0)
    wait_for_blocked(both, 1)
    both.admin("RPUSH", "k", 1)
    a("PING")
    state(both)
