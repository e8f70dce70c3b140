"""django-redis: its cache, counters from many threads, locks among processes, and a server that is killed."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.django_caches import DJANGO_REDIS, make_cache
from tests.libraries.django_rules import check_kills, check_threads
from tests.libraries.job_log import JobLog
from tests.libraries.lock_rounds import LOCK
from tests.libraries.lock_rules import check_exclusion, check_killed_holder
from tests.libraries.worker_process import Workers

pytestmark = pytest.mark.library("django-redis", "django")
PROMISE: Final = "Increments are atomic; a lock has one holder at a time."


@pytest.fixture
def cache(server: BackingServer) -> Any:
    made = make_cache(DJANGO_REDIS, url_of(server))
    yield made
    made.client.do_close_clients()


def test_values(cache: Any) -> None:
    """Values are set, read, added, touched, versioned and deleted, one or many at a time."""
    values: dict[str, Any] = {"number": 7, "text": "käse", "nothing": False, "nested": {"a": [1, 2, (3, 4)]}}
    cache.set_many(values, timeout=60)
    assert cache.get_many([*values, "missing"]) == values
    assert cache.get("missing", "default") == "default"
    assert not cache.add("number", 8)
    assert cache.add("more", 8)
    assert cache.get_or_set("computed", lambda: [1, 2]) == [1, 2]
    assert cache.has_key("text")
    assert cache.incr_version("text") == 2
    assert cache.get("text") is None
    assert cache.get("text", version=2) == "käse"
    assert cache.delete_many(["number", "more", "missing"]) == 2
    assert cache.touch("nested", 100)
    assert 60 < cache.ttl("nested") <= 100
    cache.clear()
    assert cache.keys("*") == []


def test_expiry(cache: Any) -> None:
    """Expiries are set, read and taken away."""
    cache.set("short", 1, timeout=0.05)
    cache.set("forever", 1, timeout=None)
    assert cache.ttl("forever") is None
    assert cache.ttl("missing") == 0
    cache.expire("forever", 100)
    assert 90 <= cache.ttl("forever") <= 100
    assert 90_000 <= cache.pttl("forever") <= 100_000
    assert cache.pexpire("forever", 5_000)
    assert cache.pexpire_at("forever", int(1000 * time.time()) + 200_000)
    assert cache.ttl("forever") > 100
    assert cache.persist("forever")
    assert cache.ttl("forever") is None
    time.sleep(0.06)
    assert cache.get("short") is None
    cache.set("forever", 1, timeout=0)
    assert not cache.has_key("forever")


def test_patterns(cache: Any) -> None:
    """Keys are listed, walked and deleted by pattern."""
    cache.set_many({f"user:{number}": number for number in range(500)})
    cache.set("other", 1)
    assert sorted(cache.keys("user:1?")) == [f"user:{number}" for number in range(10, 20)]
    assert len(set(cache.iter_keys("user:*", itersize=50))) == 500
    assert cache.delete_pattern("user:4*") == 111
    assert cache.delete_pattern("user:*", itersize=100) == 389
    assert cache.keys("*") == ["other"]


def test_collections(cache: Any) -> None:
    """Sets, hashes and sorted sets are used through the cache."""
    assert cache.sadd("one", 1, "b", (3,)) == 3
    cache.sadd("two", "b", "c")
    assert cache.smembers("one") == {1, "b", (3,)}
    assert cache.sinter("one", "two") == {"b"}
    assert cache.sunionstore("three", "one", "two") == 4
    assert cache.scard("three") == 4
    assert cache.smismember("one", "b", "c") == [True, False]
    assert set(cache.sscan_iter("three")) == {1, "b", (3,), "c"}
    assert cache.hset("hash", "field", {"a": 1}) == 1
    assert cache.hkeys("hash") == ["field"]
    assert cache.hexists("hash", "field")
    assert cache.hdel("hash", "field") == 1
    assert cache.zadd("scores", {"ann": 3, "bob": 1}) == 2
    assert cache.zincrby("scores", 4, "bob") == 5
    assert cache.zrange("scores", 0, -1) == ["ann", "bob"]
    assert cache.zpopmin("scores") == ("ann", 3.0)


@pytest.mark.parametrize("compressor", ["zlib", "gzip", "lzma"])
def test_compressed_values(server: BackingServer, compressor: str) -> None:
    """Values are compressed, and kept as JSON."""
    cache = make_cache(
        DJANGO_REDIS,
        url_of(server),
        COMPRESSOR=f"django_redis.compressors.{compressor}.{compressor.capitalize()}Compressor",
        SERIALIZER="django_redis.serializers.json.JSONSerializer",
    )
    cache.set("large", {"a": "x" * 10_000})
    assert cache.get("large") == {"a": "x" * 10_000}
    cache.client.do_close_clients()


def test_increments_from_threads(server: BackingServer) -> None:
    """Eight threads count hits with incr, and none is lost."""
    check_threads(server, DJANGO_REDIS, 50)


@pytest.mark.long
def test_many_increments_from_threads(server: BackingServer) -> None:
    """Eight threads count hits with incr, and none is lost."""
    check_threads(server, DJANGO_REDIS, 2_000)


def test_increments(cache: Any) -> None:
    """Increments keep the expiry, refuse a missing key, and go past 64 bits."""
    with pytest.raises(ValueError, match="not found"):
        cache.incr("missing")
    cache.set("hits", 5, timeout=100)
    assert cache.incr("hits", 10) == 15
    assert cache.decr("hits") == 14
    assert cache.ttl("hits") > 0
    cache.set("hits", 2**63 - 1)
    assert cache.incr("hits") == 2**63, "past 64 bits it is Python that adds"
    assert cache.incr("created", ignore_key_check=True) == 1


def test_a_lock(cache: Any) -> None:
    """A lock is taken, extended and let go."""
    with cache.lock("work", timeout=10) as lock:
        assert lock.owned()
        assert not cache.lock("work", blocking=False).acquire()
        lock.extend(10)
    assert cache.lock("work", blocking=False).acquire()


def test_exclusion(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Three processes add to a number under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, "django-redis", processes=3, rounds=20)


def test_killed_holder(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A process is killed with the lock in its hands; the next one gets it when it expires."""
    check_killed_holder(server, workers, jobs, "django-redis", f":1:{LOCK}")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_exclusion_while_the_server_is_killed(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed three times while processes add under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, "django-redis", processes=4, rounds=150, kills=3)


@pytest.mark.long
def test_the_server_is_killed(server: BackingServer) -> None:
    """The server is killed three times under load, and no value and no counted hit is lost."""
    check_kills(server, DJANGO_REDIS)
