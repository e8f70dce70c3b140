"""Where channels are kept: a Tidelog, a Redis, what a Sentinel watches, or a Redis Cluster (`cluster.py`).

Every call may be sent twice. To subscribe, to acknowledge and to publish are idempotent, and the rest only reads. So a
reply that is lost, or a connection that broke, is no error: the call is repeated a few times. Only so many calls are
under way at once; further ones wait for their turn.

A script is called by its name, and sent whole where it is not known yet. Sending it with the call itself, not loading
it beforehand, works after a failover too, and on the one node of a cluster that needs it.

Wakes travel by PUBLISH. A cluster hands such a message to all its nodes, so that one connection to any of them hears
of every channel. SPUBLISH would spare the other nodes the few bytes, but it needs a connection to every master and
Redis 7; the names are such that it could be used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
)

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels.closing import close_client
from tidelog.channels.scripts import LuaScript
from tidelog.errors import NotConfirmed, ServerRefused, ServerUnreachable
from tidelog.redis_client import connect_calls, explained

Word = bytes | str | int


class Confirmation(NamedTuple):
    """How many replicas are to have a message or a subscriber before the call that made it is a success."""

    replicas: int
    timeout_ms: int = limits.CHANNEL_CONFIRM_MS_DEFAULT


class ScanPlace(NamedTuple):
    """Where in the keys of a backend a step begins."""

    node: int
    """Which master of a cluster; else 0."""
    cursor: int
    """Of its SCAN."""


class ScannedKeys(NamedTuple):
    """One step through the keys of a backend."""

    keys: list[bytes]
    following: ScanPlace | None
    """Where the next step begins; None: this was the last."""


class WakeLink(Protocol):
    """A connection of redis-py, used for pub/sub only."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = ...) -> None: ...
    async def send_command(self, *words: Any, **options: Any) -> None: ...
    async def read_response(self, *, timeout: float, disconnect_on_error: bool) -> Any: ...


class Backend(Protocol):
    """What channels need of a server. Errors of the server and of the way to it are ours."""

    url: str
    """For messages: without a password."""

    async def run(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation | None = None
    ) -> Any:
        """The reply of a script; with `confirm`, `NotConfirmed` if too few replicas have what it wrote."""

    async def call(self, *words: Word) -> Any:
        """The reply to a command with one key, or without."""

    async def ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """The replies to several commands with a key each, which need not be of one moment."""

    async def scan(self, place: ScanPlace, pattern: bytes, count: int, beside: bytes | None, /) -> ScannedKeys:
        """A step through all keys; `beside`: only through those of the node that has this key."""

    async def wake_link(self) -> WakeLink:
        """A connection for pub/sub that is not made yet; the caller closes it."""

    async def aclose(self) -> None: ...


def backend_at(address: ServerAddress) -> Backend:
    """The backend at an address, which is not contacted yet."""
    if address.is_cluster:
        from tidelog.channels.cluster import ClusterBackend

        return ClusterBackend(connect_calls(address), address.url)
    return ServerBackend(connect_calls(address), address.url)


class ServerBackend:
    """One server, or the one that Sentinels name."""

    def __init__(self, client: Any, url: str) -> None:
        """`client`: of redis-py, for asyncio; it is closed with the backend."""
        self.url = url
        self._client = client
        self._turns = asyncio.Semaphore(limits.CHANNEL_CALLS_MAX)
        self._is_closed = False

    async def run(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation | None = None
    ) -> Any:
        async with self._turn():
            if confirm is None:
                return await run_script(self._client, script, keys, arguments)
            reply: Any = None
            confirmed: Any = None
            for command in script_commands(script, keys, arguments):
                pipeline = self._client.pipeline(transaction=False)
                pipeline.execute_command(*command)
                pipeline.execute_command("WAIT", confirm.replicas, confirm.timeout_ms)
                reply, confirmed = await pipeline.execute(raise_on_error=False)
                if not isinstance(reply, NoScriptError):
                    break
            return confirmed_reply(reply, confirmed, confirm)

    async def call(self, *words: Word) -> Any:
        async with self._turn():
            return await self._client.execute_command(*words)

    async def ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        async with self._turn():
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute()
            return replies

    async def scan(self, place: ScanPlace, pattern: bytes, count: int, _beside: bytes | None, /) -> ScannedKeys:
        async with self._turn():
            cursor, keys = await self._client.scan(place.cursor, match=pattern, count=count)
            return ScannedKeys(keys, ScanPlace(0, cursor) if cursor else None)

    async def wake_link(self) -> WakeLink:
        made: WakeLink = self._client.connection_pool.make_connection()
        return made

    async def aclose(self) -> None:
        self._is_closed = True
        await close_client(self._client)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._turns, our_errors(self.url):
            try:
                yield
            finally:
                if self._is_closed:  # meanwhile, and the call may have connected again
                    await close_client(self._client)


def script_commands(
    script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word]
) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """The two ways to call a script: by its name, and with its text where the name is not known."""
    rest = (len(keys), *keys, *arguments)
    return ("EVALSHA", script.sha, *rest), ("EVAL", script.text, *rest)


async def run_script(client: Any, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word]) -> Any:
    by_name, whole = script_commands(script, keys, arguments)
    try:
        return await client.execute_command(*by_name)
    except NoScriptError:
        return await client.execute_command(*whole)


def confirmed_reply(reply: Any, confirmed: Any, confirm: Confirmation) -> Any:
    """The reply of a script, if enough replicas have confirmed it."""
    for each in (reply, confirmed):
        if isinstance(each, Exception):
            raise each
    if confirmed < confirm.replicas:
        raise NotConfirmed(
            f"{confirmed} of {confirm.replicas} replicas have what was written after {confirm.timeout_ms} ms: send it "
            "again, a message with the same id",
            wanted=confirm.replicas,
            confirmed=confirmed,
        )
    return reply


def is_closed_connection(error: Exception) -> bool:
    """Whether an error says that a connection was closed while a call was using it.

    After a failover redis-py closes connections, also those that other calls are just making or writing to. Those calls
    fail in ways that redis-py does not know: an attribute is None, or the transport of uvloop refuses.
    """
    if isinstance(error, RuntimeError):
        return "the handler is closed" in str(error)
    return isinstance(error, AttributeError) and "NoneType" in str(error)


@asynccontextmanager
async def our_errors(url: str) -> AsyncIterator[None]:
    """Turns errors of redis-py into ours."""
    try:
        yield
    except AskError:
        raise ServerRefused(f"the server at {url} has not all keys: this is a cluster: use redis+cluster://") from None
    except (ClusterDownError, TryAgainError, ReadOnlyError) as error:  # a failover: another server answers soon
        raise ServerUnreachable(f"the server at {url} cannot answer now: {error}") from None
    except redis.ResponseError as error:
        raise ServerRefused(f"the server at {url} refused: {error}") from None
    except (redis.RedisError, RedisClusterException, OSError, TimeoutError) as error:
        raise explained(error, url) from None
    except (AttributeError, RuntimeError) as error:
        if not is_closed_connection(error):
            raise
        raise ServerUnreachable(f"the connection to {url} was closed during the call") from None
