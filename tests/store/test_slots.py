"""Slots: the published examples of Redis Cluster, and who owns them."""

from __future__ import annotations

from binascii import crc_hqx

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.ids import SLOT_COUNT, slot_ranges
from tidelog.store.slots import next_filled, shards_by_slot, slot_of, slots_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"{user1000}.following", b"user1000"),
        (b"foo{{bar}}zap", b"{bar"),
        (b"foo{bar}{zap}", b"bar"),
        (b"a{b", b"a{b"),
        (b"{}x", b"{}x"),
        (b"x{}{y}", b"x{}{y}"),
        (b"}{a}", b"a"),
        (b"{a", b"{a"),
        (b"{", b"{"),
    ],
)
def test_tags(key: bytes, hashed: bytes) -> None:
    assert slot_of(key) == crc_hqx(hashed, 0) % SLOT_COUNT


def test_known_slots() -> None:
    assert slot_of(b"123456789") == 0x31C3
    assert slot_of(b"foo") == 12182
    assert slot_of(b"") == 0


@given(st.sets(st.integers(0, 999), max_size=5), st.integers(0, 1000), st.integers(0, 1000))
def test_the_next_slot_with_keys(filled: set[int], first: int, end: int) -> None:
    slots = [{b"key": b"value"} if slot in filled else None for slot in range(1000)]
    expected = min((slot for slot in filled if first <= slot < end), default=end)
    assert next_filled(slots, first, end) == expected


@given(st.integers(1, 256))
def test_every_slot_has_one_owner(shard_count: int) -> None:
    ranges = slot_ranges(shard_count)
    owners = shards_by_slot(ranges)
    assert len(owners) == SLOT_COUNT
    assert owners == sorted(owners)
    assert set(owners) == set(range(shard_count))
    for shard, (first, last) in enumerate(ranges):
        assert owners[first] == owners[last] == shard


@given(
    st.lists(st.binary(max_size=9) | st.sampled_from([b"{a}1", b"{}x", b"x{a}", b"{a", b"k" * 16]), min_size=1),
    st.integers(1, 70),
)
def test_many_at_once_are_those_of_each(keys: list[bytes], times: int) -> None:
    keys = keys * times
    ends = np.cumsum([len(key) for key in keys])
    starts = ends - np.array([len(key) for key in keys])
    assert slots_of(b"".join(keys), starts, ends).tolist() == [slot_of(key) for key in keys]
