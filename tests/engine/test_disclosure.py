"""What the reply to a command may tell of keys."""

from __future__ import annotations

import pytest

from tidelog.commands.families import command_table
from tidelog.engine.disclosure import Asked

TABLE = command_table()
KEYS = frozenset([b"k", b"l"])


def asked(*lines: str) -> Asked:
    made = Asked()
    made.add([line.encode().split() for line in lines], ())
    return made


@pytest.mark.parametrize(
    "line",
    [
        *("PING", "ECHO k", "INFO", "CLIENT LIST", "CONFIG GET k", "SELECT 1", "MULTI", "EXEC", "PUBLISH k m"),
        *("SUBSCRIBE k", "COMMAND COUNT", "GET x", "MGET x y", "XREAD STREAMS x y 0 0", "SINTERCARD 2 x y"),
        *("GET", "NOSUCH k", "SINTERCARD 9 k", "OBJECT HELP", "HGET x k"),
    ],
)
def test_replies_that_tell_nothing_of_them(line: str) -> None:
    assert not asked(line).may_tell_of(KEYS, TABLE, False)


@pytest.mark.parametrize(
    "line",
    [
        *("GET k", "get k", "MGET x k", "XREAD COUNT 1 STREAMS x l 0 0", "SINTERCARD 2 x l", "OBJECT ENCODING k"),
        *("DBSIZE", "KEYS x*", "SCAN 0", "RANDOMKEY", "SET k 1", "DEL x l", "FLUSHALL", "XADD k * f v"),
    ],
)
def test_replies_that_may_tell_of_them(line: str) -> None:
    assert asked("PING", line, "PING").may_tell_of(KEYS, TABLE, False)


def test_the_refusal_of_a_write_tells_nothing() -> None:
    lines = "SET k 1", "FLUSHALL", "XREADGROUP GROUP g c STREAMS k >", "ZUNIONSTORE k 1 l"
    assert not asked(*lines).may_tell_of(KEYS, TABLE, True)
    assert not asked(*lines).may_tell_of(None, TABLE, True)
    assert asked(*lines, "GET k").may_tell_of(KEYS, TABLE, True)


def test_where_any_key_may_have_changed() -> None:
    assert asked("GET x").may_tell_of(None, TABLE, False)
    assert not asked("PING", "INFO").may_tell_of(None, TABLE, False)


def test_what_is_watched_counts() -> None:
    made = Asked()
    assert not made.may_tell_of(None, TABLE, False)
    made.add([[b"EXEC"]], {(0, b"k")})
    assert made.may_tell_of(KEYS, TABLE, False)
    assert not made.may_tell_of(frozenset([b"x"]), TABLE, False)
