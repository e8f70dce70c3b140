"""The backends that channels run on: a Tidelog, a Redis and a Redis Cluster of six, each of processes of its own.

A test that takes `server` runs on each of the three, which is empty then. One that takes `one_server` runs on the first
two, and one that takes `machine` on Tidelog's engine in this process, whose time is simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec

import pytest
import redis
from redis.cluster import RedisCluster

from benchmarks.peers import stop_peer
from tests.channels.cluster_of_six import ClusterOfSix
from tests.conformance.redis_oracle import start_redis
from tests.integration.server_process import ServerProcess
from tests.scripting.running import ScriptMachine, script_machine
from tidelog.channels import Channels, Confirmation
from tidelog.channels.backend import ScannedKeys, ScanPlace, WakeLink, Word
from tidelog.channels.scripts import LuaScript
from tidelog.errors import ServerRefused, ServerUnreachable

KINDS: Final = ("tidelog", "redis", "cluster")
TEST_S_MAX: Final = 60.0

Arguments = ParamSpec("Arguments")


def in_loop(test: Callable[Arguments, Awaitable[None]]) -> Callable[Arguments, None]:
    """Runs a test that is a coroutine."""

    @wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_S_MAX):
                await test(*arguments, **named)

        asyncio.run(bounded())

    return run


class ChannelServer:
    """A running backend: its address, and a plain client that looks at its keys."""

    def __init__(self, kind: str, url: str, client: Any) -> None:
        self.kind = kind
        self.url = url
        self.client = client
        self.is_cluster = kind == "cluster"

    def channels(self, **options: Any) -> Channels:
        return Channels.at(self.url, **options)

    def clock(self, channel: str) -> int:
        return int(self.client.get(f"c.{{{channel}}}.clock"))

    def cursor(self, channel: str, subscriber: str) -> int:
        return int(self.client.get(f"c.{{{channel}}}.r.{subscriber}"))

    def everywhere(self, *words: Any) -> None:
        """Run a command on every node; of a cluster also on replicas."""
        if self.is_cluster:
            self.client.execute_command(*words, target_nodes=RedisCluster.ALL_NODES)
        else:
            self.client.execute_command(*words)


class ChannelServers:
    """Started when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, ChannelServer] = {}
        self._closers: list[Callable[[], None]] = []
        self.six: ClusterOfSix | None = None

    def get(self, kind: str) -> ChannelServer:
        found = self._made.get(kind)
        if found is None:
            found = self._made[kind] = self._start(kind)
            self._closers.append(found.client.close)
        return found

    def _start(self, kind: str) -> ChannelServer:
        if kind == "cluster":
            self.six = ClusterOfSix(self._folder)
            self._closers.append(self.six.close)
            client: Any = RedisCluster(host="127.0.0.1", port=self.six.nodes[0].port)
            return ChannelServer(kind, self.six.url, client)
        if kind == "redis":
            process, port = start_redis(self._folder)
            self._closers.append(lambda: stop_peer(process))
        else:
            server = ServerProcess(self._folder / "data")
            self._closers.append(server.close)
            port = server.port
        return ChannelServer(kind, f"redis://127.0.0.1:{port}", redis.Redis(port=port))

    def close(self) -> None:
        while self._closers:
            self._closers.pop()()


@pytest.fixture(scope="session")
def channel_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChannelServers]:
    made = ChannelServers(tmp_path_factory.mktemp("channels"))
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    return emptied(channel_servers.get(request.param))


@pytest.fixture(params=KINDS)
def any_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    """The same, where `server` is something else."""
    return emptied(channel_servers.get(request.param))


@pytest.fixture(params=["tidelog", "redis"])
def one_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    """A Tidelog or a Redis."""
    return emptied(channel_servers.get(request.param))


def emptied(server: ChannelServer) -> ChannelServer:
    server.client.flushall()
    return server


# --- simulated time -------------------------------------------------------------------------------------------------


class SimulatedBackend:
    """Tidelog's engine in this process. It has no pub/sub: whoever waits looks every few seconds."""

    url = "a simulated machine"

    def __init__(self, machine: ScriptMachine) -> None:
        self.machine = machine

    def advance(self, ms: int) -> None:
        self.machine.clock.advance(1000 * ms)

    async def run(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation | None = None
    ) -> Any:
        assert confirm is None
        return self._reply("EVAL", script.text, len(keys), *keys, *arguments)

    async def call(self, *words: Word) -> Any:
        return self._reply(*words)

    async def ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        return [self._reply(*command) for command in commands]

    async def scan(self, place: ScanPlace, pattern: bytes, count: int, _beside: bytes | None, /) -> ScannedKeys:
        cursor, keys = self._reply("SCAN", place.cursor, "MATCH", pattern, "COUNT", count)
        return ScannedKeys(keys, ScanPlace(0, int(cursor)) if int(cursor) else None)

    async def wake_link(self) -> WakeLink:
        raise ServerUnreachable("a simulated machine has no sockets")

    async def aclose(self) -> None:
        return

    def _reply(self, *words: Word) -> Any:
        reply = self.machine(*words)
        if isinstance(reply, str) and reply.startswith("-"):
            raise ServerRefused(reply)
        return reply


@pytest.fixture
def machine() -> Iterator[SimulatedBackend]:
    with script_machine() as made:
        yield SimulatedBackend(made)
