"""The client of a server: its feeds, the commands about feeds, and channels. Use redis-py for everything else.

Feeds are of a Tidelog, or of several that follow each other. Channels are kept by any Redis, also by a Redis Cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakSet

import redis

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.channels import Channels, Confirmation, ListedChannel, backend_at
from tidelog.channels.closing import close_client, finished
from tidelog.client.channel import EXPIRE_DEFAULT, Channel, expire_ms_of, list_all
from tidelog.client.event import Checkpoint
from tidelog.client.feed import Feed, FeedConnections, Lost
from tidelog.client.link import Link, explained
from tidelog.client.message_reader import MessageReader
from tidelog.client.patience import Patience
from tidelog.client.request import FeedRequest, OneOrMore, Word, spans_of
from tidelog.errors import BadAddress
from tidelog.redis_client import connect_async


class Position(NamedTuple):
    """How far one shard is visible to readers."""

    shard: int
    ts: int
    epoch: int


class Client:
    """A client of the server at a URL or an address. The URL may carry redis-py's settings.

    Example: `rediss://host?ssl_ca_certs=ca.pem`. A password that is given here counts instead of the URL's.

    The URL may name several servers of which one leads (`redis://host:6399,host:6399`), or the Sentinels that watch
    them (`redis+sentinel://host:26379/service`). The client uses the one that leads, and finds it again after a
    failover. For channels, the URL may also name a Redis Cluster (`redis+cluster://host,host`).
    """

    def __init__(self, url: str | ServerAddress = URL_DEFAULT, *, password: str | bytes | None = None) -> None:
        address = ServerAddress.parse(url, takes_settings=True, takes_cluster=True) if isinstance(url, str) else url
        if password is not None:
            text = password if isinstance(password, str) else password.decode("utf-8", "surrogateescape")
            address = replace(address, password=text)
        if address.sentinel_password_file is not None:
            from tidelog.server.configuration import with_sentinel_password

            address = with_sentinel_password(address, {})
        self._address = address
        self._database = address.database
        self._connections: Any = None if address.is_cluster else connect_async(address)
        self._follower_connections: Any = None
        """Made when they are first needed."""
        self._feeds: WeakSet[Feed] = WeakSet()
        self._channels: dict[int, Channels] = {}
        """By the number of replicas that confirm a message."""
        self._readers: WeakSet[MessageReader] = WeakSet()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client, all of its feeds, and all readers of its channels."""
        self._is_closed = True
        await finished(self._close())

    async def _close(self) -> None:
        for reader in list(self._readers):
            await reader.aclose()
        for feed in list(self._feeds):
            await feed.aclose()
        for channels in self._channels.values():
            await channels.aclose()
        for connections in (self._connections, self._follower_connections):
            if connections is not None:
                await close_client(connections)

    # --- feeds ------------------------------------------------------------------------------------------------

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
        from_followers: bool = False,
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
        from_followers   of several servers, read from one that follows the leader, if there is one that is connected to
                         it. Changes come a little later. A feed with a name is always the leader's
        reconnect_s_max  raise ServerUnreachable when the server was away for this long; None: never. The first
                         connection counts, too, if the URL names several servers. With one server it is not tried
                         again, and several of which none answers are given half a minute
        on_lost          called when the connection is lost, or the first one cannot be made, before the client tries
                         again
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
        leader = self._redis.connection_pool
        followers = self._followers.connection_pool if from_followers else leader
        feed = Feed(
            FeedConnections(
                lambda is_follower_fine: Link(followers if is_follower_fine else leader, number),
                request,
                from_followers=from_followers,
                waits_at_start=self._address.names_several,
                reconnect_s_max=reconnect_s_max,
                on_lost=on_lost,
            )
        )
        self._feeds.add(feed)
        return feed

    def patience(self, away_s_max: float | None = None) -> Patience:
        """For calls that are to wait for a server, from the first one on if there are several."""
        return Patience(away_s_max, at_start=self._address.names_several)

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

    @property
    def _redis(self) -> Any:
        """For feeds; `BadAddress` if the URL names a Redis Cluster."""
        if self._connections is None:
            problem = "feeds are of a Tidelog: use redis://, rediss://, unix:// or redis+sentinel://"
            raise BadAddress(f"{self._address.url} has channels only: {problem}", problem=problem)
        return self._connections

    @property
    def _followers(self) -> Any:
        """For feeds that a follower will do for."""
        if self._follower_connections is None:
            self._follower_connections = connect_async(self._address, follower=random.randrange(1 << 16))
        return self._follower_connections

    async def _call(self, *words: Word) -> Any:
        try:
            return await self._redis.execute_command(*words)
        except (redis.RedisError, OSError) as error:
            raise explained(error) from error
        finally:
            if self._is_closed:  # meanwhile, and the call may have connected again
                await close_client(self._redis)

    # --- channels ---------------------------------------------------------------------------------------------

    def channel(self, name: str, *, expire: timedelta | float = EXPIRE_DEFAULT, confirm_replicas: int = 0) -> Channel:
        """A channel, by its name: a letter or a digit, then up to 62 more, or `_` and `-`.

        expire             how long messages are kept, and subscribers that acknowledge nothing: a timedelta, or
                           seconds. It belongs to the channel: give the same everywhere, also to the gateway
        confirm_replicas   a publish is a success only when so many replicas of the server have the message, else it
                           raises NotConfirmed
        """
        return Channel(
            self._channels_of(confirm_replicas),
            name,
            expire_ms_of(expire),
            self._readers,
            waits_at_start=self._address.names_several,
        )

    async def list_channels(self, channel: str | None = None) -> list[ListedChannel]:
        """All channels with their subscribers, in the order of their names; or only one channel, if it is there.

        The keys of the server are looked through with SCAN, so this takes longer the more keys there are.
        """
        return await list_all(self._channels_of(0), channel)

    def _channels_of(self, confirm_replicas: int) -> Channels:
        found = self._channels.get(confirm_replicas)
        if found is None:
            confirm = Confirmation(confirm_replicas) if confirm_replicas else None
            found = self._channels[confirm_replicas] = Channels(backend_at(self._address), confirm=confirm)
        return found
