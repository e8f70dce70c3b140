"""What a backend does for channels: scripts it has not seen, lost replies, Sentinels, replicas, and its errors."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import uvloop

from benchmarks.peers import stop_peer
from tests.channels.replicas import linked
from tests.channels.sentinels import WatchedRedis, start_sentinel
from tests.channels.servers import ChannelServer, ChannelServers, in_loop
from tests.channels.test_channels import drained, numbered, values
from tests.conformance.redis_oracle import start_redis
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels import Channels, Confirmation, NotConfirmed, backend_at, message_of
from tidelog.channels.backend import ServerBackend, is_closed_connection, our_errors
from tidelog.errors import BadAddress, ServerRefused, ServerUnreachable


@in_loop
async def test_scripts_that_a_server_forgot_are_sent_again(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        for number in range(3):
            server.everywhere("SCRIPT FLUSH")
            await channels.publish("news", numbered(number)[0])
        server.everywhere("SCRIPT FLUSH")
        assert await drained(channels, "news", "a") == [0, 1, 2]


@in_loop
async def test_many_calls_at_once_take_turns(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await asyncio.gather(*(channels.publish("news", numbered(number)[0]) for number in range(300)))
        assert len(await drained(channels, "news", "a")) == 300
        clients = [each for each in server.client.client_list() if not server.is_cluster]
        assert len(clients) <= limits.CHANNEL_CALLS_MAX + 2


@in_loop
async def test_a_wrong_value_is_told_with_its_key(server: ChannelServer) -> None:
    async with server.channels() as channels:
        server.client.set("c.{news}.clock", "soon")
        with pytest.raises(ServerRefused, match=r"refused: .*the key c\.\{news\}\.clock does not hold a clock"):
            await channels.publish("news", numbered(1)[0])
        server.client.delete("c.{news}.clock")
        server.client.hset("c.{news}.clock", "a", "b")
        with pytest.raises(ServerRefused, match="WRONGTYPE"):
            await channels.subscribe("news", "a")
        assert list(server.client.scan_iter(match="c.*.r.*")) == []


@in_loop
async def test_an_address_without_a_server() -> None:
    for url, at in (("redis://:hidden@127.0.0.1:1", "redis://127.0.0.1:1"), ("unix:///nowhere", "unix:///nowhere")):
        async with Channels.at(url) as channels:
            with pytest.raises(ServerUnreachable, match=f"no server answers at {at}: ") as caught:
                await channels.fetch("news", "a")
            assert "hidden" not in str(caught.value)
            with pytest.raises(ServerUnreachable):
                await channels.ping()


@pytest.mark.parametrize("url", ["redis+cluster://:hidden@127.0.0.1:1", "redis+sentinel://:hidden@127.0.0.1:1/orders"])
@in_loop
async def test_several_servers_of_which_none_is_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_ATTEMPTS_MORE", 0)
    async with Channels.at(url) as channels:
        with pytest.raises(ServerUnreachable) as caught:
            await channels.fetch("news", "a")
        assert "hidden" not in str(caught.value)


def test_an_address_that_is_none() -> None:
    with pytest.raises(BadAddress, match="it must begin with redis://"):
        Channels.at("http://h")


@in_loop
async def test_one_node_of_a_cluster_is_told_from_a_server(channel_servers: ChannelServers) -> None:
    server = channel_servers.get("cluster")
    assert channel_servers.six is not None
    async with Channels.at(f"redis://127.0.0.1:{channel_servers.six.nodes[0].port}") as channels:
        calls = [channels.subscribe(f"ch{number}", "a") for number in range(20)]
        refused = [each for each in await asyncio.gather(*calls, return_exceptions=True) if isinstance(each, Exception)]
    assert refused
    assert all(isinstance(each, ServerRefused) for each in refused)
    assert str(refused[0]).endswith("this is a cluster: use redis+cluster://")
    server.client.flushall()


@in_loop
async def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    process, port = start_redis(tmp_path)
    try:
        with redis.Redis(port=port) as client:
            client.config_set("requirepass", "right")
        async with Channels.at(f"redis://:hidden@127.0.0.1:{port}") as channels:
            with pytest.raises(ServerRefused, match="does not let us in") as caught:
                await channels.ping()
            assert "hidden" not in str(caught.value)
        async with Channels.at(f"redis://:right@127.0.0.1:{port}") as channels:
            await channels.subscribe("news", "a")
            await channels.publish("news", numbered(1)[0])
            assert values(await channels.fetch_when_there("news", "a", timeout_s=1)) == [1]
    finally:
        stop_peer(process)


def test_a_connection_that_was_closed_during_a_call_is_no_bug() -> None:
    """Whichever loop it runs on: asyncio ignores such a write, and uvloop, which gateways use, raises."""

    async def write_to_a_closed_one() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.transport.abort()
            await asyncio.sleep(0.05)
            async with our_errors("redis://h"):
                writer.writelines([b"PING\r\n"])

    async def use_one_that_is_not_there(writer: Any = None) -> None:
        async with our_errors("redis://h"):
            writer.write(b"PING\r\n")

    for run, call in ((uvloop.run, write_to_a_closed_one), (asyncio.run, use_one_that_is_not_there)):
        with pytest.raises(ServerUnreachable, match="the connection to redis://h was closed during the call"):
            run(call())
    assert not is_closed_connection(RuntimeError("another"))
    assert not is_closed_connection(AttributeError("a bug"))


# --- replies that are lost --------------------------------------------------------------------------------------------


@asynccontextmanager
async def losing_replies(port: int, lost: list[bytes]) -> AsyncIterator[int]:
    """A proxy that cuts a connection instead of handing on the reply of a script, every other time; its port."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        is_script = False

        async def hand_on() -> None:
            nonlocal is_script
            while data := await reader.read(65536):
                is_script = b"EVAL" in data
                to_there.write(data)

        sending = asyncio.create_task(hand_on())
        try:
            while data := await there.read(65536):
                count += is_script
                if is_script and count % 2:
                    lost.append(data)
                    return
                writer.write(data)
        finally:
            sending.cancel()
            to_there.close()
            writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield proxy.sockets[0].getsockname()[1]


