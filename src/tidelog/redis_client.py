"""How a redis-py client is made from the address of a server, and what becomes of redis-py's errors.

    connect          a client for commands, as users of redis-py know it; also for a Redis Cluster
    connected        the same for a `with` block, whose errors become ours
    connect_raw      one connection whose replies are left as they came: for Spark, which reads many
    connect_async    a client for asyncio: for feeds
    connect_calls    a client for asyncio whose calls may be repeated, also for Sentinels and a Redis Cluster

Importing redis-py takes a while: what has no use for it does not import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import AskError, RedisClusterException
from redis.retry import Retry

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import CommandError, ServerRefused, ServerUnreachable, TidelogError

_REPLY_S_MAX: Final = 30.0
_RAW_REPLY_S_MAX: Final = 60.0
_RAW_ATTEMPTS: Final = 3


class _Sentinels(Sentinel):
    """Sentinels that are asked as they are meant to be.

    redis-py looks at their list of masters. There the one that failed stands until a failover is over, and as soon as
    it is back it looks as good as ever. Asked for a master by its name, Sentinels answer with the one that takes over.
    """

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        problems: list[str] = []
        for number, sentinel in enumerate(self.sentinels):
            try:
                found: Any = await sentinel.sentinel_get_master_addr_by_name(service_name)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                problems.append(str(error))
                continue
            if found:
                self.sentinels[0], self.sentinels[number] = sentinel, self.sentinels[0]  # it is asked first next time
                host, port = found
                return host.decode(), port
        reasons = f" ({'; '.join(problems)})" if problems else ""
        raise MasterNotFoundError(f"No master found for {service_name!r}{reasons}")


class _SentinelsAsked:
    """A connection that asks the Sentinels for the master whenever it is made anew.

    redis-py asks them when it takes a connection for a call. But when the call is repeated because the connection was
    lost, it goes back to the address that it had: to a master that has failed, which may be there again, empty or with
    what it had long ago, until the Sentinels make it a replica.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        connection: Any = self
        if not connection.is_connected:
            await connection.connect()
        await super().send_packed_command(command, check_health)  # type: ignore[misc]  # of the other parent


class _MasterConnection(_SentinelsAsked, SentinelManagedConnection):
    pass


class _MasterSslConnection(_SentinelsAsked, SentinelManagedSSLConnection):
    pass


def connect(address: ServerAddress) -> Any:
    """A client; the caller closes it. A cluster is asked for its nodes at once, other servers are not contacted yet."""
    if address.is_cluster:
        options = {**_login(address), "ssl": address.is_tls, "socket_timeout": _REPLY_S_MAX}
        return RedisCluster(host=address.host, port=address.port, **options)
    # Tried twice: the server may have closed a connection that nobody used. A caller that waits for a server repeats.
    options = {**_login(address), "retry": Retry(NoBackoff(), 1), "socket_timeout": _REPLY_S_MAX}
    return redis.Redis.from_url(_url_for_redis(address), db=address.database, **options)


@contextmanager
def connected(address: ServerAddress) -> Iterator[Any]:
    """The same client, closed at the end of the block. An error of the server or of the way to it becomes ours."""
    try:
        with connect(address) as client:
            yield client
    except AskError as error:
        raise explained(error, address.url) from None
    except redis.ResponseError as error:
        raise ServerRefused(f"the server at {address.url} refused: {error}") from None
    except (redis.ConnectionError, redis.TimeoutError, RedisClusterException) as error:
        raise explained(error, address.url) from None


def connect_raw(address: ServerAddress, *, retries: bool) -> Any:
    """One connection, whose replies are neither decoded nor made into dicts; the caller closes it.

    `retries`: a request that fails is sent again, which is fine for one that changes nothing.
    """
    retry = Retry(ExponentialBackoff(cap=1, base=0.05), _RAW_ATTEMPTS) if retries else Retry(NoBackoff(), 0)
    client: Any = redis.Redis.from_url(
        _url_for_redis(address),
        **_login(address),
        db=address.database,
        protocol=2,
        retry=retry,
        socket_timeout=_RAW_REPLY_S_MAX,
        socket_connect_timeout=limits.CLIENT_CONNECT_S_MAX,
        single_connection_client=True,
    )
    client.response_callbacks.clear()
    return client


