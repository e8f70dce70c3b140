"""The clock of this machine against the standard library's."""

from __future__ import annotations

import time

from tidelog.system.clock import SystemClock


def test_wall_time_is_now() -> None:
    before = time.time_ns() // 1000
    wall_us = SystemClock().wall_us()
    after = time.time_ns() // 1000

    assert before - 1_000_000 <= wall_us <= after + 1_000_000


def test_monotonic_time_runs() -> None:
    clock = SystemClock()
    before = clock.monotonic_us()

    time.sleep(0.002)

    assert 2_000 <= clock.monotonic_us() - before < 60_000_000
