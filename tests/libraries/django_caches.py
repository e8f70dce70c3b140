"""Caches of Django without a project: settings that are just enough, and a cache of any backend."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.core.cache import CacheHandler

DJANGO: Final = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS: Final = "django_redis.cache.RedisCache"


def configure() -> None:
    """Once in a process."""
    if not settings.configured:
        settings.configure(SECRET_KEY="of the tests", ALLOWED_HOSTS=["testserver"], USE_TZ=True)


def cache_settings(backend: str, url: str, **options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}}


def make_cache(backend: str, url: str, **options: Any) -> Any:
    """A cache, for one thread."""
    configure()
    return CacheHandler(cache_settings(backend, url, **options))["default"]
