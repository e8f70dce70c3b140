"""Pub/sub on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.redis_oracle import Item
from tests.conformance.socket_pair import Both


@pytest.mark.parametrize(
    "script",
    [
        ["SUBSCRIBE a", "GET x", "NOSUCH", "GET", "PING", "PING x", "PING x y", "RESET", "GET x"],
        ["SUBSCRIBE a", "SSUBSCRIBE s", "UNSUBSCRIBE", "PING", "SUNSUBSCRIBE", "PING"],
        ["PSUBSCRIBE a*", "SET x 1", "PUNSUBSCRIBE a*", "SET x 1"],
        ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "PUBLISH a", "SPUBLISH", "PUBSUB"],
        ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE x", "PUNSUBSCRIBE y", "SUNSUBSCRIBE z"],
        ["PUBSUB CHANNELS a b", "PUBSUB NUMSUB", "PUBSUB NUMPAT x", "PUBSUB FOO", "PUBSUB NUMPAT", "PUBSUB HELP"],
        ["PUBSUB SHARDNUMSUB a", "PUBSUB SHARDCHANNELS", "PUBSUB SHARDCHANNELS a b", "PUBSUB NUMSUB a b"],
        ["SUBSCRIBE a", "MULTI"],
        ["SUBSCRIBE a", "QUIT"],
        ["PUBLISH nobody hears", "SPUBLISH nobody hears"],
        ["SSUBSCRIBE s", "GET x", "SPUBLISH s x", "PING", "SSUBSCRIBE s", "RESET", "GET x", "PUBSUB SHARDCHANNELS"],
        ["SSUBSCRIBE s", "SUNSUBSCRIBE s", "SUNSUBSCRIBE s", "GET x", "SPUBLISH s x y"],
        ["SSUBSCRIBE s", "QUIT"],
    ],
)
def test_scripts(both: Both, protocol: int, script: list[str]) -> None:
    link = both.connect(protocol)
    for command in script:
        link(*command.split())


def test_subscribing_to_several_confirms_each(both: Both, protocol: int) -> None:
    link = both.connect(protocol)
    link.send("SUBSCRIBE", "a", "b", "a")
    link.send("PSUBSCRIBE", "p*", "a")
    link.send("SSUBSCRIBE", "a", "s")
    for _ in range(7):
        link.read()
    link.send("UNSUBSCRIBE", "b", "b", "nothing")
    for _ in range(3):
        link.read()
    link.send("PUNSUBSCRIBE")
    for _ in range(2):
        link.read(UNORDERED_NAMES)
    link.send("SUNSUBSCRIBE")
    for _ in range(2):
        link.read(UNORDERED_NAMES)
    link("UNSUBSCRIBE")


def UNORDERED_NAMES(item: Item) -> Any:
    """A confirmation but for its name: without names, all are left in any order."""
    return [item.value[0], item.value[2]]


def test_messages(both: Both, protocol: int) -> None:
    listener, other = both.connect(protocol), both.connect(3)
    listener("SUBSCRIBE", "news")
    listener("PSUBSCRIBE", "n?ws")
    listener("SSUBSCRIBE", "news")
    other("SUBSCRIBE", "news")
    assert both.admin("PUBLISH", "news", b"\r\n\x00") == 3
    listener.read()
    listener.read()
    other.read()
    assert both.admin("SPUBLISH", "news", "") == 1
    listener.read()
    assert both.admin("PUBLISH", "no news", "x") == 0
    assert listener.is_quiet()
    both.admin("PUBSUB", "NUMSUB", "news", "nothing")
    both.admin("PUBSUB", "NUMPAT")
    both.admin("PUBSUB", "CHANNELS")
    both.admin("PUBSUB", "CHANNELS", "x*")
    both.admin("PUBSUB", "SHARDCHANNELS", "n*")
    both.admin("PUBSUB", "SHARDNUMSUB", "news")
    listener.close()
    both.eventually(lambda: both.admin.each("PUBSUB", "NUMSUB", "news") == ([b"news", 1], [b"news", 1]))
    both.admin("PUBSUB", "NUMPAT")


def test_order_of_messages_and_replies(both: Both) -> None:
    """In RESP3 a connection may publish to itself: the message comes before the reply."""
    link = both.connect(3)
    link("SUBSCRIBE", "me")
    link.send_bytes(b"SET a 1\r\nPUBLISH me one\r\nGET a\r\nPUBLISH me two\r\nPING\r\n")
    for _ in range(7):
        link.read()


def test_messages_of_a_transaction(both: Both, protocol: int) -> None:
    listener, writer = both.connect(protocol), both.connect()
    listener("SUBSCRIBE", "news")
    writer("MULTI")
    for number in range(3):
        writer("PUBLISH", "news", number)
    assert listener.is_quiet()
    writer("EXEC")
    for _ in range(3):
        listener.read()


def test_many_messages_stay_in_order(both: Both, protocol: int) -> None:
    listener, writer = both.connect(protocol), both.connect()
    listener("SUBSCRIBE", "news")
    writer.send_bytes(b"".join(b"PUBLISH news %d\r\n" % number for number in range(500)))
    for number in range(500):
        writer.read()
        assert listener.read()[2] == b"%d" % number


def test_leaving_one_of_many_patterns(both: Both) -> None:
    link = both.connect()
    for pattern in ("*", "a*", "[ab]", r"\*"):
        link("PSUBSCRIBE", pattern)
    assert both.admin("PUBLISH", "a", "x") == 3
    for line in (link.redis, link.tidelog):  # one message a pattern, in any order
        assert {line.read()[0].value[1].value for _ in range(3)} == {b"*", b"a*", b"[ab]"}
    link("PUNSUBSCRIBE", "a*")
    assert both.admin("PUBLISH", "a", "x") == 2


def test_shard_messages_of_a_transaction(both: Both, protocol: int) -> None:
    listener, writer = both.connect(protocol), both.connect()
    listener("SSUBSCRIBE", "news")
    writer("MULTI")
    for number in range(3):
        writer("SPUBLISH", "news", number)
    writer("PUBLISH", "news", "for others")
    assert listener.is_quiet()
    writer("EXEC")
    for _ in range(3):
        listener.read()
    assert listener.is_quiet()


def test_shard_channels_are_channels_of_their_own(both: Both, protocol: int) -> None:
    listener, plain, pattern = both.connect(protocol), both.connect(), both.connect()
    listener("SSUBSCRIBE", "news")
    plain("SUBSCRIBE", "news")
    pattern("PSUBSCRIBE", "*")
    assert both.admin("SPUBLISH", "news", "x") == 1
    listener.read()
    assert plain.is_quiet()
    assert pattern.is_quiet()
    both.admin("PUBSUB", "SHARDNUMSUB", "news", "other")
    assert both.admin("PUBSUB", "CHANNELS") == [b"news"]
    for facts in both.admin.each("CLIENT", "LIST", "TYPE", "pubsub"):
        counts = [[field for field in line.split() if b"sub=" in field] for line in facts.splitlines()]
        assert counts == [
            [b"sub=0", b"psub=0", b"ssub=1"],
            [b"sub=1", b"psub=0", b"ssub=0"],
            [b"sub=0", b"psub=1", b"ssub=0"],
        ]
    for facts in both.admin.each("INFO", "stats"):
        assert b"pubsubshard_channels:1" in facts
    listener("RESET")
    assert both.admin("SPUBLISH", "news", "x") == 0
