"""One database: against a plain dict, split slots, expiries, and who is told of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.ids import SLOT_COUNT
from tidelog.store.buckets import Buckets
from tidelog.store.keyspace import Database
from tidelog.store.slots import slot_of

KEY = st.sampled_from([*(b"{t}%d" % number for number in range(12)), b"a", b"b", b""])
WHEN = st.one_of(st.none(), st.integers(1, 5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEY, st.integers(), WHEN),
        st.tuples(st.just("remove"), KEY, st.just(0), st.none()),
        st.tuples(st.just("set_expiry"), KEY, st.just(0), WHEN),
        st.tuples(st.just("clear"), KEY, st.just(0), st.none()),
        st.tuples(st.just("clear_half"), KEY, st.just(0), st.none()),
    ),
    max_size=60,
)


def run(database: Database, model: dict[bytes, tuple[Any, int | None]], step: tuple[Any, ...]) -> None:
    name, key, value, when = step
    if name == "put":
        database.put(key, value, when)
        model[key] = value, when
    elif name == "remove":
        database.remove(key)
        model.pop(key, None)
    elif name == "set_expiry":
        database.set_expiry(key, when)
        if key in model:
            model[key] = model[key][0], when
    elif name == "clear":
        database.clear()
        model.clear()
    else:
        half = (0, slot_of(b"a"))
        database.clear(half)
        for gone in [key for key in model if slot_of(key) <= half[1]]:
            del model[gone]


@given(STEPS, st.sampled_from([1, 2, 1000]))
def test_it_is_a_dict(steps: list[tuple[Any, ...]], split: int) -> None:
    database, model = Database(0), dict[bytes, tuple[Any, int | None]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SLOT_KEYS_SPLIT", split)
        for step in steps:
            run(database, model, step)
            assert len(database) == len(model)
    assert sorted(database.all_keys()) == sorted(model)
    assert database.expiries == {key: when for key, (_, when) in model.items() if when is not None}
    for key in [*model, b"none"]:
        assert database.find(key) == model.get(key, (None,))[0]
    visited = [key for slot in range(SLOT_COUNT) for bucket in database.buckets(slot) for key in bucket]
    assert sorted(visited) == sorted(model)
    assert {(when, key) for key, when in database.expiries.items()} <= database.expiring.waiting()


def test_a_large_slot_is_split() -> None:
    database = Database(0)
    keys = [b"{tag}%d" % number for number in range(10 * limits.SLOT_KEYS_SPLIT)]
    for key in keys:
        database.put(key, key)
    buckets = database.buckets(slot_of(b"tag"))
    assert len(buckets) >= 10
    assert len(buckets) & (len(buckets) - 1) == 0
    assert max(map(len, buckets)) <= limits.SLOT_KEYS_SPLIT
    assert sorted(database.all_keys()) == sorted(keys)
    for key in keys:
        database.remove(key)
    assert database.buckets(slot_of(b"tag")) == []
    assert len(database) == 0


def test_splitting_moves_a_key_only_further_on() -> None:
    """What a cursor of SCAN relies on."""
    buckets = Buckets({b"%d" % number: number for number in range(limits.SLOT_KEYS_SPLIT)})
    places = {key: at for at, bucket in enumerate(buckets.dicts) for key in bucket}
    for number in range(limits.SLOT_KEYS_SPLIT, 4 * limits.SLOT_KEYS_SPLIT):
        buckets[b"%d" % number] = number
    for at, bucket in enumerate(buckets.dicts):
        for key in bucket:
            assert at >= places.get(key, 0)
            assert key in buckets
            assert buckets.get(key) == int(key)
    assert len(buckets) == 4 * limits.SLOT_KEYS_SPLIT


def test_stale_expiries_are_bounded() -> None:
    database = Database(0)
    database.put(b"k", b"v")
    for when in range(3 * limits.EXPIRY_STALE_MAX):
        database.set_expiry(b"k", when)
        assert database.expiring.count <= limits.EXPIRY_STALE_MAX + 3
    assert database.expiries == {b"k": when}
    assert (when, b"k") in database.expiring.waiting()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda database: database.put(b"k", b"w"), [b"k"]),
        (lambda database: database.put(b"new", b"w"), [b"new"]),
        (lambda database: database.change(b"k"), [b"k"]),
        (lambda database: database.remove(b"k"), [b"k"]),
        (lambda database: database.remove(b"none"), []),
        (lambda database: database.set_expiry(b"k", 5), [b"k"]),
        (lambda database: database.set_expiry(b"none", 5), []),
        (lambda database: database.clear(), [None]),
        (lambda database: database.clear((0, 5)), [None]),
        (lambda database: database.find(b"k"), []),
    ],
)
def test_the_observer_is_told_before(change: Callable[[Database], object], told: list[bytes | None]) -> None:
    database = Database(0)
    database.put(b"k", b"v")
    seen: list[bytes | None] = []

    def observe(which: Database, key: bytes | None) -> None:
        assert which is database
        assert database.find(b"k") == b"v"
        assert database.expiries == {}
        seen.append(key)

    database.observer = observe
    change(database)
    assert seen == told
