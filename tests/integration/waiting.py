"""Waits for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """A server that cannot be reached, or is loading, may become what is waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except redis.ConnectionError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"it did not come in {seconds} s")
