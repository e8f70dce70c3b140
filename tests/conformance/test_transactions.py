"""MULTI, EXEC, DISCARD, WATCH on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

import time

import pytest

from tests.conformance.socket_pair import Both, Connection


@pytest.mark.parametrize(
    "script",
    [
        "EXEC / DISCARD / UNWATCH / MULTI / EXEC",
        "EXEC x / MULTI / SET a 1 / EXEC x / EXEC / EXISTS a",
        "SUBSCRIBE news / EXEC",
        "MULTI / SET a 1 / INCR a / GET a / EXEC / GET a",
        "MULTI / MULTI / SET a 1 / EXEC",
        "MULTI / WATCH a / SET a 1 / EXEC",
        "MULTI / UNWATCH / EXEC",
        "MULTI / DISCARD / DISCARD / EXEC",
        "MULTI / SET a 1 / DISCARD / EXISTS a",
        "MULTI / NOSUCH a / SET a 1 / EXEC / EXISTS a / EXEC",
        "MULTI / GET / EXEC / MULTI / GET a / EXEC",
        "MULTI / CLIENT NOSUCH / EXEC",
        "MULTI / CLIENT / EXEC",
        "MULTI / NOSUCH / DISCARD / MULTI / PING / EXEC",
        "MULTI / SET a x / INCR a / SET b 2 / EXEC / GET a / GET b",
        "MULTI / SAVE / EXEC",
        "MULTI / SHUTDOWN / EXEC",
        "MULTI / AUTH a b c d / EXEC",
        "MULTI / SELECT 3 / SET a 1 / SELECT 99 / EXEC / GET a / SELECT 0 / EXISTS a",
        "MULTI / RESET / EXEC",
        "MULTI / PING / PING x / ECHO y / EXEC",
        "MULTI / HSET h f v / HGETALL h / HELLO 4 / EXEC",
        "MULTI / PUBLISH news hi / EXEC",
        "MULTI / CLIENT SETNAME me / CLIENT GETNAME / EXEC",
        "MULTI / CONFIG GET databases / EXEC",
        "MULTI / FLUSHALL / SET a 1 / FLUSHDB / EXEC / EXISTS a",
        "MULTI / SET a 1 PX 1 / PERSIST a / EXEC / PTTL a",
        "MULTI / DEL a / EXPIRE a 5 / EXEC",
        "WATCH / WATCH a / MULTI / SET a 1 / EXEC",
        "WATCH a / SET a 1 / MULTI / PING / EXEC / MULTI / PING / EXEC",
        "WATCH a / SET a 1 / UNWATCH / MULTI / PING / EXEC",
        "WATCH a / SET a 1 / DISCARD / MULTI / PING / EXEC",
        "WATCH a / SET a 1 / MULTI / DISCARD / MULTI / PING / EXEC",
        "WATCH a / SET a 1 / MULTI / NOSUCH / EXEC / MULTI / PING / EXEC",
        "WATCH a a b / MULTI / SET c 1 / EXEC",
        "WATCH a / DEL a / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / EXPIRE a 100 / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / PERSIST a / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / GET a / TTL a / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / SET a 1 / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / APPEND a x / MULTI / PING / EXEC",
        "HSET a f 1 / WATCH a / HSET a f 1 / MULTI / PING / EXEC",
        "SADD a 1 / WATCH a / SADD a 1 / MULTI / PING / EXEC",
        "SADD a 1 / WATCH a / SREM a 2 / MULTI / PING / EXEC",
        "SET a 1 / WATCH b / RENAME a b / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / RENAME a b / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / FLUSHALL / MULTI / PING / EXEC",
        "SET a 1 / WATCH b / FLUSHALL / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / SELECT 1 / FLUSHDB / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / SELECT 1 / SET a 2 / MULTI / PING / EXEC",
        "SET a 1 / WATCH a / SELECT 1 / FLUSHALL / SELECT 0 / MULTI / PING / EXEC",
        "WATCH a / MULTI / SET a 1 / INCR a / EXEC / MULTI / PING / EXEC",
    ],
)
def test_scripts(link: Connection, script: str) -> None:
    for command in script.split(" / "):
        link(*command.split())


def test_another_client_changes_what_is_watched(both: Both, link: Connection) -> None:
    other = both.connect()
    for change in ("SET a 2", "DEL a", "EXPIRE a 50", "FLUSHALL", "INCR a", "SET b 1"):
        other("SET", "a", 1)
        link("WATCH", "a")
        other(*change.split())
        link("MULTI")
        link("SET", "a", 9)
        link("EXEC")
        link("GET", "a")


def test_a_watched_key_expires(both: Both, link: Connection) -> None:
    link("SET", "a", 1, "PX", 30)
    link("WATCH", "a")
    time.sleep(0.06)
    link("MULTI")
    link("PING")
    assert link("EXEC") is None


def test_a_key_that_had_expired_when_it_was_watched(both: Both, link: Connection) -> None:
    link("SET", "a", 1, "PX", 1)
    time.sleep(0.01)
    link("WATCH", "a")
    both.admin("GET", "a")
    time.sleep(0.15)
    link("MULTI")
    link("PING")
    link("EXEC")


def test_one_client_watches_and_leaves(both: Both) -> None:
    leaving, staying = both.connect(), both.connect()
    leaving("WATCH", "a")
    leaving.close()
    staying("SET", "a", 1)
    staying("MULTI")
    staying("PING")
    staying("EXEC")


def test_nobody_sees_half_of_it(both: Both) -> None:
    writer, reader = both.connect(), both.connect()
    writer("MULTI")
    writer("SET", "a", 1)
    reader("EXISTS", "a")
    writer("SET", "b", 1)
    writer("EXEC")
    reader("MGET", "a", "b")


def test_hello_inside_changes_how_later_replies_look(both: Both) -> None:
    link = both.connect()
    link("HSET", "h", "f", "v")
    link("MULTI")
    link("HGETALL", "h")
    link.send("HELLO", 3)
    link.read()
    link("HGETALL", "h")
    theirs, ours = link.each("EXEC")
    assert theirs[0] == ours[0] == [b"f", b"v"]
    assert theirs[2] == ours[2] == {b"f": b"v"}


def test_differs_subscribing_inside_is_refused(both: Both) -> None:
    """Redis queues it; here a transaction has replies and never becomes a stream of messages."""
    link = both.connect()
    link("MULTI")
    theirs, ours = link.each("SUBSCRIBE", "news")
    assert theirs == b"QUEUED"
    assert str(ours) == "ERR Command not allowed inside a transaction"
    link.each("EXEC")
