"""Reading one shard for some spans: frames that hold nothing of them are not read, and nothing is lost by that."""

from __future__ import annotations

import random

import pytest

from tidelog.feeds.router import Router
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.operation import VAL, Val
from tidelog.journal.record import BLOB
from tidelog.store.store import Store
from tidelog.store.type_table import operation_table
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


Found = tuple[int, bytes, bytes]
"""Ts, key and value."""


def found(store: Store, spans: list[Span], since: int = 0) -> tuple[list[Found], Router]:
    shards = [ShardId(shard) for shard in range(store.journal.meta.shard_count)]
    router = Router(store.journal, shards, Ts(since), spans)
    pairs: list[Found] = []
    while (parts := router.read()) is not None:
        for part in parts:
            for record in part.records:
                if record.opcode == VAL:
                    payload = router.whale_of(part, record).payload() if record.flags & BLOB else record.payload
                    pairs += [(part.ts, key, value) for key, value in TABLE.decode(VAL, payload, None).pairs]
    router.close()
    return [pair for pair in pairs if any(span.has(pair[1]) for span in spans)], router


def test_a_rare_key_takes_few_bytes() -> None:
    store = make_store(65_536)
    for number in range(30_000):
        put(store, [(b"key:%09d" % number, bytes(100))])
        if number in (9_000, 21_000):
            put(store, [(b"rare", b"%d" % number)])
    store.journal.make_sidecars(TABLE, 10_000)
    written = store.journal.writer.bytes_written
    pairs, router = found(store, [span_of_key(b"rare")])
    assert [pair[1:] for pair in pairs] == [(b"rare", b"9000"), (b"rare", b"21000")]
    assert router.frames_skipped > 40
    assert router.bytes_read < written * 0.1  # of which the sidecars are about half: small frames have large ones
    _, without = found(store, [span_of_prefix(b"key:")])
    assert without.frames_skipped == 0


def test_frames_without_a_summary_are_read() -> None:
    store = make_store(4096)
    for number in range(500):
        put(store, [(b"k%d" % number, bytes(100))])
    pairs, router = found(store, [span_of_key(b"k7")])
    assert [key for _, key, _ in pairs] == [b"k7"]
    assert router.frames_skipped == 0


@pytest.mark.parametrize("shard_count", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_by_skipping(seed: int, shard_count: int) -> None:
    """Transactions and records reach over frames, and summaries may be there for some of them only."""
    rng = random.Random(seed)
    skipped = 0
    for _ in range(25):
        store = make_store(4096, shard_count)
        written: list[Found] = []
        for number in range(80):
            values = [
                (b"rare" if rng.random() < 0.03 else b"k%d" % rng.randrange(40), b"%d-%d." % (number, index))
                for index in range(rng.randint(1, 6))
            ]
            values = [(key, value + bytes(rng.choice((0, 200, 200, 1500)))) for key, value in values]
            if number == 79 or rng.random() < 0.1:  # one that goes on for frames that hold nothing of it
                values = [values[0], (b"rare", b"%d-x" % number), *[(b"filler", bytes(1500))] * rng.randint(2, 9)]
            put(store, values)
            written += [(store.journal.writer.last_ts, key, value) for key, value in values]
        store.journal.make_sidecars(TABLE, rng.choice((5, 1000, 1000, 1000)))
        after = rng.choice((0, rng.choice(written)[0]))
        for spans in ([span_of_key(b"rare")], [span_of_key(b"k1"), span_of_key(b"none")], [span_of_prefix(b"")]):
            expected = [pair for pair in written if pair[0] > after and any(span.has(pair[1]) for span in spans)]
            pairs, router = found(store, spans, after)
            assert sorted(pairs) == sorted(expected)
            assert pairs == expected or shard_count > 1
            skipped += router.frames_skipped
    assert skipped > 50


def test_a_transaction_that_ends_where_a_skipped_frame_does() -> None:
    """So that only its mark is left for the next frame: whatever comes next, or does not, it is handed out."""
    skipped = 0
    for size in range(640, 760):
        store = make_store(4096)
        put(store, [(b"k", bytes(600))] * 5 + [(b"rare", b"")] + [(b"k", bytes(600))] * 7 + [(b"k", bytes(size))])
        rare = store.journal.writer.last_ts
        store.journal.make_sidecars(TABLE, 100)
        pairs, _ = found(store, [span_of_key(b"rare")])
        assert [ts for ts, _, _ in pairs] == [rare]
        put(store, [(b"rare", b"later")])
        pairs, router = found(store, [span_of_key(b"rare")])
        assert [ts for ts, _, _ in pairs] == [rare, store.journal.writer.last_ts]
        skipped += router.frames_skipped
    assert skipped
