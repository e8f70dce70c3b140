"""How a redis-py client is made from the address of a server, and what becomes of redis-py's errors.

    connect          a client for commands, as users of redis-py know it; also for a Redis Cluster
    connected        the same for a `with` block, whose errors become ours
    connect_raw      one connection whose replies are left as they came: for Spark, which reads many
    connect_async    a client for asyncio: for feeds
    connect_calls    a client for asyncio whose calls may be repeated, also for a Redis Cluster

If the address names several servers, or Sentinels, every connection finds the one that leads (`redis_search.py`); or,
for those that take `follower`, one that follows it, if there is one.

Importing redis-py takes a while: what has no use for it does not import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import EqualJitterBackoff, ExponentialBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import AskError, RedisClusterException
from redis.retry import Retry

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import CommandError, ServerRefused, ServerUnreachable, TidelogError
from tidelog.redis_search import (
    CallRetry,
    NoServerFound,
    coded,
    login_of,
    searching_async_pool,
    searching_pool,
    settings_of,
)
from tidelog.server_search import ServerSearch, is_elsewhere

_REPLY_S_MAX: Final = 30.0
_RAW_REPLY_S_MAX: Final = 60.0
_ATTEMPTS_MORE: Final = 3


def connect(address: ServerAddress, *, waits: bool = True) -> Any:
    """A client; the caller closes it. A cluster is asked for its nodes at once, other servers are not contacted yet.

    `waits`: calls wait for a while until one of several servers leads. False: the caller does.
    """
    if address.is_cluster:
        options = {**login_of(address), "ssl": address.is_tls, "socket_timeout": _REPLY_S_MAX}
        nodes: list[Any] = [ClusterNode(*place) for place in address.hosts]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, **options)
    if address.is_searched:
        pauses = EqualJitterBackoff(cap=limits.CLIENT_SEARCH_PAUSE_S_MAX, base=limits.CLIENT_RECONNECT_S_MIN)
        pool = searching_pool(
            ServerSearch(address),
            waits=waits,
            retry=CallRetry(pauses, _ATTEMPTS_MORE),
            socket_timeout=_REPLY_S_MAX,
            socket_connect_timeout=limits.CLIENT_CONNECT_S_MAX,
        )
        return redis.Redis.from_pool(pool)
    # Tried twice: the server may have closed a connection that nobody used. A caller that waits for a server repeats.
    options = {**login_of(address), "retry": Retry(NoBackoff(), 1), "socket_timeout": _REPLY_S_MAX}
    return redis.Redis.from_url(_url_for_redis(address), db=address.database, **options)


@contextmanager
def connected(address: ServerAddress, *, waits: bool = True) -> Iterator[Any]:
    """The same client, closed at the end of the block. An error of the server or of the way to it becomes ours."""
    try:
        with connect(address, waits=waits) as client:
            yield client
    except AskError as error:
        raise explained(error, address.url) from None
    except redis.ResponseError as error:
        raise ServerRefused(f"the server at {address.url} refused: {error}") from None
    except (redis.ConnectionError, redis.TimeoutError, RedisClusterException) as error:
        raise explained(error, address.url) from None


def connect_raw(address: ServerAddress, *, retries: bool, follower: int | None = None) -> Any:
    """One connection, whose replies are neither decoded nor made into dicts; the caller closes it.

    retries    a request that fails is sent again, which is fine for one that changes nothing
    follower   one of several servers that follows will do, and is better; where among them to begin. None: the leader
    """
    attempts, pauses = (_ATTEMPTS_MORE, ExponentialBackoff(cap=1, base=0.05)) if retries else (0, NoBackoff())
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": _RAW_REPLY_S_MAX,
        "socket_connect_timeout": limits.CLIENT_CONNECT_S_MAX,
    }
    client: Any
    if address.is_searched:
        pool = searching_pool(ServerSearch(address, follower=follower), retry=CallRetry(pauses, attempts), **options)
        client = redis.Redis(connection_pool=pool, single_connection_client=True)
        client.auto_close_connection_pool = True
    else:
        options |= {"db": address.database, "retry": Retry(pauses, attempts), "single_connection_client": True}
        client = redis.Redis.from_url(_url_for_redis(address), **login_of(address), **options)
    client.response_callbacks.clear()
    return client


def connect_async(address: ServerAddress, *, follower: int | None = None) -> Any:
    """A client for asyncio that speaks RESP2 and tries nothing twice; the caller closes it. `follower`: as above."""
    options: dict[str, Any] = {"protocol": 2, "retry": AsyncRetry(NoBackoff(), 0)}
    if address.path is None:
        options |= {"socket_keepalive": True, "socket_connect_timeout": limits.CLIENT_CONNECT_S_MAX}
    if address.is_searched:
        return AsyncRedis.from_pool(searching_async_pool(ServerSearch(address, follower=follower), **options))
    return AsyncRedis.from_url(_url_for_redis(address), **login_of(address), db=address.database, **options)


def connect_calls(address: ServerAddress) -> Any:
    """A client for asyncio that speaks RESP2 and sends a call again whose reply does not come.

    So it is for calls that do the same when they come twice. No server is contacted yet; the caller closes it. It may
    have as many connections as calls are under way: the caller bounds them.
    """
    pauses = ExponentialBackoff(cap=limits.CHANNEL_RETRY_S_MAX, base=limits.CHANNEL_RETRY_S_MIN)
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": AsyncRetry(pauses, limits.CHANNEL_ATTEMPTS_MORE),
        "socket_timeout": limits.CHANNEL_REPLY_S_MAX,
    }
    place = {**settings_of(address), **login_of(address)}
    if address.path is not None:
        return AsyncRedis(unix_socket_path=address.path, db=address.database, **place, **options)
    options |= {"socket_keepalive": True, "socket_connect_timeout": limits.CLIENT_CONNECT_S_MAX}
    if address.is_searched:
        return AsyncRedis.from_pool(searching_async_pool(ServerSearch(address), **options))
    place["ssl"] = address.is_tls
    if address.is_cluster:
        nodes = [AsyncClusterNode(host, port) for host, port in address.hosts]
        return AsyncRedisCluster(startup_nodes=nodes, max_connections=2 * limits.CHANNEL_CALLS_MAX, **place, **options)
    return AsyncRedis(host=address.host, port=address.port, db=address.database, **place, **options)


def _url_for_redis(address: ServerAddress) -> str:
    return f"{address.url}?{address.settings}" if address.settings else address.url


def explained(error: Exception, url: str = "") -> TidelogError:
    """An error of redis-py or of the machine as one of ours; `url`: where it happened, for the message."""
    at = f" at {url}" if url else ""
    if isinstance(error, redis.ConnectionError) and isinstance(error.__cause__, redis.RedisError):
        error = error.__cause__  # asyncio's connections wrap whatever prevents them
    if isinstance(error, redis.AuthenticationError):  # which redis-py counts among those of the connection
        return ServerRefused(f"the server{at} does not let us in: {error}")
    if isinstance(error, AskError):  # or MovedError, which is one
        return ServerRefused(f"the server{at} has not all keys: this is a cluster: use --cluster")
    if isinstance(error, redis.ResponseError):
        text = coded(error)
        if is_elsewhere(text):
            return ServerUnreachable(f"the server{at} cannot answer now: {text}")
        return CommandError(f"ERR {error}")
    if isinstance(error, NoServerFound):
        return error.reason
    reason = str(error) or type(error).__name__
    return ServerUnreachable(f"no server answers at {url}: {reason}" if url else reason)
