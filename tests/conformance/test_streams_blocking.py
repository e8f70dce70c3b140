"""BLOCK of XREAD and XREADGROUP on Tidelog and on a real Redis: who is woken by what, and with which reply.

Where a group or its key goes away, Redis 7.2 says NOGROUP; the texts of 7.0 are others, so there only ours is checked.
"""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.conformance.blocked_pair import block, wait_for_blocked
from tests.conformance.redis_oracle import decode
from tests.conformance.socket_pair import Both, Connection

NO_GROUP: Final = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"
GROUP_READ: Final = ("XREADGROUP", "GROUP", "g")


def ours(connection: Connection) -> str:
    """What Tidelog replied, an error; Redis replied with some error too."""
    theirs, (_, data) = connection.redis.read()[1], connection.tidelog.read()
    assert theirs.startswith(b"-")
    return str(decode(data))


def test_a_reader_is_woken(both: Both, protocol: int) -> None:
    a = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "t", "0", "$", protocol=protocol)
    both.admin("XADD", "t", "1-1", "a", "b")
    a.read()
    a("PING")


def test_the_last_id_is_that_of_when_it_came(both: Both) -> None:
    both.admin("XADD", "s", "5-1", "a", "b")
    a = block(both, "XREAD", "COUNT", 10, "BLOCK", 0, "STREAMS", "none", "s", "$", "$")
    b = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "7-1", before=1)
    both.admin("MULTI")
    both.admin("XADD", "s", "6-1", "a", "b")
    both.admin("XADD", "s", "7-1", "a", "b")
    both.admin("EXEC")
    a.read()
    assert b.is_quiet()
    both.admin("XADD", "s", "8-1", "a", "b")
    b.read()


def test_time_is_over(both: Both, protocol: int) -> None:
    began = time.monotonic()
    a = both.connect(protocol)
    a("XREAD", "BLOCK", 60, "STREAMS", "s", "$")
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a(*GROUP_READ, "c", "BLOCK", 60, "STREAMS", "s", ">")
    assert time.monotonic() - began >= 0.12
    a("PING")


def test_nothing_is_added(both: Both) -> None:
    """What changes a stream without a new entry wakes nobody."""
    both.admin("XADD", "s", "1-1", "a", "b")
    both.admin("XGROUP", "CREATE", "s", "g", "$")
    a = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    b = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">", before=1)
    for command in (
        "XDEL s 1-1",
        "XTRIM s MAXLEN 0",
        "XSETID s 5-1",
        "XGROUP CREATE s h 0",
        "EXPIRE s 100",
        "XADD other 1-1 a b",
    ):
        both.admin(*command.split())
    assert a.is_quiet()
    assert b.is_quiet()
    both.admin("XADD", "s", "6-1", "a", "b")
    a.read()
    b.read()


def test_a_deleted_key_is_waited_for(both: Both) -> None:
    both.admin("XADD", "s", "1-1", "a", "b")
    a = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    for command in ("DEL s", "SET s text", "DEL s", "XADD s 1-1 a b"):
        both.admin(*command.split())
    assert a.is_quiet()  # it waits for what comes after 1-1
    both.admin("XADD", "s", "1-2", "a", "b")
    a.read()


