"""MONITOR on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.redis_oracle import Item
from tests.conformance.socket_pair import Both

LINE = re.compile(rb'(\d{10}\.\d{6}) \[(\d+) (127\.0\.0\.1:\d+|lua)\] (".*)')


def SHOWN(item: Item) -> Any:
    """A line without what differs between two runs: time and port."""
    found = LINE.fullmatch(item.value)
    if found is None:
        return item
    return item.mark, found[2], found[3].partition(b":")[0], found[4]


@pytest.mark.parametrize(
    "script",
    [
        ["SET a 1", "get a", "INCR a", "GET", "NOSUCH", "INCR nosuch x", "LPOP", "HSET h f v", "INCR h"],
        ["SELECT 3", "SET a 1", "SELECT 99", "SELECT 0", "PING", "ECHO x"],
        ["MULTI", "SET a 1", "INCR a", "INCR h", "CONFIG GET maxmemory", "EXEC", "MULTI", "SET a 1", "DISCARD"],
        ["MULTI", "NOSUCH", "EXEC", "WATCH a", "SET a 1", "MULTI", "GET a", "EXEC", "UNWATCH"],
        [
            "CONFIG GET maxmemory",
            "CLIENT LIST",
            "CLIENT ID",
            "CLIENT SETNAME x",
            "SLOWLOG LEN",
            "DEBUG SLEEP 0",
            "INFO x",
        ],
        ["AUTH secret", "AUTH default secret", "AUTH other secret"],
        ["SUBSCRIBE a", "UNSUBSCRIBE", "PUBLISH a x", "SPUBLISH a x", "PUBSUB NUMPAT"],
        ["XADD s 1-1 f v", "XREAD BLOCK 5 STREAMS s $", "XREAD BLOCK 5 STREAMS s 0", "RESET"],
        ["COMMAND COUNT", "OBJECT HELP", "MEMORY USAGE a", "FLUSHALL", "DBSIZE", "ROLE"],
    ],
    ids=lambda script: script[0],
)
def test_lines(both: Both, protocol: int, script: list[str]) -> None:
    monitor, client = both.connect(protocol), both.connect()
    monitor("MONITOR")
    for command in script:
        client.send(*command.split())
        client.read(lambda _item: None)
    client("ECHO", "the end")
    while SHOWN_END not in monitor.read(SHOWN):
        pass
    assert monitor.is_quiet()


SHOWN_END = b'"ECHO" "the end"'


SCRIPT = "redis.call('set', KEYS[1], ARGV[1]) redis.pcall('incr', 'h') return redis.call('get', KEYS[1])"


def test_a_script_is_shown_before_its_commands(both: Both, protocol: int) -> None:
    monitor, client = both.connect(protocol), both.connect()
    client("HSET", "h", "f", "v")
    client("SELECT", 3)
    sha = client("SCRIPT", "LOAD", SCRIPT)
    monitor("MONITOR")
    client("EVAL", SCRIPT, 1, "k", "v")
    client("EVALSHA", sha, 1, "k", "w")
    client("MULTI")
    client("EVAL", "return redis.call('get', 'k')", 0)
    client("EXEC")
    for _ in range(2 * 4 + 4):
        monitor.read(SHOWN)
    assert monitor.is_quiet()
    monitor("EVAL", "return 1", 0)


@pytest.mark.parametrize("argument", [b"", b'"', b"\\", b"a\nb\r\t\a\b", bytes(range(256)), b"x" * 5000, "ä".encode()])
def test_arguments(both: Both, argument: bytes) -> None:
    monitor, client = both.connect(), both.connect()
    monitor("MONITOR")
    client("SET", "key", argument)
    monitor.read(SHOWN)


def test_a_monitor_may_do_little_else(both: Both, protocol: int) -> None:
    monitor = both.connect(protocol)
    monitor("MONITOR")
    monitor.send("MONITOR")  # has no reply
    for command in ("GET a", "SET a 1", "PUBLISH a x", "DBSIZE", "NOSUCH", "GET"):
        monitor(*command.split())
    for command in ("PING", "ECHO x"):
        monitor(*command.split())
        monitor.read(SHOWN)  # its own, behind the reply
    monitor("CONFIG", "GET", "maxmemory")
    assert monitor.is_quiet()
    theirs, ours = both.admin.each("CLIENT", "LIST")
    for lines in (theirs, ours):
        assert b" flags=O " in lines
    assert both.admin("CLIENT", "KILL", "TYPE", "normal") >= 1
    assert monitor.is_closed()


def test_reset_ends_it(both: Both) -> None:
    monitor, other, client = both.connect(), both.connect(), both.connect()
    monitor("MONITOR")
    other("MONITOR")
    monitor("RESET")
    other.read(SHOWN)
    client("SET", "a", 1)
    other.read(SHOWN)
    monitor("GET", "a")
    other.read(SHOWN)
    assert monitor.is_quiet()
    other("QUIT")
    assert other.is_closed()
    client("GET", "a")


def test_two_are_shown_the_same(both: Both) -> None:
    monitors = [both.connect(number) for number in (2, 3)]
    for monitor in monitors:
        monitor("MONITOR")
    both.connect()("SET", "a", 1)
    for monitor in monitors:
        monitor.read(SHOWN)
