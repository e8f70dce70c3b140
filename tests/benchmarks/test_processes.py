"""What a process costs: its own pages and those that its children copied, and its processor time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.processes import MemoryWatch, children, memory_bytes, processor_s

MIB = 1024 * 1024
FORKS = f"""
import os, sys, time
pages = bytearray(64 * {MIB})
for at in range(0, len(pages), 4096):
    pages[at] = 1
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("shared", flush=True)
sys.stdin.readline()
for at in range(0, len(pages) // 2, 4096):
    pages[at] = 2
print("copied", flush=True)
sys.stdin.readline()
os.kill(0, 9)
"""
"""Has 64 MiB that its child shares, and then changes half of them."""


@pytest.fixture
def forking() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield process
    process.communicate("\n\n", timeout=10)


def test_pages_that_a_child_shares_count_once(forking: subprocess.Popen[str]) -> None:
    assert forking.stdin is not None
    assert forking.stdout is not None
    forking.stdout.readline()
    assert len(children(forking.pid)) == 1
    with MemoryWatch(forking.pid) as watch:
        shared = watch.take_peak()
        assert shared < 100 * MIB
        forking.stdin.write("\n")
        forking.stdin.flush()
        forking.stdout.readline()
        copied = watch.take_peak()
    assert 24 * MIB < copied - shared < 40 * MIB
    assert memory_bytes(forking.pid) < 140 * MIB


def test_processor_time_grows_with_work() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            before_s = processor_s(process.pid)
            deadline = time.monotonic() + 10
            while processor_s(process.pid) < before_s + 0.1:
                assert time.monotonic() < deadline
        finally:
            process.kill()
