"""Slots: the published examples of Redis Cluster, and who owns them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.redis_oracle import Socket, decode
from tests.conformance.redis_oracle import redis_peer as redis_peer
from tests.conformance.redis_oracle import redis_port as redis_port
from tidelog.ids import SLOT_COUNT, slot_ranges
from tidelog.store.slots import shards_by_slot, slot_of


@pytest.mark.parametrize(
    ("key", "same"),
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
def test_tags(key: bytes, same: bytes) -> None:
    if b"{" in same:
        assert 0 <= slot_of(key) < SLOT_COUNT
    assert slot_of(key) == slot_of(same) or b"{" in same


def test_known_slots() -> None:
    assert slot_of(b"123456789") == 0x31C3
    assert slot_of(b"foo") == 12182
    assert slot_of(b"") == 0


def test_a_real_redis_has_the_same(redis_peer: Socket) -> None:
    keys = [b"", b"foo", b"{}", b"{}x", b"x{}{y}", b"foo{{bar}}zap", b"foo{bar}{zap}", b"a{b", b"{a", b"}{", b"}{a}",
            b"\x00", b"{\xff}", b"{a}{b}", bytes(range(256)), b"{" * 3 + b"}" * 3]  # fmt: skip
    reply = decode(redis_peer.call([b"CLUSTER", b"KEYSLOT", b"foo"]))
    if isinstance(reply, Exception):
        pytest.skip("this Redis has no cluster support switched on")
    for key in keys:
        assert slot_of(key) == decode(redis_peer.call([b"CLUSTER", b"KEYSLOT", key]))


@given(st.integers(1, 256))
def test_every_slot_has_one_owner(shard_count: int) -> None:
    ranges = slot_ranges(shard_count)
    owners = shards_by_slot(ranges)
    assert len(owners) == SLOT_COUNT
    assert owners == sorted(owners)
    assert set(owners) == set(range(shard_count))
    for shard, (first, last) in enumerate(ranges):
        assert owners[first] == owners[last] == shard
