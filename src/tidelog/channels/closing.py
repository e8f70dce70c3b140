"""Closing a client of redis-py for asyncio so that nothing stays open behind it.

redis-py closes the connections that there are, which leaves three ways out:

- Whoever closes is cancelled meanwhile. The connections are then open, and nobody knows them any more. So closing is
  done to its end, and the cancellation counts after that.
- A call of another task is under way. It finds its connection closed, or was just making it, and connects again. So
  whoever makes calls closes once more when one of them ends after that.
- A client of a cluster takes itself for closed while it learns the slots anew, and then closes nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from redis.asyncio.cluster import RedisCluster


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Do some work to its end, also if the caller is cancelled meanwhile; then the caller is cancelled."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # so that asyncio does not take it for forgotten
        raise asyncio.CancelledError
    task.result()


async def close_client(client: Any) -> None:
    """Close all connections of a client. It may be used again, and then closed again."""
    await finished(_close(client))


async def _close(client: Any) -> None:
    try:
        await client.aclose()
    finally:
        if isinstance(client, RedisCluster):
            for nodes in ("nodes_cache", "startup_nodes"):
                await client.nodes_manager.aclose(nodes)
