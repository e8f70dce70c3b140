"""Django's own Redis cache, sessions kept in it, and a server that is killed."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from django.test import Client
from django.test.utils import override_settings

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.django_caches import DJANGO, DJANGO_REDIS, cache_settings, configure, make_cache
from tests.libraries.django_rules import check_kills, check_threads
from tests.libraries.django_site import SETTINGS

pytestmark = pytest.mark.library("django")
PROMISE: Final = "Increments are atomic."


@pytest.fixture
def cache(server: BackingServer) -> Any:
    return make_cache(DJANGO, url_of(server))


def test_values(cache: Any) -> None:
    """Values are set, read, added, counted, touched, versioned and deleted, one or many at a time."""
    values: dict[str, Any] = {"number": 7, "text": "käse", "nested": {"a": [1, 2, (3, 4)]}}
    assert cache.set_many(values, timeout=60) == []
    assert cache.get_many([*values, "missing"]) == values
    assert cache.get("missing", "default") == "default"
    assert not cache.add("number", 8)
    assert cache.add("more", 8, timeout=10)
    assert cache.incr("number", 5) == 12
    assert cache.decr("number", 2) == 10
    with pytest.raises(ValueError, match="not found"):
        cache.incr("missing")
    assert cache.incr_version("text") == 2
    assert cache.get("text", version=2) == "käse"
    assert cache.get_or_set("computed", lambda: [1, 2]) == [1, 2]
    assert cache.touch("more", 100)
    assert not cache.touch("missing")
    cache.set("short", 1, timeout=1)
    cache.delete_many(["number", "more"])
    assert not cache.has_key("number")
    time.sleep(1.1)
    assert cache.get("short") is None
    assert cache.clear()
    assert cache.get("nested") is None


def test_values_from_asyncio(cache: Any) -> None:
    """Values are set, read and counted from asyncio."""

    async def use() -> None:
        await cache.aset_many({"a": 1, "b": [2]})
        assert await cache.aget_many(["a", "b"]) == {"a": 1, "b": [2]}
        assert await cache.aincr("a") == 2
        assert await cache.adelete("b")
        assert await cache.aget("b") is None

    asyncio.run(use())


def test_increments_from_threads(server: BackingServer) -> None:
    """Eight threads count hits with incr, and none is lost."""
    check_threads(server, DJANGO, 50)


@pytest.fixture(params=[DJANGO, DJANGO_REDIS], ids=["Django", "django-redis"])
def site(request: pytest.FixtureRequest, server: BackingServer) -> Iterator[str]:
    """A site whose sessions are in a cache; the name of its settings is the backend's."""
    configure()
    with override_settings(CACHES=cache_settings(request.param, url_of(server)), **SETTINGS):
        yield request.param


def count_visits(sessions: int, visits: int) -> list[Client]:
    """Visit the site from several sessions at the same time; returns their browsers."""

    def visit(browser: Client) -> None:
        for number in range(visits):
            assert browser.get("/visit").content == b"%d" % (number + 1)

    browsers = [Client() for _ in range(sessions)]
    with ThreadPoolExecutor(sessions) as pool:
        list(pool.map(visit, browsers))
    return browsers


def test_sessions(site: str) -> None:
    """Sessions of a site count its visits, change their key and end."""
    first, *_ = count_visits(4, 5)
    store = importlib.import_module(SETTINGS["SESSION_ENGINE"]).SessionStore
    kept = store(session_key=first.cookies["sessionid"].value)
    assert kept["visits"] == 5
    kept.cycle_key()
    assert store(session_key=kept.session_key)["visits"] == 5
    kept.flush()
    assert first.get("/visit").content == b"1"


@pytest.mark.long
def test_sessions_survive(site: str, server: BackingServer) -> None:
    """The server is killed three times, and every session is kept."""
    browsers = count_visits(8, 50)
    for number in range(3):
        server.kill()
        server.start_again()
        assert {int(browser.get("/visit").content) for browser in browsers} == {51 + number}


@pytest.mark.long
def test_the_server_is_killed(server: BackingServer) -> None:
    """The server is killed three times under load, and no counted hit is lost."""
    check_kills(server, DJANGO)
