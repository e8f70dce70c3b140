"""python-redis-lock: a lock in Lua whose waiters are woken by a list."""

from __future__ import annotations

import threading
import time
from typing import Final

import pytest
import redis_lock

from tests.libraries.backing_server import BackingServer, client_of
from tests.libraries.job_log import JobLog
from tests.libraries.lock_rounds import LOCK
from tests.libraries.lock_rules import check_exclusion, check_killed_holder
from tests.libraries.worker_process import Workers, wait_until

pytestmark = pytest.mark.library("python-redis-lock")
PROMISE: Final = "A lock has one holder at a time; the lock of a killed process is free again when it expires."
KEY: Final = f"lock:{LOCK}"


def test_lock(server: BackingServer) -> None:
    """A lock is taken, extended, let go, and taken away with reset."""
    with client_of(server) as client:
        lock = redis_lock.Lock(client, "work", expire=10)
        assert lock.acquire()
        with pytest.raises(redis_lock.AlreadyAcquired):
            lock.acquire()
        other = redis_lock.Lock(client, "work", expire=10)
        assert not other.acquire(blocking=False)
        lock.extend(100)
        assert client.ttl("lock:work") > 10
        with pytest.raises(redis_lock.NotAcquired):
            other.extend(5)
        with pytest.raises(redis_lock.NotAcquired):
            other.release()
        lock.release()
        assert not lock.locked()
        with redis_lock.Lock(client, "forever") as forever, pytest.raises(redis_lock.NotExpirable):
            forever.extend(5)
        assert lock.acquire()
        other.reset()
        assert other.acquire()
        assert redis_lock.Lock(client, "third").acquire()
        redis_lock.reset_all(client)
        assert client.keys("lock:*") == []


def test_waiter(server: BackingServer) -> None:
    """A waiter is woken when the lock is let go, long before it would look again."""
    with client_of(server) as client:
        lock = redis_lock.Lock(client, "work", expire=60)
        lock.acquire()
        waiting = threading.Thread(target=redis_lock.Lock(client, "work", expire=60, id="waiter").acquire)
        waiting.start()
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "the waiter waits")
        lock.release()
        waiting.join(30)
        assert client.get("lock:work") == "waiter"


def test_renewal(server: BackingServer) -> None:
    """A lock of one second is renewed for as long as it is held."""
    with client_of(server) as client:
        with redis_lock.Lock(client, "work", expire=1, auto_renewal=True) as lock:
            time.sleep(2.2)
            assert lock.locked()
        assert not lock.locked()


def test_exclusion(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Three processes add to a number under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, "python-redis-lock", processes=3, rounds=30)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_exclusion_while_the_server_is_killed(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed three times while processes add under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, "python-redis-lock", processes=4, rounds=150, kills=3)


@pytest.mark.parametrize("library", ["python-redis-lock", "python-redis-lock-renewed"])
def test_killed_holder(server: BackingServer, workers: Workers, jobs: JobLog, library: str) -> None:
    """A process is killed with the lock in its hands; the next one gets it when it expires."""
    check_killed_holder(server, workers, jobs, library, KEY)
