"""Slots: which of 16384 parts of the keyspace a key belongs to, as Redis Cluster has it.

A key with a non-empty `{tag}` belongs where the tag does, so that keys with one tag stay together.

`slots_of` computes the slots of many keys at once: it takes keys of one length together, two bytes of each at a time.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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


_LOOKED_AT_TOGETHER: Final = 128


def next_filled(slots: list[Any], first: int, end: int) -> int:
    """The first slot from `first` on that has keys, by what all slots have; `end` if there is none before it.

    Unless there are many keys, most slots are empty: a visitor of all slots passes over them at ten times the speed.
    """
    for start in range(first, end, _LOOKED_AT_TOGETHER):
        if any(slots[start : start + _LOOKED_AT_TOGETHER]):
            for slot in range(start, min(start + _LOOKED_AT_TOGETHER, end)):
                if slots[slot] is not None:
                    return slot
    return end


Positions = npt.NDArray[np.int64]
Slots = npt.NDArray[np.uint16]

_TOGETHER_MIN: Final = 64
"""Fewer keys of one length are taken one by one."""


@cache
def _crcs() -> tuple[Slots, Slots]:
    """The CRC16 of every byte, and of every two bytes (as a big-endian number)."""
    one = (crc_hqx(bytes([byte]), 0) for byte in range(256))
    two = (crc_hqx(number.to_bytes(2), 0) for number in range(65536))
    return np.fromiter(one, np.uint16, 256), np.fromiter(two, np.uint16, 65536)


def slots_of(data: bytes, starts: Positions, ends: Positions) -> Slots:
    """The slots of keys that lie in `data`."""
    bytes_ = np.frombuffer(data, np.uint8)
    lengths = ends - starts
    slots = np.zeros(len(starts), np.uint16)
    alone = _holds_brace(bytes_, starts, ends)
    for length, count in zip(*(found.tolist() for found in np.unique(lengths, return_counts=True)), strict=True):
        same = lengths == length
        if count < _TOGETHER_MIN:
            alone |= same
        elif length:
            slots[same] = (
                _crc_of_rows(np.lib.stride_tricks.sliding_window_view(bytes_, length)[starts[same]]) & SLOT_MASK
            )
    for index in np.flatnonzero(alone).tolist():
        slots[index] = slot_of(data[starts[index] : ends[index]])
    return slots


def _holds_brace(bytes_: npt.NDArray[np.uint8], starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    braces = np.append(np.flatnonzero(bytes_ == BRACE), len(bytes_))
    return braces[np.searchsorted(braces, starts)] < ends


def _crc_of_rows(rows: npt.NDArray[np.uint8]) -> Slots:
    of_one, of_two = _crcs()
    count, length = rows.shape
    crc = np.zeros(count, np.uint16)
    for pair in np.ascontiguousarray(rows[:, : length & ~1]).view(">u2").T:
        crc = of_two[crc ^ pair]
    if length % 2:
        crc = crc << 8 ^ of_one[crc >> 8 ^ rows[:, -1]]
    return crc


def shards_by_slot(ranges: Sequence[tuple[int, int]]) -> list[ShardId]:
    """For every slot, the shard that owns it."""
    owners: list[ShardId] = []
    for shard, (first, last) in enumerate(ranges):
        owners += [ShardId(shard)] * (last - first + 1)
    return owners
