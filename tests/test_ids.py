"""Slots of shards."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.ids import SLOT_COUNT, slot_ranges


@pytest.mark.parametrize("shard_count", [1, 2, 3, 4, 7, 255, limits.SHARDS_MAX])
def test_every_slot_belongs_to_exactly_one_shard(shard_count: int) -> None:
    ranges = slot_ranges(shard_count)
    assert len(ranges) == shard_count
    assert [slot for first, last in ranges for slot in range(first, last + 1)] == list(range(SLOT_COUNT))


@pytest.mark.parametrize("shard_count", [1, 3, 100, limits.SHARDS_MAX])
def test_shards_differ_by_one_slot_at_most(shard_count: int) -> None:
    sizes = {last - first + 1 for first, last in slot_ranges(shard_count)}
    assert max(sizes) - min(sizes) <= 1


def test_slots_are_those_of_redis_cluster() -> None:
    assert SLOT_COUNT == 16384
    assert slot_ranges(1) == [(0, 16383)]
