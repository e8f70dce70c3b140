"""The client of a server: its feeds, and the commands about feeds. Use redis-py for everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakSet

import redis

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.client.event import Checkpoint
from tidelog.client.feed import Feed, FeedConnections, Lost
from tidelog.client.link import Link, explained
from tidelog.client.request import FeedRequest, OneOrMore, Word, spans_of
from tidelog.redis_client import connect_async


class Position(NamedTuple):
    """How far one shard is visible to readers."""

    shard: int
    ts: int
    epoch: int


class Client:
    """A client of the server at a URL or an address. The URL may carry redis-py's settings.

    Example: `rediss://host?ssl_ca_certs=ca.pem`. A password that is given here counts instead of the URL's.
    """

    def __init__(self, url: str | ServerAddress = URL_DEFAULT, *, password: str | bytes | None = None) -> None:
        address = ServerAddress.parse(url, takes_settings=True) if isinstance(url, str) else url
        if password is not None:
            text = password if isinstance(password, str) else password.decode("utf-8", "surrogateescape")
            address = replace(address, password=text)
        self._database = address.database
        self._redis: Any = connect_async(address)
        self._feeds: WeakSet[Feed] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client and all of its feeds."""
        for feed in list(self._feeds):
            await feed.aclose()
        await self._redis.aclose()

    def feed(
        self,
        *,
        prefix: OneOrMore | None = None,
        keys: OneOrMore | None = None,
        spans: Sequence[tuple[bytes | str, bytes | str]] = (),
        since: int | Checkpoint | None = None,
        initial: bool = False,
        until: int | None = None,
        name: str | None = None,
        txn: bool = False,
        groups: bool = False,
        expiry: bool = False,
        checkpoint_ms: int | None = None,
        one_checkpoint: bool = False,
        database: int | None = None,
        reconnect_s_max: float | None = None,
        on_lost: Callable[[Lost], None] | None = None,
    ) -> Feed:
        """The changes of a server, from now on or from an earlier moment.

        prefix, keys     one or several prefixes or keys, as bytes or text. Without these and `spans`: all keys
        spans            pairs of keys: from the first up to, but not including, the second; empty: no upper bound
        since            start after this ts or Checkpoint; FeedTooOld or FeedDiverged if the server cannot
        initial          start with the current values
        until            end after the events of this ts
        name             the server keeps the journal that this reader has not acknowledged; without `since`, the feed
                         starts there. A name belongs to a database, and one reader at a time has it: a second feed of
                         that name ends the first, whose reader gets a CommandError
        txn              deliver a Commit after the events of each transaction
        groups           also deliver changes of consumer groups
        expiry           also deliver when keys expire (EXPIRE, PERSIST, SET with EX ...)
        checkpoint_ms    deliver a Checkpoint at least this often; None: as often as the server does by itself
        one_checkpoint   deliver one Checkpoint for all keys, prefixes and spans, instead of one for each of them
        database         its number; None: the one of the URL
        reconnect_s_max  raise ServerUnreachable when the server was away for this long; None: never
        on_lost          called when the connection is lost, before the client connects again
        """
        if since is not None and initial:
            raise ValueError("since and initial cannot be used together")
        number = self._database if database is None else database
        request = FeedRequest(
            spans_of(prefix, keys, spans),
            since,
            initial,
            until,
            name,
            txn,
            groups,
            expiry,
            checkpoint_ms,
            one_checkpoint,
            number,
        )
        pool = self._redis.connection_pool
        feed = Feed(
            FeedConnections(lambda: Link(pool, number), request, reconnect_s_max=reconnect_s_max, on_lost=on_lost)
        )
        self._feeds.add(feed)
        return feed

    async def positions(self) -> list[Position]:
        """How far each shard is visible: a ts to resume a feed after, or to end it at."""
        return [Position(*each) for each in await self._call("FEED", "POSITION")]

    async def acknowledge(self, name: str, ts: int, *, database: int | None = None) -> None:
        """Tell the server that a named feed no longer needs anything at or below `ts`.

        database    the one of the feed; None: the one of the URL
        """
        if database in (None, self._database):
            await self._call("FEED", "ACK", name, ts)
            return
        link = Link(self._redis.connection_pool, database)
        try:
            await link.connect()
            await link.call("FEED", "ACK", name, ts)
        finally:
            await link.close()

    async def _call(self, *words: Word) -> Any:
        try:
            return await self._redis.execute_command(*words)
        except (redis.RedisError, OSError) as error:
            raise explained(error) from error