@pytest.mark.parametrize("kind", ["tidelog", "redis"])
@in_loop
async def test_lost_replies_lose_and_repeat_nothing(kind: str, channel_servers: ChannelServers) -> None:
    server = channel_servers.get(kind)
    server.client.flushall()
    port = int(server.url.rpartition(":")[2])
    lost: list[bytes] = []
    async with losing_replies(port, lost) as proxy, Channels.at(f"redis://127.0.0.1:{proxy}") as channels:
        await channels.subscribe("news", "a")
        for number in range(12):
            await channels.publish("news", numbered(number)[0])
        assert server.clock("news") == 12
        got = []
        while (fetched := await channels.fetch("news", "a", messages_max=7)).handle is not None:
            got += values(fetched)
            await channels.acknowledge("news", "a", fetched.handle)
        assert got == list(range(12))
    assert len(lost) > 12


# --- replicas ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_publish_waits_for_replicas(with_replica: tuple[int, int]) -> None:
    port, replica_port = with_replica
    await linked(port)
    confirming = Channels(backend_at(ServerAddress(port=port)), confirm=Confirmation(1, 300))
    async with confirming as channels, Channels.at(f"redis://127.0.0.1:{port}") as plain:
        await channels.subscribe("news", "a")
        assert (await channels.publish("news", message_of("m1", 1))).is_new
        with redis.Redis(port=replica_port) as replica:
            assert replica.get("c.{news}.clock") == b"1"
            replica.replicaof("NO", "ONE")
        with pytest.raises(NotConfirmed, match="0 of 1 replicas have what was written after 300 ms") as caught:
            await channels.publish("news", message_of("m2", 2))
        assert (caught.value.wanted, caught.value.confirmed) == (1, 0)
        assert (await plain.publish("news", message_of("m2", 2))).is_new is False
        with redis.Redis(port=replica_port) as replica:
            replica.replicaof("127.0.0.1", port)
        await linked(port)
        assert (await channels.publish("news", message_of("m2", 2))).is_new is False
        assert await drained(channels, "news", "a") == [1, 2]


@in_loop
async def test_a_master_that_became_a_replica_is_away_for_now(with_replica: tuple[int, int]) -> None:
    port, replica_port = with_replica
    await linked(port)
    async with Channels.at(f"redis://127.0.0.1:{replica_port}") as channels:
        with pytest.raises(ServerUnreachable, match=r"cannot answer now: .*read only"):
            await channels.publish("news", numbered(1)[0])


@in_loop
async def test_a_message_that_another_connection_wrote_is_waited_for_too(with_replica: tuple[int, int]) -> None:
    """WAIT is promised for what its own connection wrote, so a repeated publish has to write something."""
    port, replica_port = with_replica
    await linked(port)
    address = ServerAddress(port=port)
    confirming = Channels(backend_at(address), confirm=Confirmation(1, 200))
    async with Channels(backend_at(address)) as plain, confirming as sure:
        await sure.publish("news", message_of("m0", 0))
        with redis.Redis(port=replica_port) as replica:
            asleep = asyncio.create_task(asyncio.to_thread(replica.execute_command, "DEBUG", "SLEEP", "1.5"))
            await asyncio.sleep(0.2)
            assert (await plain.publish("news", message_of("m1", 1))).is_new
            with pytest.raises(NotConfirmed):
                await sure.publish("news", message_of("m1", 1))
            await asleep
        assert not (await sure.publish("news", message_of("m1", 1))).is_new