def test_readers_of_a_group_take_turns(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    lines = [block(both, *GROUP_READ, f"c{at}", "BLOCK", 0, "STREAMS", "s", ">", before=at) for at in range(3)]
    for at, line in enumerate(lines):
        both.admin("XADD", "s", f"{at + 1}-1", "a", "b")
        line.read()
        assert all(other.is_quiet() for other in lines[at + 1 :])
    both.admin("XPENDING", "s", "g")


def test_one_write_serves_several(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    lines = [
        block(both, *GROUP_READ, f"c{at}", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", ">", before=at) for at in range(4)
    ]
    reader = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "$", before=4)
    both.admin("MULTI")
    for number in range(1, 4):
        both.admin("XADD", "s", f"{number}-1", "a", "b")
    both.admin("EXEC")
    for line in (*lines[:3], reader):
        line.read()
    assert lines[3].is_quiet()
    both.admin("XPENDING", "s", "g")


def test_many_are_served_at_once(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    lines = [both.connect() for _ in range(300)]
    for at, line in enumerate(lines):
        line.send(*GROUP_READ, f"c{at % 7}", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", ">")
        if at % 50 == 49:
            wait_for_blocked(both, at + 1)
    both.admin("MULTI")
    for number in range(1, 301):
        both.admin("XADD", "s", f"{number}-1", "a", "b")
    both.admin("EXEC")
    for line in lines:
        line.redis.read()
        line.tidelog.read()
    wait_for_blocked(both, 0)
    assert both.admin("XPENDING", "s", "g")[0] == 300


def test_history_never_waits(both: Both, protocol: int) -> None:
    both.admin("XADD", "s", "1-1", "a", "b")
    both.admin("XGROUP", "CREATE", "s", "g", "0")
    a = both.connect(protocol)
    a(*GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", "0")
    a(*GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    a(*GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", "0")


def test_without_acknowledgement(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "NOACK", "STREAMS", "s", ">")
    both.admin("XADD", "s", "1-1", "a", "b")
    a.read()
    both.admin("XPENDING", "s", "g")
    both.admin("XINFO", "GROUPS", "s")


@pytest.mark.parametrize("script", ["XGROUP DESTROY s g", "DEL s", "RENAME s t", "FLUSHALL", "FLUSHDB", "UNLINK s"])
def test_the_group_goes_away(both: Both, script: str) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    b = block(both, *GROUP_READ, "d", "BLOCK", 0, "STREAMS", "s", ">", before=1)
    both.admin(*script.split())
    for line in (a, b):
        assert ours(line) == NO_GROUP
        line("PING")


def test_the_key_becomes_something_else(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    both.admin("SET", "s", "text")
    assert ours(a).startswith("WRONGTYPE")


def test_the_key_expires(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    both.admin("PEXPIRE", "s", 50)
    assert ours(a) == NO_GROUP


def test_a_group_is_moved_back(both: Both) -> None:
    """Redis looks at a group again when something is added; here it is when the group changes."""
    both.admin("XADD", "s", "1-1", "a", "b")
    both.admin("XGROUP", "CREATE", "s", "g", "$")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    both.admin("XGROUP", "SETID", "s", "g", "0")
    both.admin("XADD", "s", "2-1", "a", "b")
    theirs, found = decode(a.redis.read()[1]), decode(a.tidelog.read()[1])
    assert [entry[0] for entry in theirs[0][1]] == [b"1-1", b"2-1"]
    assert found[0][1][0][0] == b"1-1"


def test_inside_a_transaction_nobody_waits(both: Both, protocol: int) -> None:
    a = both.connect(protocol)
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    for command in (["MULTI"], ["XREAD", "BLOCK", 0, "STREAMS", "s", "$"], [*GROUP_READ, "c", "BLOCK", 0, "STREAMS",
                    "s", ">"],
                    ["XREAD", "BLOCK", 0, "STREAMS", "s", "0"], ["EXEC"]):  # fmt: skip
        a(*command)


def test_unblock(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    for words, is_group in ((["XREAD"], False), ([*GROUP_READ, "c"], True)):
        for how in ((), ("TIMEOUT",), ("ERROR",)):
            a = both.connect()
            numbers = a.each("CLIENT", "ID")
            a.send(*words, "BLOCK", 0, "STREAMS", "s", ">" if is_group else "$")
            wait_for_blocked(both, 1)
            for line, number in zip((both.admin.redis, both.admin.tidelog), numbers, strict=True):
                line.send([b"CLIENT", b"UNBLOCK", b"%d" % number, *(word.encode() for word in how)])
            assert both.admin.read() == 1
            a.read()
            a("PING")


def test_who_goes_away_is_forgotten(both: Both) -> None:
    both.admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    a = block(both, *GROUP_READ, "c", "BLOCK", 0, "STREAMS", "s", ">")
    b = block(both, *GROUP_READ, "d", "BLOCK", 0, "STREAMS", "s", ">", before=1)
    a.close()
    wait_for_blocked(both, 1)
    both.admin("XADD", "s", "1-1", "a", "b")
    b.read()


def test_commands_behind_one_that_waits(both: Both) -> None:
    a = block(both, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    a.send("XLEN", "s")
    a.send("XREAD", "BLOCK", 0, "STREAMS", "s", "1-1")
    a.send("PING")
    both.admin("XADD", "s", "1-1", "a", "b")
    a.read()
    a.read()
    both.admin("XADD", "s", "2-1", "a", "b")
    a.read()
    a.read()
