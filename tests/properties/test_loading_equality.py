"""Loading runs of strings is equal to applying every record by itself, on random journals."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.made import Machine
from tidelog import limits
from tidelog.journal import record_runs
from tidelog.journal.operation import Del, FlushDb, Val
from tidelog.store.buckets import Buckets
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.types.hash import HSet, hset
from tidelog.types.hash_value import Hash
from tidelog.types.key import Expire

KEYS = st.sampled_from([b"a", b"b", b"{a}1", b"{a}2", b"{}x", b"a-key-of-16-bytes", b"k" * 200])
VALUES = st.binary(max_size=8) | st.sampled_from([b"v" * 127, b"v" * 128, b"{", b"v" * 20_000])
STRINGS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4).map(Val)
OPERATIONS = st.one_of(
    STRINGS,
    STRINGS,
    STRINGS,
    st.builds(lambda pairs, when: Val(pairs, when), st.lists(st.tuples(KEYS, VALUES), min_size=1), st.just(10**14)),
    KEYS.map(lambda key: Del([key])),
    KEYS.map(lambda key: Expire(key, 10**14)),
    KEYS.map(lambda key: hset(key, [b"field", b"value"])[0]),
    st.just(FlushDb()),
)
TRANSACTIONS = st.tuples(st.integers(0, 1), st.lists(OPERATIONS, min_size=1, max_size=3), st.booleans())


def _plain(value: Any) -> Any:
    return value.fields() if isinstance(value, Hash) else value


def contents(store: Store) -> list[Any]:
    return [
        (
            {
                slot: {key: _plain(bucket.get(key)) for key in bucket}
                for slot, bucket in enumerate(each.slots)
                if bucket
            },
            each.size,
            each.expiries,
            sorted(each.expiring.waiting()),
        )
        for each in store.databases
    ]


@given(
    st.lists(TRANSACTIONS, max_size=40),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from([(1, 1), (2, 3), (16, 1000)]),
    st.sampled_from([1, 10**9]),
)
def test_runs_load_what_their_records_say(
    transactions: list[tuple[int, list[Any], bool]],
    has_snapshot: bool,
    shard_count: int,
    least: tuple[int, int],
    gathered_bytes: int,
) -> None:
    machine = Machine(shard_count)
    for index, (database, operations, ends_batch) in enumerate(transactions):
        transaction = machine.store.begin(database)
        for operation in operations:
            if type(operation) is HSet:  # a collection replaces a string only after the string was deleted
                transaction.run([Del([operation.key])])
            transaction.run([operation])
        machine.store.commit(transaction)
        if ends_batch:
            machine.store.journal.writer.write()
        if has_snapshot and index == len(transactions) // 2:
            machine.store.save()
    with mock.patch.object(record_runs, "RUN_RECORDS_MIN", least[0]):
        with mock.patch.multiple(limits, LOADED_AT_ONCE_MIN=least[1], LOADED_AT_ONCE_BYTES=gathered_bytes):
            machine.restart()
        by_runs = contents(machine.store)
    with mock.patch.object(record_runs, "RUN_RECORDS_MIN", 10**9):
        machine.restart()
    assert by_runs == contents(machine.store)


@pytest.mark.parametrize("is_tagged", [False, True])
def test_a_load_counts_keys_and_splits_large_slots(monkeypatch: pytest.MonkeyPatch, is_tagged: bool) -> None:
    monkeypatch.setattr(limits, "LOADED_AT_ONCE_MIN", 1)
    draw = random.Random(1)
    pairs = [
        (b"{tag}%d" % draw.randrange(3000) if is_tagged else b"%d" % draw.randrange(3000), b"v") for _ in "x" * 9000
    ]
    one_by_one, at_once = Database(0), Database(0)
    data, keys, values, ends = b"", [], [], []
    for key, value in pairs:
        one_by_one.put(key, value)
        keys.append(len(data))
        values.append(keys[-1] + len(key))
        ends.append(values[-1] + len(value))
        data += key + value
    at_once.load(data, np.array(keys), np.array(values), np.array(ends))
    assert at_once.size == one_by_one.size
    assert sorted(at_once.all_keys()) == sorted(one_by_one.all_keys())
    kinds = [[type(bucket) for bucket in each.slots] for each in (one_by_one, at_once)]
    assert kinds[0] == kinds[1]
    assert (Buckets in kinds[1]) == is_tagged
