"""A record that is to be appended, as the writer takes it, and what the writer does not take."""

from __future__ import annotations

from typing import NamedTuple

from tidelog import limits
from tidelog.errors import InternalError, LimitExceeded
from tidelog.ids import U64_MAX, ShardId
from tidelog.journal.record import CONTROL
from tidelog.journal.staging import StagedBlob


class NewRecord(NamedTuple):
    """One record of a transaction that is to be appended."""

    shard: ShardId
    opcode: int
    payload: bytes
    expire_ms: int | None = None
    database: int = 0
    staged: StagedBlob | None = None
    """The rest of the payload, which lies in the blob file already."""


def check_record(new: NewRecord, shard_count: int) -> None:
    """Raise if it cannot be one of an operation."""
    shard, opcode, payload, expire_ms, database, _ = new  # at once: a field of a tuple costs more
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise LimitExceeded(f"a payload of {len(payload)} bytes: at most {limits.PAYLOAD_BYTES_MAX}")
    if (
        not 0 < opcode < CONTROL
        or not 0 <= shard < shard_count
        or not (expire_ms is None or 0 <= expire_ms <= U64_MAX)
        or database < 0
    ):
        raise InternalError(f"not a record of an operation: {new._replace(payload=b'', staged=None)}")


def check_sizes(transaction_bytes: int, batch_bytes: int) -> None:
    """Raise if a transaction is too large, or has no room in a batch of that size."""
    if transaction_bytes > limits.TRANSACTION_BYTES_MAX:
        raise LimitExceeded(f"a transaction of {transaction_bytes} bytes: at most {limits.TRANSACTION_BYTES_MAX}")
    if batch_bytes + transaction_bytes > limits.BATCH_BYTES_MAX:
        raise LimitExceeded(
            f"a batch of {batch_bytes + transaction_bytes} bytes: at most {limits.BATCH_BYTES_MAX}, write it first"
        )
