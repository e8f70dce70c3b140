"""Clients of several servers, on a Redis and its replica: they find the leader, and another when it has changed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks.peers import stop_peer
from tests.channels.replicas import with_replica
from tests.channels.sentinels import start_sentinel
from tests.conformance.redis_oracle import start_redis
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days import server_at
from tidelog.errors import BadAddress, ServerRefused, ServerUnreachable
from tidelog.redis_client import connect, connect_async, connect_raw, connected, explained

__all__ = ["with_replica"]


def link(leader: int, follower: int) -> None:
    """Until a follower has a link."""
    with redis.Redis(port=leader) as client:
        while not client.wait(1, 100):
            client.set("a write", "to confirm")


def follow(follower: int, leader: int | None) -> None:
    with redis.Redis(port=follower) as client:
        client.replicaof(*(("127.0.0.1", leader) if leader is not None else ("NO", "ONE")))


@pytest.fixture
def pair(with_replica: tuple[int, int]) -> tuple[int, int]:
    """The ports of a leader and of its follower."""
    link(*with_replica)
    return with_replica


def listed(*ports: int, **options: Any) -> ServerAddress:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return ServerAddress.parse(f"redis://{hosts}", **options)


def port_of(client: Any) -> int:
    """Of the server at the other end."""
    return int(client.info("server")["tcp_port"])


def test_the_leader_is_found_and_found_again(pair: tuple[int, int]) -> None:
    leader, follower = pair
    with connect(listed(1, follower, leader)) as client:
        client.set("key", 1)
        assert port_of(client) == leader
        follow(follower, None)
        follow(leader, follower)  # as a failover does, but the connection stays
        client.set("key", 2)
        assert port_of(client) == follower
        with client.pipeline(transaction=True) as pipeline:
            pipeline.watch("key")
            follow(leader, None)
            follow(follower, leader)
            pipeline.multi()
            pipeline.set("key", 3)
            with pytest.raises(redis.WatchError):  # which its caller decides anew
                pipeline.execute()
        assert port_of(client) == leader


def test_a_leader_that_is_lost_is_waited_for(pair: tuple[int, int]) -> None:
    leader, follower = pair
    with connect(listed(leader, follower)) as client:
        client.set("key", 1)
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
        promotion = _later(0.5, lambda: follow(follower, None))
        client.set("key", 2)
        promotion.join()
        assert port_of(client) == follower


def _later(seconds: float, do: Any) -> Any:
    timer = threading.Timer(seconds, do)
    timer.start()
    return timer


def test_a_follower_is_found_and_else_the_leader(pair: tuple[int, int]) -> None:
    leader, follower = pair
    address = listed(leader, follower)
    for turn in range(3):
        client = connect_raw(address, retries=False, follower=turn)
        assert client.execute_command("ROLE")[0] == b"slave"
        assert not client.connection.found.is_leader
        client.close()
    follow(follower, None)
    client = connect_raw(address, retries=True, follower=0)
    assert client.connection.found.is_leader
    client.close()


def test_an_address_where_nobody_answers_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_RECONNECT_S_MIN", 100.0)  # a pause would not end
    monkeypatch.setattr(limits, "CLIENT_SEARCH_PAUSE_S_MAX", 100.0)
    with (
        pytest.raises(ServerUnreachable, match=r"at redis://127\.0\.0\.1:1,127\.0\.0\.1:2: 127\.0\.0\.1:1: .*; 127"),
        connected(listed(1, 2)) as client,
    ):
        client.ping()


def test_a_search_ends_and_names_all_that_were_asked(pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_SEARCHES_MAX", 2)
    _, follower = pair
    with (
        pytest.raises(ServerUnreachable, match=rf"{follower}: it follows 127\.0\.0\.1:{pair[0]}; 127\.0\.0\.1:1: .*"),
        connected(listed(follower, 1)) as client,
    ):
        client.ping()


def test_asyncio_finds_the_leader_and_a_follower(pair: tuple[int, int]) -> None:
    leader, follower = pair

    async def run() -> None:
        client, reader = (connect_async(listed(follower, leader), follower=turn) for turn in (None, 0))
        assert (await client.info("server"))["tcp_port"] == leader
        assert (await reader.info("server"))["tcp_port"] == follower
        follow(follower, None)
        follow(leader, follower)
        with pytest.raises(redis.ConnectionError, match=rf"{leader} cannot answer now: READONLY"):
            await client.set("key", 1)  # it tries nothing twice
        await client.set("key", 2)
        assert (await client.info("server"))["tcp_port"] == follower
        await client.aclose()
        await reader.aclose()
        follow(leader, None)  # a Redis that stops waits for those that follow it

    asyncio.run(run())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The ports of a Redis with the password `secret`, and of a Sentinel with the password `other`."""
    server, port = start_redis(tmp_path)
    sentinel, sentinel_port = start_sentinel(tmp_path, port)
    try:
        with redis.Redis(port=sentinel_port) as client:
            client.execute_command("SENTINEL SET", "orders", "auth-pass", "secret")
            client.execute_command("ACL SETUSER", "default", "resetpass", ">other")
        with redis.Redis(port=port) as client:
            client.config_set("requirepass", "secret")
        yield port, sentinel_port
    finally:
        stop_peer(sentinel)
        stop_peer(server)


