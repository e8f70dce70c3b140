"""A process that adds one to a number in a cache of aiocache, under an optimistic lock, again and again.

    python -m tests.libraries.aiocache_rounds ROUNDS

A round that loses to another process is tried again. One whose answer was lost with the connection may have been made.
"""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import urlsplit

from aiocache import RedisCache
from aiocache.lock import OptimisticLock, OptimisticLockError
from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE


async def add_one(cache: RedisCache) -> None:
    while True:
        async with OptimisticLock(cache, "number") as lock:
            number = await cache.get("number")
            try:
                await lock.cas(number + 1)
            except OptimisticLockError:
                continue
            return


async def main(rounds: int) -> None:
    async with RedisCache(port=urlsplit(os.environ[URL_VARIABLE]).port, timeout=60) as cache:
        number = 0
        while number < rounds:
            try:
                await add_one(cache)
                note("added", number)
                number += 1
            except LostConnection:
                note("unknown", number)
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
