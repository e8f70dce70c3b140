"""Groups: pending entries in order of delivery, and those of them that are due some time."""

from __future__ import annotations

from tests.streams.plain import plain_group
from tidelog.streams.group import Consumer, Group, Pending


def pending(number: int, consumer: bytes = b"", retry_ms: int = 10, expire_ms: int = 0) -> Pending:
    return Pending(number, consumer, 100, 1, retry_ms, expire_ms)


def test_when_something_is_due() -> None:
    assert pending(1, retry_ms=0).due_ms == 0
    assert pending(1, retry_ms=10).due_ms == 110
    assert pending(1, retry_ms=0, expire_ms=300).due_ms == 300
    assert pending(1, retry_ms=10, expire_ms=105).due_ms == 105
    assert pending(1, retry_ms=10, expire_ms=300).due_ms == 110


def test_a_redelivered_entry_goes_to_the_end() -> None:
    group = Group()
    for offset in (1, 2, 3):
        group.add(offset, pending(offset << 64))
    group.add(4, pending(4 << 64, retry_ms=0))
    group.add(1, pending(1 << 64))
    assert list(group.pending) == [2, 3, 4, 1]
    assert list(group.due) == [2, 3, 1]
    assert group.ack_offset == 1
    assert group.remove(2) is not None
    assert group.remove(2) is None
    assert (group.offset_of(3 << 64), group.offset_of(2 << 64)) == (3, None)
    group.remove(1)
    assert group.ack_offset == 3
    assert list(group.due) == [3]


def test_consumers_know_how_much_they_have() -> None:
    group = Group(last_offset=9)
    group.consumers[b"a"], group.consumers[b"b"] = Consumer(1), Consumer(2)
    for offset in (1, 2, 3):
        group.add(offset, pending(offset, b"a", 0))
    group.add(2, pending(2, b"b", 0))
    assert (group.consumers[b"a"].pending_count, group.consumers[b"b"].pending_count) == (2, 1)
    copy = group.copy()
    assert plain_group(copy) == plain_group(group)
    assert copy.remove_consumer(b"a") == 2
    assert list(copy.pending) == [2]
    assert list(group.pending) == [1, 3, 2]
    assert copy.ack_offset == 2
    copy.remove(2)
    assert copy.ack_offset == 10
