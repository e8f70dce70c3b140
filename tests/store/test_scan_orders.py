"""Scans of large collections: nothing that is there all the time is missed, and what is remembered is bounded."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from zlib import crc32

import pytest

from tidelog import limits
from tidelog.store.scan_orders import ScanOrders

PLACE = 0, b"key"


def numbers(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


def scan(orders: ScanOrders, members: Iterable[bytes], count: int) -> list[bytes]:
    members = list(members)
    cursor, found = orders.take(PLACE, members, 0, count, 0)
    while cursor:
        cursor, taken = orders.take(PLACE, members, cursor, count, 0)
        found += taken
    return found


@pytest.mark.parametrize("count", [1, 7, 100, 999, 1000, 1001, 10**18])
def test_every_member_comes_once(count: int) -> None:
    orders = ScanOrders()
    found = scan(orders, numbers(1000), count)
    assert len(found) == 1000
    assert set(found) == numbers(1000)
    assert len(orders) == 0


def test_members_of_one_hash_stay_together() -> None:
    twins = [b"plumless", b"buckeroo"]
    assert crc32(twins[0]) == crc32(twins[1])
    orders = ScanOrders()
    members = numbers(600).union(twins)
    cursor = 0
    while True:
        cursor, taken = orders.take(PLACE, members, cursor, 1, 0)
        if twins[0] in taken or twins[1] in taken:
            assert sorted(taken) == sorted(twins)
            return
        assert len(taken) == 1
        assert cursor


@pytest.mark.parametrize("seed", range(20))
def test_what_is_there_throughout_is_found(seed: int) -> None:
    """While others come and go, orders are forgotten, and another scan of the same key begins and ends."""
    random = Random(seed)
    orders = ScanOrders()
    stays, comes_and_goes = numbers(800), {b"x%d" % number for number in range(2000)}
    members = stays | set(random.sample(sorted(comes_and_goes), 1000))
    found: set[bytes] = set()
    cursor = 0
    while True:
        cursor, taken = orders.take(PLACE, members, cursor, random.choice([1, 10, 50]), 0)
        found.update(member for member in taken if member in members)
        if not cursor:
            break
        members.symmetric_difference_update(random.sample(sorted(comes_and_goes), 100))
        if random.random() < 0.1:
            orders = ScanOrders()
        if random.random() < 0.2:
            orders.take(PLACE, members, 0, random.choice([10, 10_000]), 0)
    assert stays <= found


def test_cursors_that_nobody_gave() -> None:
    orders = ScanOrders()
    for cursor in (2**32, 2**64 - 1):
        assert orders.take(PLACE, numbers(600), cursor, 10, 0) == (0, [])
    cursor, taken = orders.take(PLACE, numbers(600), 2**31, 10, 0)
    assert len(taken) == 10
    assert cursor > 2**31


def test_what_is_remembered_is_bounded() -> None:
    orders = ScanOrders()
    for number in range(limits.SCAN_ORDERS_MAX + 10):
        orders.take((0, b"%d" % number), numbers(600), 0, 10, 0)
    assert len(orders) == limits.SCAN_ORDERS_MAX
    orders.take(PLACE, numbers(600), 0, 10, limits.SCAN_ORDER_MS_MAX + 1)
    assert len(orders) == 1


def test_large_orders_displace_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_ORDER_MEMBERS_MAX", 2000)
    orders = ScanOrders()
    for number in range(10):
        orders.take((0, b"%d" % number), numbers(600), 0, 10, 0)
    assert len(orders) == 3
    orders.take((1, b"large"), numbers(5000), 0, 10, 0)
    assert len(orders) == 1
