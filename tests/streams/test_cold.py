"""Nodes that were opened again stay open within a bound of bytes."""

from __future__ import annotations

import pyarrow as pa

from tidelog.streams.cold import OpenedNodes
from tidelog.streams.node import TAGGED, SealedNode
from tidelog.streams.rows import Rows

BATCH = SealedNode.of_rows(Rows([1], [2], [3], [TAGGED], [b"tag"], [bytes(1000)])).read()


def test_the_least_recently_used_is_closed() -> None:
    opened, reads = OpenedNodes(2 * BATCH.nbytes), []

    def read(data: bytes) -> pa.RecordBatch:
        reads.append(data)
        return BATCH

    for name in (b"a", b"b", b"a", b"c", b"a", b"b"):
        opened.open(name, name, read)
    assert reads == [b"a", b"b", b"c", b"b"]
    assert opened.bytes_held == 2 * BATCH.nbytes
    opened.clear()
    assert opened.bytes_held == 0


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    opened = OpenedNodes(BATCH.nbytes - 1)
    assert opened.open("node", b"", lambda _: BATCH).batch is BATCH
    assert opened.bytes_held == 0
