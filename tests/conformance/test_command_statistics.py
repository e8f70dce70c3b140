"""INFO commandstats and errorstats, on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

import re

import pytest

from tests.conformance.socket_pair import Both, Connection

Counts = dict[str, tuple[int, int, int]]


def counts(link: Connection, *without: str) -> tuple[Counts, Counts]:
    """Command -> how often it was called, rejected and failed; of Redis and of Tidelog."""
    return _read(link.each("INFO", "commandstats")[0], without), _read(link.each("INFO", "commandstats")[1], without)


def _read(text: bytes, without: tuple[str, ...]) -> Counts:
    form = r"cmdstat_([a-z|-]+):calls=(\d+),usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=(\d+),failed_calls=(\d+)"
    lines = text.decode().split("\r\n")
    assert lines[0] == "# Commandstats"
    found = [re.fullmatch(form, line) for line in lines[1:] if line]
    assert None not in found, lines
    return {
        each[1]: (int(each[2]), int(each[3]), int(each[4]))
        for each in found
        if each is not None and each[1] not in ("info", *without)
    }


SCRIPTS = [
    ["SET a 1", "set a 1", "GET a", "Get a", "INCR a", "INCR a", "HSET h f v", "HGET h f", "GET h", "INCR h"],
    ["GET", "GET a b", "NOSUCH", "CONFIG NOSUCH", "CONFIG GET", "CONFIG GET maxmemory", "AUTH x", "SELECT 99"],
    ["MULTI", "SET a 1", "GET a", "INCR h", "EXEC", "MULTI", "NOSUCH", "SET a", "EXEC", "EXEC", "MULTI", "DISCARD"],
    ["MULTI", "SET a 1", "SET b 1 EX 100", "INCR a", "EXEC"],
    ["WATCH a", "SET a 2", "MULTI", "SET a 1", "EXEC"],
    ["SUBSCRIBE a", "GET x", "UNSUBSCRIBE", "XADD s * f v", "XREAD STREAMS s 0", "XREAD BLOCK 1 STREAMS s $"],
    ["MSET a 1 b 2", "MSET a", "MGET a b", "CLIENT SETNAME x", "CLIENT ID", "PING", "ECHO x", "SADD a x", "TTL a"],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0])
@pytest.mark.parametrize("is_pipelined", [False, True])
def test_counts(both: Both, script: list[str], is_pipelined: bool) -> None:
    link = both.connect()
    both.admin.each("CONFIG", "RESETSTAT")
    if is_pipelined:
        link.send_bytes("".join(f"{line}\r\n" for line in script).encode())
    for line in script:
        if not is_pipelined:
            link.send(*line.split())
        link.read(lambda _item: None)
    theirs, ours = counts(both.admin, "config|resetstat")
    assert ours == theirs
    theirs_errors, ours_errors = both.admin.each("INFO", "errorstats")
    assert sorted(ours_errors.split()) == sorted(theirs_errors.split())


def test_runs_of_hot_commands_and_their_time(both: Both) -> None:
    link = both.connect(3)
    both.admin.each("CONFIG", "RESETSTAT")
    for _ in range(3):
        link.send_bytes(b"SET a 1\r\nGET a\r\n" * 500 + b"MULTI\r\nSET a 1\r\nINCR b\r\nGET c\r\nEXEC\r\n" * 100)
        for _ in range(1500):
            link.read()
    theirs, ours = counts(link, "config|resetstat")
    assert ours == theirs
    assert ours["set"] == (1800, 0, 0)
    for text in link.each("INFO", "commandstats"):
        for name in ("set", "get", "exec"):
            (used,) = re.findall(rb"cmdstat_%b:calls=\d+,usec=(\d+)" % name.encode(), text)
            assert int(used) > 0
    link.each("CONFIG", "RESETSTAT")
    link("GET", "a")
    theirs, ours = counts(link, "config|resetstat")
    assert ours == theirs == {"get": (1, 0, 0)}


def test_commands_of_scripts(both: Both) -> None:
    link = both.connect()
    link("HSET", "h", "f", "v")
    both.admin.each("CONFIG", "RESETSTAT")
    script = "redis.call('set', 'a', 1) redis.pcall('incr', 'h') redis.pcall('get') return redis.call('get', 'a')"
    for _ in range(3):
        link("EVAL", script, 0)
    theirs, ours = counts(both.admin, "config|resetstat")
    assert ours["set"] == theirs["set"] == (3, 0, 0)
    assert ours["incr"] == theirs["incr"] == (3, 0, 3)
    assert ours["eval"] == theirs["eval"] == (3, 0, 0)
    assert ours["get"][0] == theirs["get"][0] == 3


@pytest.mark.parametrize(
    "script",
    [
        "return redis.call('incr', 'h')",
        "return redis.pcall('incr', 'h')",
        "redis.pcall('incr', 'h') return 1",
        "return {err = 'FOO x'}",
        "return redis.error_reply('BAR x')",
        "error('oops')",
        "error({err = 'BAZ x'})",
        "return redis.call('nosuch')",
        "local reply = redis.pcall('incr', 'h') return {err = reply.err}",
        "return (",
    ],
)
def test_an_error_of_a_script_is_counted_once(both: Both, script: str) -> None:
    link = both.connect()
    link("HSET", "h", "f", "v")
    both.admin.each("CONFIG", "RESETSTAT")
    for _ in range(2):
        link.each("EVAL", script, 0)
    theirs, ours = counts(both.admin, "config|resetstat")
    assert ours == theirs
    theirs_errors, ours_errors = both.admin.each("INFO", "errorstats")
    assert ours_errors.split() == theirs_errors.split()


def test_not_part_of_the_default(both: Both) -> None:
    for text in both.admin.each("INFO"):
        assert b"# Commandstats" not in text
        assert b"# Errorstats" in text
    for text in both.admin.each("INFO", "all"):
        assert b"# Commandstats" in text