@in_loop
async def test_whether_replicas_can_confirm_is_told_beforehand(server: ChannelServer) -> None:
    async with server.channels() as plain, server.channels(confirm_replicas=1) as sure:
        await plain.check_confirmation()
        await sure.check_confirmation()


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/o"]
)
@in_loop
async def test_whether_replicas_can_confirm_is_open_while_nobody_answers(url: str) -> None:
    async with Channels.at(url, confirm_replicas=1) as channels:
        await channels.check_confirmation()


# --- Sentinels --------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_master_that_sentinels_name(tmp_path: Path) -> None:
    server, port = start_redis(tmp_path)
    sentinel, sentinel_port = start_sentinel(tmp_path, port)
    try:
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel_port}/orders/2"
        async with Channels.at(url) as channels:
            await channels.subscribe("news", "a")
            task = asyncio.create_task(channels.fetch_when_there("news", "a", timeout_s=20))
            await asyncio.sleep(0.1)
            await channels.publish("news", numbered(1)[0])
            assert values(await task) == [1]
            with redis.Redis(port=port, db=2) as client:
                assert client.get("c.{news}.clock") == b"1"
        async with Channels.at(url.replace("orders", "nothing")) as channels:
            with pytest.raises(ServerUnreachable, match="this Sentinel does not know the service 'nothing'"):
                await channels.ping()
    finally:
        stop_peer(sentinel)
        stop_peer(server)


@in_loop
async def test_a_call_that_is_repeated_asks_the_sentinels_again(tmp_path: Path) -> None:
    """A master that failed and is there again, before it is made a replica, must not get the call."""
    old, port = start_redis(tmp_path)
    new, new_port = start_redis(tmp_path)
    sentinel, sentinel_port = start_sentinel(tmp_path, port)
    try:
        async with Channels.at(f"redis+sentinel://127.0.0.1:{sentinel_port}/orders") as channels:
            await channels.subscribe("news", "a")
            old.send_signal(signal.SIGSTOP)
            publishing = asyncio.create_task(channels.publish("news", numbered(1)[0]))
            await asyncio.sleep(0.2)
            with redis.Redis(port=sentinel_port) as client:
                client.execute_command("SENTINEL REMOVE", "orders")
                client.execute_command("SENTINEL MONITOR", "orders", "127.0.0.1", new_port, 1)
            stop_at_once(old)
            old = subprocess.Popen(old.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            await publishing
        with redis.Redis(port=new_port) as client:
            assert client.get("c.{news}.clock") == b"1"
        with redis.Redis(port=port) as client:
            assert client.dbsize() == 0
    finally:
        for process in (sentinel, old, new):
            stop_peer(process)


@in_loop
async def test_a_master_that_is_being_replaced_is_not_the_master(tmp_path: Path) -> None:
    """One that comes back, empty, in the middle of a failover is still on the Sentinels' list of masters."""
    watched = WatchedRedis(tmp_path)
    try:
        async with Channels.at(watched.url) as channels:
            await channels.subscribe("news", "a")
            await channels.publish("news", numbered(1)[0])
            await asyncio.to_thread(watched.fail_over)
            for _ in range(40):
                assert values(await channels.fetch("news", "a")) == [1]
                pool: Any = channels._backend._client.connection_pool  # type: ignore[attr-defined]
                await pool.disconnect()
                await asyncio.sleep(0.02)
    finally:
        watched.close()


def stop_at_once(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.long
@pytest.mark.timeout(180)
@in_loop
async def test_sentinels_name_another_master(with_replica: tuple[int, int], tmp_path: Path) -> None:
    port, _ = with_replica
    await linked(port)
    with redis.Redis(port=port) as client:
        pid = client.info("server")["process_id"]
    sentinel, sentinel_port = start_sentinel(tmp_path, port)
    try:
        async with Channels(
            backend_at(ServerAddress(port=sentinel_port, service="orders")), confirm=Confirmation(1, 1000)
        ) as channels:
            await channels.subscribe("news", "a")
            await channels.publish("news", numbered(1)[0])
            await asyncio.sleep(11)  # until the Sentinel has found the replica
            subprocess.run(["kill", "-9", str(pid)], check=True)
            plain = Channels(ServerBackend(channels._backend._client, "sentinel"))  # type: ignore[attr-defined]
            while True:
                try:
                    await plain.publish("news", numbered(2)[0])
                    break
                except (ServerUnreachable, ServerRefused):
                    await asyncio.sleep(0.3)
            assert await drained(plain, "news", "a") == [1, 2]
    finally:
        stop_peer(sentinel)


def test_options_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a URL has after its ? reaches redis-py."""
    monkeypatch.setattr(limits, "CHANNEL_REPLY_S_MAX", 7.0)
    channels: Any = Channels.at("rediss://u:p@h:7/2?ssl_cert_reqs=none")
    options = channels._backend._client.connection_pool.connection_kwargs
    wanted = {"host": "h", "port": 7, "db": 2, "username": "u", "password": "p", "ssl_cert_reqs": "none"}
    assert (wanted | {"socket_timeout": 7.0}).items() <= options.items()
