"""Channels on a Redis Cluster.

A channel is in one slot, so every call goes to one master. redis-py follows redirections, learns the slots again after
a failover, and repeats a call meanwhile. Two things need a node of their own choosing:

- WAIT has no key, and counts for the connection that it comes on. It is sent right behind the script, on the same
  connection to the master that has the slot. If that master has changed, the call is made without WAIT, so that
  redis-py finds out; then again with it, which writes once more what there is to wait for.
- SCAN goes master by master, in the order of their lowest slots, which a failover does not change.

redis-py's own attempts follow each other without a pause, and end long before a failover does. So a call is made a few
times more, with pauses; a failover takes longer still, and then the caller is told.

Only so many calls are under way to one node. A node that hangs holds up the calls that wait for it, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import redis
from redis.asyncio.cluster import PipelineCommand
from redis.exceptions import AskError, ClusterDownError, NoScriptError, TryAgainError

from tidelog import limits
from tidelog.channels.backend import (
    Confirmation,
    ScannedKeys,
    ScanPlace,
    WakeLink,
    Word,
    confirmed_reply,
    is_closed_connection,
    our_errors,
    run_script,
    script_commands,
)
from tidelog.channels.closing import close_client
from tidelog.channels.scripts import LuaScript
from tidelog.errors import NotConfirmed

_ELSEWHERE: Final = (AskError, TryAgainError, ClusterDownError, redis.ConnectionError, redis.TimeoutError)
"""The master of a slot has changed, is changing, or does not answer."""

_Reply = TypeVar("_Reply")


class ClusterBackend:
    """A Redis Cluster."""

    def __init__(self, client: Any, url: str) -> None:
        """`client`: redis-py's for a cluster, for asyncio; it is closed with the backend."""
        self.url = url
        self._client = client
        self._turns: dict[str, asyncio.Semaphore] = {}
        """By the name of the node."""
        self._is_closed = False

    async def run(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation | None = None
    ) -> Any:
        async with self._turn(keys[0]):
            if confirm is None:
                return await self._patiently(lambda: run_script(self._client, script, keys, arguments))
            for _ in range(limits.CHANNEL_CONFIRM_ATTEMPTS):
                reply, confirmed = await self._run_and_wait(script, keys, arguments, confirm)
                if not isinstance(reply, _ELSEWHERE):
                    return confirmed_reply(reply, confirmed, confirm)
                await self._patiently(lambda: run_script(self._client, script, keys, arguments))
            raise NotConfirmed(
                f"the master of the slot changed {limits.CHANNEL_CONFIRM_ATTEMPTS} times: send it again, a message "
                "with the same id",
                wanted=confirm.replicas,
                confirmed=0,
            )

    async def _run_and_wait(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation
    ) -> tuple[Any, Any]:
        """The replies of a script and of the WAIT behind it; each may be an error."""
        node = self._client.get_node_from_key(keys[0])
        reply: Any = None
        confirmed: Any = None
        for words in script_commands(script, keys, arguments):
            commands = [PipelineCommand(0, *words), PipelineCommand(1, "WAIT", confirm.replicas, confirm.timeout_ms)]
            try:
                await node.execute_pipeline(commands)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                return error, None
            except (AttributeError, RuntimeError) as error:
                if not is_closed_connection(error):
                    raise
                return redis.ConnectionError("the connection was closed during the call"), None
            reply, confirmed = (command.result for command in commands)
            if not isinstance(reply, NoScriptError):
                break
        lost = isinstance(confirmed, redis.ConnectionError | redis.TimeoutError)
        return (confirmed, None) if lost else (reply, confirmed)

    async def call(self, *words: Word) -> Any:
        async with self._turn(words[1] if len(words) > 1 else ""):
            return await self._patiently(lambda: self._client.execute_command(*words))

    async def ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        async with self._turn():
            return await self._patiently(lambda: self._ask(commands))

    async def _ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        pipeline = self._client.pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute()
        return replies

    async def scan(self, place: ScanPlace, pattern: bytes, count: int, beside: bytes | None, /) -> ScannedKeys:
        async with self._turn():
            masters = self._masters() if beside is None else [self._client.get_node_from_key(beside)]
            if place.node >= len(masters):
                return ScannedKeys([], None)  # there are fewer now
            words = ("SCAN", place.cursor, "MATCH", pattern, "COUNT", count)
            cursor, keys = await masters[place.node].execute_command(*words)
            if cursor:
                return ScannedKeys(keys, ScanPlace(place.node, cursor))
            return ScannedKeys(keys, ScanPlace(place.node + 1, 0) if place.node + 1 < len(masters) else None)

    def _masters(self) -> list[Any]:
        """In the order of their lowest slots."""
        masters: dict[str, Any] = {}
        for _, nodes in sorted(self._client.nodes_manager.slots_cache.items()):
            masters.setdefault(nodes[0].name, nodes[0])
        return list(masters.values())

    async def wake_link(self) -> WakeLink:
        async with our_errors(self.url):
            await self._client.initialize()
            node = self._client.get_random_primary_node()
            made: WakeLink = node.connection_class(**node.connection_kwargs)
            return made

    async def aclose(self) -> None:
        self._is_closed = True
        await close_client(self._client)

    async def _patiently(self, call: Callable[[], Awaitable[_Reply]]) -> _Reply:
        pause_s = limits.CHANNEL_RETRY_S_MIN
        for _ in range(limits.CHANNEL_ATTEMPTS_MORE):
            try:
                return await call()
            except (*_ELSEWHERE, AttributeError, RuntimeError) as error:
                if not isinstance(error, _ELSEWHERE) and not is_closed_connection(error):
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, limits.CHANNEL_RETRY_S_MAX)
        return await call()

    @asynccontextmanager
    async def _turn(self, key: Word | None = None) -> AsyncIterator[None]:
        """`key`: of the call; None: it asks several nodes."""
        async with our_errors(self.url):
            try:
                await self._client.initialize()
                node = "" if key is None else self._client.get_node_from_key(key).name
                turns = self._turns.get(node)
                if turns is None:
                    turns = self._turns[node] = asyncio.Semaphore(limits.CHANNEL_CALLS_MAX)
                async with turns:
                    yield
            finally:
                if self._is_closed:  # meanwhile, and the call may have connected again
                    await close_client(self._client)
