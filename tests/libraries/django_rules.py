"""What a cache of Django has to show, whichever backend it has: no hit that was counted is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.django_caches import make_cache

THREADS: Final = 8
RETRIES_MAX: Final = 3
"""redis-py sends a command again when the connection is lost: an increment without an answer may have been made."""


def check_threads(server: BackingServer, backend: str, each: int) -> None:
    """Threads increment a number so often each, and every answer is another number."""

    def count(_: int) -> list[int]:
        mine = make_cache(backend, url_of(server))
        start.wait()
        return [mine.incr("hits") for _ in range(each)]

    make_cache(backend, url_of(server)).set("hits", 0)
    start = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for answers in pool.map(count, range(THREADS)) for answer in answers]
    assert sorted(answers) == list(range(1, THREADS * each + 1))


def check_kills(server: BackingServer, backend: str, kills: int = 3) -> None:
    """The server is killed in the middle of increments; what it has after that includes every one it answered."""
    cache = make_cache(backend, url_of(server))
    values = {f"value:{number}": [number] for number in range(200)}
    cache.set_many(values, timeout=None)
    cache.set("hits", 0, timeout=None)
    for _ in range(kills):
        before = answered = cache.get("hits")
        killing = threading.Timer(0.5, server.kill)
        killing.start()
        try:
            while True:
                answered = cache.incr("hits")
        except LostConnection:
            killing.join()
        server.start_again()
        assert before < answered <= cache.get("hits") <= answered + 1 + RETRIES_MAX
    assert cache.get_many(list(values)) == values