def connect_async(address: ServerAddress) -> Any:
    """A client for asyncio that speaks RESP2 and tries nothing twice; the caller closes it."""
    options: dict[str, Any] = {"protocol": 2, "retry": AsyncRetry(NoBackoff(), 0)}
    if address.path is None:
        options |= {"socket_keepalive": True, "socket_connect_timeout": limits.CLIENT_CONNECT_S_MAX}
    return AsyncRedis.from_url(_url_for_redis(address), **_login(address), db=address.database, **options)


def connect_calls(address: ServerAddress) -> Any:
    """A client for asyncio that speaks RESP2 and sends a call again whose reply does not come.

    So it is for calls that do the same when they come twice. No server is contacted yet; `close_async` closes it. It
    may have as many connections as calls are under way: the caller bounds them.
    """
    options: dict[str, Any] = {**_settings_of(address), **_login(address), "protocol": 2}
    pauses = ExponentialBackoff(cap=limits.CHANNEL_RETRY_S_MAX, base=limits.CHANNEL_RETRY_S_MIN)
    options["retry"] = AsyncRetry(pauses, limits.CHANNEL_ATTEMPTS_MORE)
    options["socket_timeout"] = limits.CHANNEL_REPLY_S_MAX
    if address.path is not None:
        return AsyncRedis(unix_socket_path=address.path, db=address.database, **options)
    options |= {"socket_keepalive": True, "socket_connect_timeout": limits.CLIENT_CONNECT_S_MAX, "ssl": address.is_tls}
    if address.is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return AsyncRedisCluster(startup_nodes=nodes, max_connections=2 * limits.CHANNEL_CALLS_MAX, **options)
    if address.service is not None:
        asked = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout", "ssl", "protocol")}
        asked |= {name: value for name, value in options.items() if name.startswith("ssl_")}
        asked["retry"] = AsyncRetry(NoBackoff(), 0)  # there is another Sentinel to ask
        sentinels: Any = _Sentinels(list(address.hosts), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
        options["connection_class"] = _MasterSslConnection if address.is_tls else _MasterConnection
        return sentinels.master_for(address.service, db=address.database, **options)
    return AsyncRedis(host=address.host, port=address.port, db=address.database, **options)


async def close_async(client: Any) -> None:
    """Close a client for asyncio, and what it asks for the way to its server."""
    pool = getattr(client, "connection_pool", None)
    await client.aclose()
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _settings_of(address: ServerAddress) -> dict[str, Any]:
    """The settings of a URL, as redis-py reads them."""
    if not address.settings:
        return {}
    read: dict[str, Any] = dict(parse_url(f"redis://h?{address.settings}"))
    return {name: value for name, value in read.items() if name not in ("host", "connection_class")}


def _url_for_redis(address: ServerAddress) -> str:
    return f"{address.url}?{address.settings}" if address.settings else address.url


def _login(address: ServerAddress) -> dict[str, Any]:
    """Text is encoded so that a password of any bytes arrives as it is."""
    return {"username": address.username, "password": address.password, "encoding_errors": "surrogateescape"}


def explained(error: Exception, url: str = "") -> TidelogError:
    """An error of redis-py or of the machine as one of ours; `url`: where it happened, for the message."""
    if isinstance(error, redis.AuthenticationError):  # which redis-py counts among those of the connection
        return ServerRefused(f"the server{url and ' at '}{url} does not let us in: {error}")
    if isinstance(error, AskError):  # or MovedError, which is one
        return ServerRefused(f"the server{url and ' at '}{url} has not all keys: this is a cluster: use --cluster")
    if isinstance(error, redis.ResponseError):
        return CommandError(f"ERR {error}")
    reason = str(error) or type(error).__name__
    return ServerUnreachable(f"no server answers at {url}: {reason}" if url else reason)
