"""Records about the journal itself: they have no lsn, belong to no transaction, and are never split.

    0xF0 mark    | cycle 8 | last_ts 8 | synced_cycle 8 | end_lsn 8 per shard | crc32c 4 |
    0xF1 select  | database flit |
    0xF2 epoch   | id 8 | lsn 8 per shard | last_ts 8 |                  as earlier versions wrote it; only read
    0xF3 epoch   | id 8 | lsn 8 per shard | last_ts 8 | first_ts 8 |

A **mark** ends every batch. It names the end lsn (exclusive) of *all* shards after its cycle, and so ties the shards
together: a cycle counts only if its whole vector lies under valid marks. Its crc covers everything from the later of
the previous mark's end and the frame's start up to the crc itself.

A **select** names the database when it changes, and comes first in a frame when it is not 0 (second, after a
continuation).

An **epoch** begins with every start that was not clean and with every promotion: a reader that saw more than `last_ts`
of the epoch before it has seen something that is no longer history. One that saw no more than that, but was promised
that nothing more comes up to some ts, may rely on it only if that lies below `first_ts`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from tidelog.errors import FormatError
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import flit, record

MARK: Final = 0xF0
SELECT: Final = 0xF1
EARLIER_EPOCH: Final = 0xF2
"""Without its first ts."""
EPOCH: Final = 0xF3
EPOCHS: Final = (EARLIER_EPOCH, EPOCH)

NAMES: Final = {MARK: "mark", SELECT: "select", EARLIER_EPOCH: "earlier-epoch", EPOCH: "epoch"}

MARK_CRC_BYTES: Final = 4
_U64S: Final = 8


class Mark(NamedTuple):
    """The end of a batch."""

    cycle: Cycle
    last_ts: Ts
    """Of the newest transaction up to this cycle, on any shard."""
    synced_cycle: Cycle
    """The newest cycle that was known to be fsynced on all shards when this was written."""
    ends: tuple[Lsn, ...]
    """The end lsn (exclusive) of every shard after this cycle."""
    crc: int


class Epoch(NamedTuple):
    """A stretch of history that one process wrote."""

    id: int
    lsns: tuple[Lsn, ...]
    """Of the first record of the epoch, per shard."""
    last_ts: Ts
    """Of the last transaction before it."""
    first_ts: Ts = Ts(0)
    """The first ts that it may give out; 0: not known, as an earlier version has written it."""


@cache
def _mark_struct(shard_count: int) -> struct.Struct:
    return struct.Struct(f"<{3 + shard_count}Q")


@cache
def mark_prefix(shard_count: int) -> bytes:
    """What every mark begins with: opcode, flags and length do not vary."""
    return record.encode_header(MARK, 0, _mark_struct(shard_count).size + MARK_CRC_BYTES)


def mark_bytes(shard_count: int) -> int:
    """The size of a whole mark record."""
    return len(mark_prefix(shard_count)) + _mark_struct(shard_count).size + MARK_CRC_BYTES


def encode_mark_without_crc(cycle: Cycle, last_ts: Ts, synced_cycle: Cycle, ends: Sequence[Lsn]) -> bytes:
    """A mark record up to its crc, which covers these bytes too."""
    return mark_prefix(len(ends)) + _mark_struct(len(ends)).pack(cycle, last_ts, synced_cycle, *ends)


def decode_mark(payload: bytes) -> Mark:
    count, rest = divmod(len(payload) - 3 * _U64S - MARK_CRC_BYTES, _U64S)
    if rest or count < 1:
        raise FormatError(f"a mark has {len(payload)} bytes")
    cycle, last_ts, synced, *ends = _mark_struct(count).unpack_from(payload)
    return Mark(
        Cycle(cycle), Ts(last_ts), Cycle(synced), tuple(ends), int.from_bytes(payload[-MARK_CRC_BYTES:], "little")
    )


def encode_select(database: int) -> bytes:
    return record.encode(SELECT, 0, flit.encode(database))


def decode_select(payload: bytes) -> int:
    try:
        database, end = flit.decode(payload, 0)
    except IndexError:
        raise FormatError("a select record is cut short") from None
    if end != len(payload):
        raise FormatError(f"a select record has {len(payload)} bytes")
    return database


def encode_epoch(epoch: Epoch) -> bytes:
    payload = struct.pack(f"<{3 + len(epoch.lsns)}Q", epoch.id, *epoch.lsns, epoch.last_ts, epoch.first_ts)
    return record.encode(EPOCH, 0, payload)


def decode_epoch(opcode: int, payload: bytes) -> Epoch:
    """Of one of the two kinds."""
    has_first_ts = opcode == EPOCH
    count, rest = divmod(len(payload), _U64S)
    if rest or count < 3 + has_first_ts:
        raise FormatError(f"an epoch has {len(payload)} bytes")
    numbers = struct.unpack(f"<{count}Q", payload)
    first_ts = Ts(numbers[-1]) if has_first_ts else Ts(0)
    epoch_id, *lsns, last_ts = numbers[:-1] if has_first_ts else numbers
    return Epoch(epoch_id, tuple(lsns), Ts(last_ts), first_ts)