def test_servers_and_sentinels_have_passwords_of_their_own(guarded: tuple[int, int]) -> None:
    port, sentinel_port = guarded
    url = f"redis+sentinel://:secret@127.0.0.1:{sentinel_port}/orders/3"
    with server_at(f"{url}?sentinel_password=other") as client:
        client.set("key", 1)
        assert port_of(client) == port
        assert client.connection_pool.connection_kwargs["db"] == 3
        assert not {"secret", "other"} & set(repr(client.connection_pool).replace("'", " ").split())
    for wrong in (url, f"{url}?sentinel_password=wrong", f"{url}?sentinel_password=other".replace("secret", "wrong")):
        with (
            pytest.raises(ServerRefused, match=r"does not let us in: 127\.0\.0\.1:") as caught,
            connected(ServerAddress.parse(wrong)) as client,
        ):
            client.ping()
        assert "secret" not in str(caught.value)
        assert "other" not in str(caught.value)

    async def ask() -> None:
        client = connect_async(ServerAddress.parse(url))
        try:
            await client.ping()
        finally:
            await client.aclose()

    with pytest.raises(redis.ConnectionError) as unwrapped:
        asyncio.run(ask())
    assert isinstance(explained(unwrapped.value), ServerRefused)


def test_a_password_file_that_nobody_read_is_told() -> None:
    address = ServerAddress.parse("redis+sentinel://h/orders?sentinel_password_file=/run/secret")
    with pytest.raises(BadAddress, match="its sentinel_password_file was not read"):
        connect(address)


def test_a_failover_that_sentinels_make(pair: tuple[int, int], tmp_path: Path) -> None:
    leader, follower = pair
    sentinel, sentinel_port = start_sentinel(tmp_path, leader)
    address = ServerAddress.parse(f"redis+sentinel://127.0.0.1:{sentinel_port}/orders")
    try:
        with connect(address) as client, redis.Redis(port=sentinel_port, decode_responses=True) as asked:
            client.set("key", 1)
            while [each["flags"] for each in asked.execute_command("SENTINEL REPLICAS", "orders")] != ["slave"]:
                time.sleep(0.02)
            reader = connect_raw(address, retries=False, follower=0)
            assert reader.execute_command("ROLE")[0] == b"slave"
            reader.close()
            asked.execute_command("SENTINEL FAILOVER", "orders")
            for number in range(1000):
                client.set("key", number)
                if port_of(client) == follower:
                    break
            assert client.get("key") == b"%d" % number
    finally:
        stop_peer(sentinel)
