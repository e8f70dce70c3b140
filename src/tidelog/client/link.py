"""One connection of a feed. redis-py connects and authenticates, hiredis decodes, and this module reads the events.

It uses RESP2, in which events are plain arrays: in RESP3, redis-py would take pushes for its own. Replies are read past
redis-py, so that it is seen when bytes arrive: a large event may take longer than a connection may be silent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

import hiredis
import redis
from redis.asyncio import ConnectionPool

from tidelog import limits, redis_client
from tidelog.client.event import Event, event_of
from tidelog.client.request import Word
from tidelog.errors import FeedDiverged, ServerUnreachable, TidelogError, TooOld
from tidelog.server_search import FoundServer

_REFUSAL: Final = re.compile(r"(FEEDTOOOLD|FEEDDIVERGED) \w+=(\d+)")


class Link:
    """A connection that has become a feed."""

    def __init__(self, pool: ConnectionPool, database: int) -> None:
        kwargs = {**pool.connection_kwargs, "db": database, "protocol": 2, "decode_responses": False}
        self._connection: Any = pool.connection_class(**kwargs)
        self._reader: Any = hiredis.Reader(replyError=redis.ResponseError)
        self.silent_s_max: float | None = None
        """When not a byte came for so long, the connection counts as lost; None: it never does."""

    @property
    def is_leader(self) -> bool:
        """False: of several servers, it is one that follows. It may have less than another."""
        found: FoundServer | None = getattr(self._connection, "found", None)
        return found is None or found.is_leader

    @property
    def place(self) -> str:
        """The server at the other end, for messages."""
        return str(self._connection._host_error())

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(limits.CLIENT_CONNECT_S_MAX):
                await self._connection.connect()
        except (redis.RedisError, OSError, TimeoutError) as error:
            raise explained(error) from error

    async def call(self, *words: Word) -> Any:
        """The reply to a command."""
        await self.send(words)
        return await self._read(limits.CLIENT_CONNECT_S_MAX)

    async def send(self, words: Sequence[Word]) -> None:
        try:
            await self._connection.send_command(*words, check_health=False)
        except (redis.RedisError, OSError) as error:
            raise explained(error) from error

    async def read(self) -> Event:
        """The next event. `ServerUnreachable` at the end, and when nothing comes for too long."""
        return event_of(await self._read(self.silent_s_max))

    async def _read(self, silent_s_max: float | None) -> Any:
        while (found := self._reader.gets()) is False:
            try:
                async with asyncio.timeout(silent_s_max):
                    data = await self._connection._reader.read(limits.CLIENT_FEED_READ_BYTES)
            except TimeoutError:
                raise ServerUnreachable(f"the server sent nothing for {silent_s_max:g} s") from None
            except OSError as error:
                raise explained(error) from error
            if not data:
                raise explained(redis.ConnectionError("the server closed the connection"))
            self._reader.feed(data)
        if isinstance(found, redis.ResponseError):
            raise explained(found)
        return found

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # the transport closes its socket in the loop's next round


def explained(error: Exception) -> TidelogError:
    """An error of redis-py or of the machine as one of ours. FEEDTOOOLD and FEEDDIVERGED have their own classes."""
    found = _REFUSAL.match(str(error)) if isinstance(error, redis.ResponseError) else None
    if found is None:
        return redis_client.explained(error)
    code, number = found.groups()
    if code == "FEEDTOOOLD":
        return TooOld(f"the journal goes back to ts {number} only", oldest=int(number))
    return FeedDiverged(f"the server has lost what came after ts {number}", since=int(number))
