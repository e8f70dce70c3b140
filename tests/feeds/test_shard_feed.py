"""Reading one shard for some spans: frames that hold nothing of them are not read, and nothing is lost by that."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.feeds.router import Router
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.operation import VAL, Val
from tidelog.store.store import Store, operation_table
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

TABLE = operation_table()


def make_store(frame_bytes: int, shard_count: int = 1) -> Store:
    settings = Settings(
        geometry=Geometry(frame_bytes=frame_bytes, frames_per_segment=8), shard_count=shard_count, ring_bytes_max=0
    )
    return Store.open(
        SimulatedDisk(), "/data", SimulatedClock(), settings, new_epoch_id=lambda: 1, random=random.Random(1)
    )


def put(store: Store, pairs: list[tuple[bytes, bytes]]) -> None:
    """A transaction with a record for each pair."""
    transaction = store.begin()
    for key, value in pairs:
        transaction.run([Val([(key, value)])])
    store.commit(transaction)
    store.journal.writer.write()


def found(store: Store, spans: list[Span], since: int = 0) -> tuple[list[tuple[bytes, bytes]], Router]:
    shards = [ShardId(shard) for shard in range(store.journal.meta.shard_count)]
    router = Router(store.journal, shards, Ts(since), spans)
    pairs: list[tuple[bytes, bytes]] = []
    while (moments := router.read()) is not None:
        for moment in moments:
            for part in moment.parts:
                for record in part.records:
                    if record.opcode == VAL:
                        pairs += TABLE.decode(VAL, router.payload_of(part, record), None).pairs
    router.close()
    return [pair for pair in pairs if any(span.has(pair[0]) for span in spans)], router


def test_a_rare_key_takes_few_bytes() -> None:
    store = make_store(65_536)
    for number in range(30_000):
        put(store, [(b"key:%09d" % number, bytes(100))])
        if number in (9_000, 21_000):
            put(store, [(b"rare", b"%d" % number)])
    store.journal.make_sidecars(TABLE, 10_000)
    written = store.journal.writer.bytes_written
    pairs, router = found(store, [span_of_key(b"rare")])
    assert pairs == [(b"rare", b"9000"), (b"rare", b"21000")]
    assert router.frames_skipped > 40
    assert router.bytes_read < written * 0.1  # of which the sidecars are about half: small frames have large ones
    _, without = found(store, [span_of_prefix(b"key:")])
    assert without.frames_skipped == 0


def test_frames_without_a_summary_are_read() -> None:
    store = make_store(4096)
    for number in range(500):
        put(store, [(b"k%d" % number, bytes(100))])
    pairs, router = found(store, [span_of_key(b"k7")])
    assert [key for key, _ in pairs] == [b"k7"]
    assert router.frames_skipped == 0


@pytest.mark.parametrize("shard_count", [1, 3])
@given(
    transactions=st.lists(
        st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"rare"]), st.integers(0, 3000)), min_size=1, max_size=6),
        min_size=1,
        max_size=30,
    ),
    summarised=st.integers(0, 100),
    since=st.integers(0, 30),
)
def test_nothing_is_lost_by_skipping(
    shard_count: int, transactions: list[list[tuple[bytes, int]]], summarised: int, since: int
) -> None:
    """Transactions and records reach over frames, and summaries may be there for some of them only."""
    store = make_store(4096, shard_count)
    written: list[tuple[int, bytes, bytes]] = []
    for number, drawn in enumerate(transactions):
        values = [(key, b"%d-%d." % (number, index) + bytes(size)) for index, (key, size) in enumerate(drawn)]
        put(store, values)
        written += [(store.journal.writer.last_ts, key, value) for key, value in values]
    store.journal.make_sidecars(TABLE, summarised)
    after = written[since][0] if since < len(written) else 0
    for spans in ([span_of_key(b"rare")], [span_of_key(b"b"), span_of_key(b"nothing")], [span_of_prefix(b"")]):
        expected = [(key, value) for ts, key, value in written if ts > after and any(span.has(key) for span in spans)]
        pairs, _ = found(store, spans, after)
        assert sorted(pairs) == sorted(expected)
        if shard_count == 1:
            assert pairs == expected
