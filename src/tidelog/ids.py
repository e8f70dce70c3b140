"""The coordinates of Tidelog, as types.

Three numbers place a thing, and mixing them up is the mistake this module prevents. They are distinct for the type
checker and plain integers at run time.

    offset   place of an entry in one stream: 1 + how many came before; dense, stable after eviction
    lsn      place of a record in one shard's journal: the first is 0, +1 a record
    ts       time of a transaction in µs on the hybrid clock: unique and increasing over all shards

`Cycle` counts the writes over all dirty shards (one a turn of the loop). `ShardId` is the index of a shard.
"""

from __future__ import annotations

from typing import Final, NewType

Offset = NewType("Offset", int)
Lsn = NewType("Lsn", int)
Ts = NewType("Ts", int)
Cycle = NewType("Cycle", int)
ShardId = NewType("ShardId", int)

SLOT_COUNT: Final = 16384

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1


def slot_ranges(shard_count: int) -> list[tuple[int, int]]:
    """Split the slots into `shard_count` contiguous ranges `[first, last]`, as even as they can be."""
    bounds = [SLOT_COUNT * i // shard_count for i in range(shard_count + 1)]
    return [(bounds[i], bounds[i + 1] - 1) for i in range(shard_count)]
