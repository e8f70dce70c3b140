"""The records of an operation on a store with several shards: one per shard that it names keys of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.ids import ShardId
from tidelog.journal.operation import DEL, DELRANGE, FLUSHDB, VAL, OperationKind, encode_items, encode_pairs
from tidelog.store.slots import slot_of
from tidelog.types.hold import HOLD_OPCODES
from tidelog.types.library import LIBRARY_OPCODES

Encoded = tuple[ShardId, int, bytes]
"""Shard, opcode and payload of a record."""

FIRST_SHARD: Final = ShardId(0)
"""The only one of a store that has one; and that of records that name no key."""


def encode_by_shard(kind: OperationKind, operation: Any, owners: list[ShardId], shard_count: int) -> list[Encoded]:
    """`owners`: for every slot, its shard."""
    opcode = kind.opcode
    if opcode == VAL:
        return [
            (shard, VAL, encode_pairs(pairs))
            for shard, pairs in _by_shard(owners, operation.pairs, lambda pair: pair[0])
        ]
    if opcode == DEL:
        return [(shard, DEL, encode_items(keys)) for shard, keys in _by_shard(owners, operation.keys, lambda key: key)]
    payload = kind.encode(operation)
    if opcode in (FLUSHDB, DELRANGE):
        return [(ShardId(shard), opcode, payload) for shard in range(shard_count)]
    if opcode in LIBRARY_OPCODES or opcode in HOLD_OPCODES:
        return [(FIRST_SHARD, opcode, payload)]
    return [(owners[slot_of(operation.key)], opcode, payload)]


def _by_shard(owners: list[ShardId], items: Any, key_of: Callable[[Any], bytes]) -> list[tuple[ShardId, list[Any]]]:
    found: dict[ShardId, list[Any]] = {}
    for item in items:
        found.setdefault(owners[slot_of(key_of(item))], []).append(item)
    return list(found.items())
