"""The records that a group writes for each read and each acknowledgement, made in one go.

They are byte for byte what the table in `effects` makes of `Deliver` and `Ack`; a test compares them.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.journal.flit import encode as flit
from tidelog.streams.payload import runs
from tidelog.streams.rows import SEQ_BITS, SEQ_MAX

DELIVER: Final = 0x59
ACK: Final = 0x5B
_DELIVERY: Final = struct.Struct("<6Qq?").pack
"""Now, retry after, expire, last offset, last id (`seq` first), entries read, whether it keeps them."""


def encode_delivery(
    key: bytes,
    group: bytes,
    consumer: bytes,
    times_ms: tuple[int, int, int],
    offsets: list[int],
    last_id: int,
    entries_read: int,
    ids: bytes,
) -> bytes:
    """`times_ms`: now, after how long it is due again, when it expires; 0: never. `ids`: of what is pending from now
    on, as `id_runs` makes them; empty: nothing is."""
    now_ms, retry_after_ms, expire_ms = times_ms
    seq, ms = last_id & SEQ_MAX, last_id >> SEQ_BITS
    head = _DELIVERY(now_ms, retry_after_ms, expire_ms, offsets[-1], seq, ms, entries_read, bool(ids))
    return b"%b%b%b%b%b%b%b%b%b" % (
        flit(len(key)), key, flit(len(group)), group, flit(len(consumer)), consumer, head, _runs(offsets), ids
    )  # fmt: skip


def encode_ack(key: bytes, group: bytes, offsets: list[int]) -> bytes:
    """Offsets in order, none of them twice."""
    return b"%b%b%b%b%b" % (flit(len(key)), key, flit(len(group)), group, _runs(offsets))


def _runs(offsets: list[int]) -> bytes:
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return b"\x03%b%b" % (flit(first), flit(count))
    return runs(offsets)
