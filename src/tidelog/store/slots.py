"""Slots: which of 16384 parts of the keyspace a key belongs to, as Redis Cluster has it.

A key with a non-empty `{tag}` belongs where the tag does, so that keys with one tag stay together.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Final

from tidelog.ids import SLOT_COUNT, ShardId

SLOT_MASK: Final = SLOT_COUNT - 1
BRACE: Final = ord("{")
"""As a number: looking for a byte is several times faster than looking for a string of one byte."""


def slot_of(key: bytes) -> int:
    """The slot of a key. Hot."""
    if BRACE in key:
        start = key.index(BRACE) + 1
        end = key.find(b"}", start)
        if end > start:
            key = key[start:end]
    return crc_hqx(key, 0) & SLOT_MASK


def shards_by_slot(ranges: Sequence[tuple[int, int]]) -> list[ShardId]:
    """For every slot, the shard that owns it."""
    owners: list[ShardId] = []
    for shard, (first, last) in enumerate(ranges):
        owners += [ShardId(shard)] * (last - first + 1)
    return owners
