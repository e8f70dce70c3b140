"""A process that takes a lock, adds one to a number and lets go, again and again.

    python -m tests.libraries.lock_rounds LIBRARY SECONDS ROUNDS    add one so often, and note each
    python -m tests.libraries.lock_rounds LIBRARY SECONDS hold      take the lock, note it, and keep it until killed

A lock lasts SECONDS if nobody lets it go. Nobody may need nearly as long; one whose answer was lost with the connection
is free again only after that time.

It reads the number and writes it back with two commands and a pause between them, which only the lock makes safe: if
two processes ever held it at the same time, an addition would be lost and the number would end too small.

A lost connection is tried again. An addition whose answer was lost may have been made; the lock is still held then, so
reading the number tells.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

import redis
import redis.asyncio
import redis_lock
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import LockError
from redis.retry import Retry

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

NUMBER: Final = "number"
START: Final = "start"
"""The key that a test sets when all processes are ready: they should contend."""
LOCK: Final = "the-lock"
PAUSE_S: Final = 0.002
RETRY_S: Final = 0.05
LOST_S_MAX: Final = 60.0

Result = TypeVar("Result")


class AnyLock(Protocol):
    """What the locks have in common."""

    def acquire(self) -> Any: ...

    def release(self) -> Any: ...


class NoLock:
    """Everybody has it: what is counted under it is wrong, or the count shows nothing."""

    def __init__(self, url: str, lock_s: int) -> None: ...

    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...


class AsyncioLock:
    """redis-py's lock for asyncio, in a loop of its own."""

    def __init__(self, url: str, lock_s: int) -> None:
        self._loop = asyncio.new_event_loop()
        client = redis.asyncio.Redis.from_url(url, retry=redis.asyncio.retry.Retry(NoBackoff(), 0))
        self._lock = client.lock(LOCK, timeout=lock_s, sleep=PAUSE_S)

    def acquire(self) -> bool:
        return bool(self._loop.run_until_complete(self._lock.acquire()))

    def release(self) -> None:
        self._loop.run_until_complete(self._lock.release())


def connect(url: str) -> redis.Redis:
    """A client that does not try again by itself: a command is sent once, or not at all."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True, socket_timeout=LOST_S_MAX)


def redis_py_lock(url: str, lock_s: int) -> AnyLock:
    made: AnyLock = connect(url).lock(LOCK, timeout=lock_s, sleep=PAUSE_S)
    return made


def python_redis_lock(url: str, lock_s: int) -> AnyLock:
    made: AnyLock = redis_lock.Lock(connect(url), LOCK, expire=lock_s)
    return made


def renewed_lock(url: str, lock_s: int) -> AnyLock:
    """It lasts a second, and a thread renews it."""
    made: AnyLock = redis_lock.Lock(connect(url), LOCK, expire=1, auto_renewal=True)
    return made


def django_redis_lock(url: str, lock_s: int) -> AnyLock:
    from tests.libraries.django_caches import DJANGO_REDIS, make_cache

    made: AnyLock = make_cache(DJANGO_REDIS, url).lock(LOCK, timeout=lock_s, sleep=PAUSE_S)
    return made


LOCKS: Final[dict[str, Callable[[str, int], AnyLock]]] = {
    "redis-py": redis_py_lock,
    "redis-py-asyncio": AsyncioLock,
    "python-redis-lock": python_redis_lock,
    "python-redis-lock-renewed": renewed_lock,
    "django-redis": django_redis_lock,
    "none": NoLock,
}


def insist(act: Callable[[], Result]) -> Result:
    """Do something until the server answers."""
    deadline_s = time.monotonic() + LOST_S_MAX
    while True:
        try:
            return act()
        except LostConnection:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_S)


def add_one(client: redis.Redis) -> None:
    number = int(insist(lambda: client.get(NUMBER)) or 0)
    time.sleep(PAUSE_S)
    try:
        client.set(NUMBER, number + 1)
    except LostConnection:
        insist(lambda: client.get(NUMBER) == str(number + 1) or client.set(NUMBER, number + 1))


def acquire(lock: AnyLock) -> None:
    try:
        assert lock.acquire()
    except LostConnection:
        with suppress(redis_lock.AlreadyAcquired):  # the first attempt did it, and its answer was lost
            assert insist(lock.acquire)


def release(lock: AnyLock) -> None:
    try:
        lock.release()
    except LostConnection:
        # The first attempt did it, or the lock will expire: redis-py forgets that it has it.
        with suppress(LockError, redis_lock.NotAcquired):
            insist(lock.release)


def add_many(library: str, lock_s: int, rounds: int) -> None:
    url = os.environ[URL_VARIABLE]
    lock, client = LOCKS[library](url, lock_s), connect(url)
    note("ready", library)
    while not client.exists(START):
        time.sleep(PAUSE_S)
    for number in range(rounds):
        acquire(lock)
        held_since_s = time.monotonic()
        add_one(client)
        if time.monotonic() - held_since_s > lock_s - 1:
            raise SystemExit("this machine is too slow: the lock expired while it was held")
        note("added", number)
        release(lock)


def hold(library: str, lock_s: int) -> None:
    lock = LOCKS[library](os.environ[URL_VARIABLE], lock_s)
    assert lock.acquire()
    note("held", library)
    time.sleep(LOST_S_MAX)


if __name__ == "__main__":
    _, name, seconds, what = sys.argv
    if what == "hold":
        hold(name, int(seconds))
    else:
        add_many(name, int(seconds), int(what))
