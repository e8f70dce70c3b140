"""REPLICAOF, ROLE, FAILOVER and REPLCONF, on an engine whose role the test has in its hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.engine.roles import HandMadeRole
from tidelog.errors import ClientError
from tidelog.ids import Ts
from tidelog.ports import NetworkAddress
from tidelog.replication.facts import FollowerFacts
from tidelog.replication.message import LinkRole


def made() -> tuple[Server, HandMadeRole, BlockedClient]:
    server = Server()
    return server, HandMadeRole(server.engine), server.connect()


def follower(host: str, port: int, state: str = "online", written: int = 7) -> FollowerFacts:
    return FollowerFacts(host, port, state, Ts(written), Ts(written), 0, 0, 0, 0)


@in_loop
async def test_following_and_leading() -> None:
    _, role, client = made()
    assert await client("REPLICAOF", "Leader.example", 6399) == b"OK"
    assert [role.role, role.leader] == [LinkRole.FOLLOWER, ("Leader.example", 6399)]
    assert await client("SLAVEOF", "leader.EXAMPLE", 6399) == b"OK Already connected to specified master"
    assert await client("REPLICAOF", "::1", 0) == b"OK"
    assert role.leader == ("::1", 0)
    assert await client("slaveof", "no", "ONE") == b"OK"
    assert [role.role, role.leader] == [LinkRole.LEADER, None]
    assert await client("SET", "k", "v") == b"OK"


@pytest.mark.parametrize(
    ("host", "port", "error"),
    [
        ("a", "x", "ERR Invalid master port"),
        ("a", "-1", "ERR Invalid master port"),
        ("a", "65536", "ERR Invalid master port"),
        ("", "1", "ERR '' cannot be the name of a host"),
        ("a b", "1", "ERR 'a b' cannot be the name of a host"),
        ("x" * 256, "1", "ERR 'xxx"),
        ("\xe9", "1", "ERR '"),
    ],
)
def test_what_cannot_be_followed(host: str, port: str, error: str) -> None:
    @in_loop
    async def run() -> None:
        _, role, client = made()
        assert str(await client("REPLICAOF", host, port)).startswith(error)
        assert role.role is LinkRole.LEADER

    run()


@in_loop
async def test_a_role_that_cannot_be_changed() -> None:
    _, role, client = made()

    def fail(address: NetworkAddress) -> None:
        assert address == ("a", 1)
        raise OSError(28, "No space left on device")

    role.follow = fail  # type: ignore[method-assign]
    reply = str(await client("REPLICAOF", "a", 1))
    assert reply == "ERR the role stays as it is: [Errno 28] No space left on device"
    await client("MULTI")
    await client("REPLICAOF", "a", 1)
    assert await client("EXEC") == [b"OK"]
    role.fail_overs = [(None, 0, False)]
    assert str(await client("REPLICAOF", "NO", "ONE")) == "ERR REPLICAOF not allowed while failing over."


@in_loop
async def test_inside_multi_at_the_end_of_the_turn() -> None:
    server, role, client = made()
    calls: list[Callable[[], None]] = []
    server.engine.at_end_of_turn = calls.append
    await client("MULTI")
    for command in (("SET", "k", "v"), ("SLAVEOF", "a", 1), ("SET", "k", "w"), ("CLIENT", "KILL", "TYPE", "normal")):
        assert await client(*command) == b"QUEUED"
    assert await client("EXEC") == [b"OK", b"OK", b"OK", 0]
    assert (role.role, len(calls)) == (LinkRole.LEADER, 1)
    calls[0]()
    assert role.leader == ("a", 1)
    assert await client("GET", "k") == b"w"


@in_loop
async def test_role() -> None:
    server, role, client = made()
    await client("SET", "k", "v")
    now = server.store.journal.writer.last_ts
    role.followers = [follower("10.0.0.1", 6399, written=now - 1), follower("10.0.0.2", 1, "sync")]
    assert await client("ROLE") == [b"master", now, [[b"10.0.0.1", b"6399", b"%d" % (now - 1)]]]
    role.follow(("leader", 6399))
    assert await client("ROLE") == [b"slave", b"leader", 6399, b"connected", now]
    role.is_link_up = False
    assert await client("ROLE") == [b"slave", b"leader", 6399, b"connect", now]


@in_loop
async def test_without_replication() -> None:
    client = Server().connect()
    assert await client("ROLE") == [b"master", 0, []]
    for command in (("REPLICAOF", "a", 1), ("FAILOVER",)):
        assert str(await client(*command)) == "ERR this server has no replication"


@in_loop
async def test_failing_over() -> None:
    _, role, client = made()
    assert str(await client("FAILOVER")) == "ERR FAILOVER requires connected replicas."
    role.followers = [follower("A", 1), follower("b", 2, "sync")]
    for words, error in (
        (("TO", "c", 1), "ERR FAILOVER target HOST and PORT is not a replica."),
        (("TO", "b", 2), "ERR FAILOVER target replica is not online."),
        (("FORCE",), "ERR FAILOVER with force option requires both a timeout and target HOST and IP."),
        (("TO", "a", 1, "FORCE"), "ERR FAILOVER with force option requires both a timeout and target HOST and IP."),
        (("ABORT",), "ERR No failover in progress."),
        (("TO", "a"), "ERR syntax error"),
        (("TIMEOUT", 5, "TIMEOUT", 5), "ERR syntax error"),
    ):
        assert str(await client("FAILOVER", *words)) == error
    assert role.fail_overs == []
    assert await client("FAILOVER", "TO", "a", 1, "FORCE", "TIMEOUT", 500) == b"OK"
    assert role.fail_overs == [(("A", 1), 500, True)]
    assert str(await client("FAILOVER")) == "ERR FAILOVER already in progress."
    assert await client("FAILOVER", "ABORT") == b"OK"
    assert await client("FAILOVER") == b"OK"
    assert role.fail_overs == [(None, 0, False)]


@in_loop
async def test_a_failover_that_is_impossible() -> None:
    _, role, client = made()
    role.followers = [follower("a", 1)]

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise ClientError("not now")

    role.fail_over = fail  # type: ignore[method-assign]
    assert str(await client("FAILOVER")) == "ERR not now"
    role.follow(("leader", 1))
    assert str(await client("FAILOVER")) == "ERR FAILOVER is not valid when server is a replica."


@in_loop
async def test_waitaof_reads_its_arguments_first() -> None:
    _, role, client = made()
    for words, error in (
        ((2, 0, 0), "ERR value is out of range, value must between 0 and 1"),
        (("x", 0, 0), "ERR value is not an integer or out of range"),
        ((0, -1, 0), "ERR value is out of range, must be positive"),
        ((0, 0, -1), "ERR timeout is negative"),
    ):
        assert str(await client("WAITAOF", *words)) == error
    role.follow(("leader", 1))
    assert str(await client("WAITAOF", 2, 0, 0)).startswith("ERR value is out of range")
    assert str(await client("WAITAOF", 0, 0, 0)).startswith("ERR WAITAOF cannot be used with replica instances.")


@in_loop
async def test_a_redis_cannot_follow() -> None:
    _, _, client = made()
    for command in (("PSYNC", "?", -1), ("SYNC",)):
        assert "a Redis cannot follow it" in str(await client(*command))
