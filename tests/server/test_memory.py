"""Memory against its limit."""

from __future__ import annotations

from tidelog.server.memory import Memory, give_back, resident_bytes, total_bytes


def test_the_limit() -> None:
    sizes = iter([100, 150, 201, 201, 190])
    memory = Memory(200, resident=lambda: next(sizes))
    assert not memory.sample(0)
    assert memory.sample(5_000_000)  # a second look after memory was given back
    assert not memory.sample(5_000_001)
    assert (memory.used_bytes, memory.peak_bytes) == (190, 201)


def test_no_limit() -> None:
    memory = Memory(0, resident=lambda: 10**15)
    assert not memory.sample(0)


def test_this_machine() -> None:
    assert 1_000_000 < resident_bytes() < total_bytes()
    give_back()
