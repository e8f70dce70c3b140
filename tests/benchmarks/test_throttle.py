"""The slow link of the benchmarks is as slow as it says, and tells of links that end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.followers import wait_for
from benchmarks.throttle import Throttle

MANY = 4_000_000


@pytest.fixture
def leader_port() -> Iterator[int]:
    """Somebody who sends without end to whoever connects, until it is told to stop."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        link, _ = listening.accept()
        with link:
            link.sendall(bytes(MANY))
            link.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()[1]
    thread.join(10)
    listening.close()


def test_a_slow_link_passes_so_much_and_a_fast_one_all(leader_port: int) -> None:
    with Throttle(leader_port) as throttle:
        throttle.limit(200_000)
        with socket.create_connection(("127.0.0.1", throttle.port)) as follower:
            time.sleep(0.5)
            passed = throttle.passed_bytes
            assert 0 < passed < 400_000
            throttle.limit(0)
            left = MANY
            while left:
                left -= len(follower.recv(1 << 16))
            assert wait_for(lambda: throttle.passed_bytes == MANY, 5)  # it counts what it has passed on
            assert throttle.ended_links == 0
            follower.sendall(b"x")  # the way back
            assert wait_for(lambda: throttle.ended_links == 1, 5)
