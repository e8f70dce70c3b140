"""Groups: pending entries in order of delivery, and those that are due some time, expire, or lose their entry."""

from __future__ import annotations

from tests.streams.plain import plain_group
from tidelog import limits
from tidelog.streams.group import Consumer, Group, Pending
from tidelog.streams.progress import room_for_pending


def pending(number: int, consumer: bytes = b"", retry_ms: int = 10, expire_ms: int = 0) -> Pending:
    return Pending(number, consumer, 100, 1, retry_ms, expire_ms)


def test_when_something_is_due() -> None:
    assert pending(1, retry_ms=0).retry_ms == 0
    assert pending(1, retry_ms=10).retry_ms == 110
    assert pending(1, retry_ms=10, expire_ms=105).retry_ms == 110
    assert not pending(1).has_expired(10**15)
    assert not pending(1, expire_ms=105).has_expired(104)
    assert pending(1, expire_ms=105).has_expired(105)


def test_what_has_expired_whatever_stands_before_it() -> None:
    group = Group()
    for offset, expire_ms in ((1, 0), (2, 900), (3, 300), (4, 300), (5, 200), (6, 300)):
        group.add(offset, pending(offset, retry_ms=offset % 2, expire_ms=expire_ms))
    assert group.expired(199) == []
    assert not group.has_expired(199)
    assert group.has_expired(200)
    assert group.expired(299) == [5]
    group.add(4, pending(4, expire_ms=300))
    group.add(6, pending(6, expire_ms=1000))
    assert group.expired(300) == [5, 3, 4]
    group.acknowledge([5, 3])
    assert group.expired(10**6) == [4, 2, 6]
    copy = group.copy()
    group.remove(4)
    assert (group.has_expired(899), copy.has_expired(899)) == (False, True)
    assert group.has_expired(900)
    assert plain_group(copy)["pending"] != plain_group(group)["pending"]


def test_expiries_of_what_was_acknowledged_do_not_pile_up() -> None:
    group = Group()
    group.add(1, pending(1, expire_ms=10**9))
    for offset in range(2, 5 * limits.PENDING_STALE_MAX):
        group.add(offset, pending(offset, expire_ms=10**6 + offset))
        group.acknowledge([offset])
    assert group.expiries is not None
    assert len(group.expiries) <= limits.PENDING_STALE_MAX + 3
    assert group.expired(10**9) == [1]


def test_a_reader_that_waits_passes_over_what_was_acknowledged_once() -> None:
    group = Group()
    for offset in range(1, 101):
        group.deliver(b"", (0, 0, 1000 + offset), (offset, offset, offset), [offset], [offset], keeps=True)
    group.acknowledge(range(1, 100))
    assert group.expiries is not None
    assert group.expiries.first_after_ms(500, group.pending) == 1100
    assert len(group.expiries) == 1
    assert group.expiries.first_after_ms(1100, group.pending) == 0


def test_entries_that_are_gone() -> None:
    group = Group()
    group.consumers[b"c"] = Consumer(1)
    for offset in range(1, 9):
        group.add(offset, pending(offset, b"c" if offset % 2 else b"", expire_ms=500))
    group.lose_entries([2, 3, 99])
    assert list(group.pending) == [1, 3, 4, 5, 6, 7, 8]
    group.lose_entries(range(1, 100))
    assert list(group.pending) == [1, 3, 5, 7]
    assert room_for_pending(group) == limits.PENDING_MAX_DEFAULT
    copy = group.copy()
    group.acknowledge([3])
    group.remove(5)
    group.add(1, pending(1, b"c"))
    assert group.lost == {7}
    assert room_for_pending(group) == limits.PENDING_MAX_DEFAULT - 1
    assert copy.lost == {1, 3, 5, 7}


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
