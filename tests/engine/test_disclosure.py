"""What the reply to a command may tell of keys."""

from __future__ import annotations

import pytest

from tidelog.commands.families import command_table
from tidelog.engine.disclosure import Asked
from tidelog.store.watch import Watches

TABLE = command_table()
KEYS = frozenset([b"k", b"l"])


class Client:
    """One that may watch keys."""

    def __init__(self) -> None:
        self.watched: set[tuple[int, bytes]] = set()
        self.is_dirty = False


def asked(*lines: str) -> Asked:
    made = Asked()
    made.add([line.encode().split() for line in lines], set())
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
        *("EVAL return 0", "FCALL f 0", "FUNCTION LOAD code", "FUNCTION DELETE l", "FUNCTION LIST", "FUNCTION DUMP"),
    ],
)
def test_replies_that_may_tell_of_them(line: str) -> None:
    assert asked("PING", line, "PING").may_tell_of(KEYS, TABLE, False)


def test_the_refusal_of_a_write_tells_nothing() -> None:
    lines = "SET k 1", "FLUSHALL", "XREADGROUP GROUP g c STREAMS k >", "ZUNIONSTORE k 1 l", "FUNCTION LOAD code"
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


def test_what_was_watched_counts_until_it_is_told() -> None:
    """EXEC lets go of it before its reply has left."""
    client, watches = Client(), Watches()
    watches.add(client, 0, b"k")
    made = Asked()
    made.add([[b"MULTI"], [b"EXEC"]], client.watched)
    watches.forget(client)
    made.add([[b"PING"]], client.watched)
    assert made.may_tell_of(KEYS, TABLE, False)
    made.clear()
    assert not made.may_tell_of(KEYS, TABLE, False)


def test_many_watched_keys_cost_nothing_more() -> None:
    """They are not copied for each command."""
    made = Asked()
    watched = {(0, b"k%d" % number) for number in range(1000)}
    for _ in range(1000):
        made.add([[b"PING"]], watched)
    assert sum(len(words) for commands in made.buffers for words in commands) + len(made.watched) <= 1001
