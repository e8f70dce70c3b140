"""What the simulated object store does wrong on demand, and what it notices. The rest is in `tests/conformance`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from tidelog.testing.clock import SimulatedClock
from tidelog.testing.faults import SimulatedCrash
from tidelog.testing.object_store import ObjectChange, ObjectOperation, SimulatedBucket, SimulatedObjectStore

SECOND_US = 1_000_000


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def bucket(clock: SimulatedClock) -> SimulatedBucket:
    return SimulatedBucket(clock, Random(1))


@pytest.fixture
def store(bucket: SimulatedBucket) -> SimulatedObjectStore:
    return bucket.client("shipper")


CALLS: dict[ObjectOperation, Callable[[SimulatedObjectStore], object]] = {
    "put": lambda store: store.put("new", [b"x"]),
    "read": lambda store: store.read("there", 0, 1),
    "get": lambda store: store.get("there"),
    "size": lambda store: store.size("there"),
    "list": lambda store: store.list("there"),
    "folders": lambda store: store.folders(""),
    "delete": lambda store: store.delete("there"),
}


# --- planned faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", CALLS)
def test_a_call_fails_before_its_effect(
    bucket: SimulatedBucket, store: SimulatedObjectStore, operation: ObjectOperation
) -> None:
    store.put("there", [b"x"])
    store.fail(operation, errno=errno.ETIMEDOUT)

    with pytest.raises(TimeoutError, match="simulated ETIMEDOUT"):
        CALLS[operation](store)
    assert bucket.names() == ["there"]

    CALLS[operation](store)


def test_a_put_fails_after_its_effect(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    store.fail("put", "after")

    with pytest.raises(OSError, match="simulated EIO"):
        store.put("object", [b"x"])

    assert bucket.contents("object") == b"x"
    with pytest.raises(FileExistsError):
        store.put("object", [b"x"])


def test_a_put_that_fails_late_does_not_tell_that_the_name_is_taken(store: SimulatedObjectStore) -> None:
    store.put("object", [b"x"])
    store.fail("put", "after")
    with pytest.raises(OSError, match="simulated EIO"):
        store.put("object", [b"y"])
    assert store.get("object") == b"x"


def test_a_put_has_its_effect_when_its_sender_has_given_up(
    bucket: SimulatedBucket, store: SimulatedObjectStore, clock: SimulatedClock
) -> None:
    store.fail("put", "later", times=2)
    for name in ("first", "second"):
        with pytest.raises(OSError, match="simulated EIO"):
            store.put(name, [name.encode()])
    with pytest.raises(FileNotFoundError):
        store.get("first")
    bucket.client("other").put("second", [b"of another"])

    clock.advance(bucket.put_late_us)

    assert store.get("first") == b"first"
    assert store.get("second") == b"of another"


def test_a_delete_fails_after_its_effect(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    store.put("object", [b"x"])
    store.fail("delete", "after")
    with pytest.raises(OSError, match="simulated EIO"):
        store.delete("object")
    assert bucket.names() == []


def test_a_fault_waits_for_its_call(store: SimulatedObjectStore) -> None:
    store.fail("put", after=2, times=2, name_contains="manifest")
    fates = []
    for name in ("manifest-1", "piece", "manifest-2", "manifest-3", "manifest-4"):
        try:
            store.put(name, [b""])
        except OSError:
            fates.append(name)
    assert fates == ["manifest-2", "manifest-3"]


# --- chances ----------------------------------------------------------------------------------------------------


def life(seed: int) -> tuple[list[str], list[ObjectChange]]:
    """What a client with faults was told, and what happened."""
    clock = SimulatedClock()
    bucket = SimulatedBucket(clock, Random(seed), listing_late_us=3 * SECOND_US)
    store = bucket.client()
    store.faults.put_before = store.faults.put_after = store.faults.put_later = 0.2
    store.faults.delete_before = store.faults.delete_after = store.faults.read = store.faults.list = 0.3
    told = []
    for number in range(60):
        clock.advance(SECOND_US)
        for call in (
            lambda name=f"a/{number}": store.put(name, [b"x"]),
            lambda name=f"a/{number // 2}": store.delete(name),
            lambda name=f"a/{number}": store.get(name),
            lambda: store.list("a/"),
        ):
            try:
                told.append(repr(call()))
            except AssertionError:
                told.append("a late put came after its delete")
            except OSError as error:
                told.append(repr(error))
    return told, bucket.history


def test_one_seed_replays_all() -> None:
    assert life(5) == life(5)
    assert life(5) != life(6)


def test_every_kind_of_fault_is_drawn() -> None:
    told = [line for seed in range(5) for line in life(seed)[0]]
    assert {"None", "b'x'"} <= set(told)
    for kind in ("simulated EIO", "simulated ETIMEDOUT", "simulated EACCES"):
        assert any(kind in line for line in told), kind


def test_no_chance_is_no_fault(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    store.faults.put_before = 1.0
    with pytest.raises(OSError, match="simulated"):
        store.put("object", [b"x"])
    bucket.client("other").put("object", [b"y"])
    store.faults.clear()
    store.put("another", [b"x"])
    assert [(change.client, change.name) for change in bucket.history] == [("other", "object"), ("shipper", "another")]


# --- outages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", CALLS)
def test_nobody_reaches_a_bucket_that_is_down(bucket: SimulatedBucket, operation: ObjectOperation) -> None:
    one, other = bucket.client("one"), bucket.client("other")
    one.put("there", [b"x"])
    bucket.is_down = True
    for store in (one, other):
        with pytest.raises(TimeoutError):
            CALLS[operation](store)
    bucket.is_down = False
    one.is_cut_off = True
    with pytest.raises(TimeoutError):
        CALLS[operation](one)
    assert bucket.names() == ["there"]
    CALLS[operation](other)


# --- late listings ----------------------------------------------------------------------------------------------


def test_a_listing_is_late_and_nothing_else_is(clock: SimulatedClock) -> None:
    bucket = SimulatedBucket(clock, Random(3), listing_late_us=10 * SECOND_US)
    store = bucket.client()
    names = [f"folder-{number}/object" for number in range(20)]
    for name in names:
        store.put(name, [b"x"])

    seen = [entry.name for entry in store.list("")]
    assert len(seen) < 20, "some must be missing"
    assert store.folders("") == sorted(name.partition("/")[0] for name in seen)
    assert all(store.get(name) == b"x" for name in names)
    clock.advance(10 * SECOND_US)
    assert [entry.name for entry in store.list("")] == sorted(names)

    for name in names:
        store.delete(name)
    assert store.list(""), "some must still be there"
    with pytest.raises(FileNotFoundError):
        store.get(store.list("")[0].name)
    clock.advance(10 * SECOND_US)
    assert store.list("") == []


# --- what a bucket notices --------------------------------------------------------------------------------------


def test_history_tells_who_did_what(bucket: SimulatedBucket, clock: SimulatedClock) -> None:
    one, other = bucket.client("one"), bucket.client("other")
    one.put("object", [b"abc"])
    clock.advance(5)
    with pytest.raises(FileExistsError):
        other.put("object", [b"defg"])
    other.delete("object")
    other.delete("object")
    assert bucket.history == [(0, "one", "put", "object", 3), (5, "other", "delete", "object", 3)]
    bucket.check()


def test_a_name_is_not_used_again(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    store.put("object", [b"x"])
    store.delete("object")

    with pytest.raises(AssertionError, match="shipper put object again, which had been deleted"):
        store.put("object", [b"x"])

    with pytest.raises(AssertionError, match="which had been deleted"):
        bucket.check()


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b/c", "a"), ("a/b", "a/b/c/d")])
def test_an_object_is_no_folder(bucket: SimulatedBucket, store: SimulatedObjectStore, names: tuple[str, str]) -> None:
    store.put(names[0], [b"x"])
    with pytest.raises(AssertionError, match="is the folder of the other"):
        store.put(names[1], [b"x"])
    with pytest.raises(AssertionError, match="is the folder of the other"):
        bucket.check()


def test_a_test_may_look_on_and_stop_the_process(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    seen: list[tuple[str, str, str]] = []

    def watch(operation: ObjectOperation, name: str, moment: str) -> None:
        seen.append((operation, name, moment))
        if (name, moment) == ("second", "after"):
            raise SimulatedCrash

    store.watch = watch
    store.put("first", [b"x"])
    with pytest.raises(SimulatedCrash):
        store.put("second", [b"x"])
    assert seen == [(operation, name, when) for operation, name in [("put", "first"), ("put", "second")]
                    for when in ("before", "after")]  # fmt: skip
    assert bucket.names() == ["first", "second"]


def test_damage_is_behind_the_back_of_all(bucket: SimulatedBucket, store: SimulatedObjectStore) -> None:
    store.put("object", [b"abc"])
    bucket.damage("object", b"abd")
    assert store.get("object") == b"abd"
    assert len(bucket.history) == 1
