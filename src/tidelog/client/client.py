"""Where a server is, and what can be asked of it about feeds. Everything else that Redis clients do, redis-py does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakSet

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tidelog import limits
from tidelog.client.event import Checkpoint
from tidelog.client.feed import Connections, Feed, Lost
from tidelog.client.link import Link, explained
from tidelog.client.request import FeedRequest, Keys, Word, spans_of

_PORT_DEFAULT = 6399


class Position(NamedTuple):
    """How far one shard is visible to readers."""

    shard: int
    ts: int
    epoch: int


class Client:
    """A server: `redis://[[user]:password@]host[:port]`, `rediss://...` for TLS, `unix:///path`.

    The URL takes redis-py's options, such as `rediss://host?ssl_ca_certs=ca.pem`.
    """

    def __init__(self, url: str = "redis://127.0.0.1:6399", *, password: str | bytes | None = None) -> None:
        options: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
        if not url.startswith("unix:"):
            options |= {"port": _PORT_DEFAULT, "socket_keepalive": True}
            options["socket_connect_timeout"] = limits.CLIENT_CONNECT_S_MAX
        self._redis: Any = Redis.from_url(url, **options)
        if password is not None:
            self._redis.connection_pool.connection_kwargs["password"] = password
        self._feeds: WeakSet[Feed] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close it, and the feeds that nobody reads any more."""
        for feed in list(self._feeds):
            await feed.aclose()
        await self._redis.aclose()

    def feed(
        self,
        *,
        prefix: Keys | None = None,
        keys: Keys | None = None,
        spans: Sequence[tuple[bytes | str, bytes | str]] = (),
        since: int | Checkpoint | None = None,
        initial: bool = False,
        until: int | None = None,
        name: str | None = None,
        txn: bool = False,
        groups: bool = False,
        checkpoint_ms: int = 1000,
        database: int = 0,
        reconnect_s_max: float | None = None,
        on_lost: Callable[[Lost], None] | None = None,
    ) -> Feed:
        """What changes, from now on.

        prefix, keys     which keys; one or several, as bytes or text. Nothing of them and no spans: all keys
        spans            pairs of keys, from the first to before the second, which is unbounded if it is empty
        since            begin after this ts, or where a Checkpoint was: FeedTooOld, FeedDiverged if it cannot
        initial          begin with the values of now
        until            end at this ts, with what has it
        name             the server keeps what this reader has not acknowledged, and without `since` begins there
        txn              a Commit after the events of each transaction
        groups           also what happens to groups of streams
        checkpoint_ms    a Checkpoint so often, at least
        reconnect_s_max  give up (ServerUnreachable) when the server was away for so long; None: never
        on_lost          called when a connection was lost, before it is made again
        """
        if since is not None and initial:
            raise ValueError("since and initial exclude each other")
        request = FeedRequest(
            spans_of(prefix, keys, spans), since, initial, until, name, txn, groups, checkpoint_ms, database
        )
        pool = self._redis.connection_pool
        feed = Feed(
            Connections(lambda: Link(pool, database), request, reconnect_s_max=reconnect_s_max, on_lost=on_lost)
        )
        self._feeds.add(feed)
        return feed

    async def positions(self) -> list[Position]:
        """How far each shard is visible: the ts to resume after what is there now, or to end a feed at."""
        return [Position(*each) for each in await self._call("FEED", "POSITION")]

    async def acknowledge(self, name: str, ts: int) -> None:
        """A named feed needs nothing at or below `ts` any more."""
        await self._call("FEED", "ACK", name, ts)

    async def _call(self, *words: Word) -> Any:
        try:
            return await self._redis.execute_command(*words)
        except (redis.RedisError, OSError) as error:
            raise explained(error) from error
