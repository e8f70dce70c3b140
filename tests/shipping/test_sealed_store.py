"""Encrypted objects: whatever is done to them is noticed, and parts are read for the price of parts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from tidelog import limits
from tidelog.ports import ObjectEntry
from tidelog.shipping.sealed_store import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MAGIC,
    SEALED_BYTES,
    TAG_BYTES,
    SealedStore,
    plain_size,
)
from tidelog.shipping.sealing_key import SealingKey
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import ObjectOperation, SimulatedBucket

KEY = SealingKey(bytes(range(32)))
FIRST_VERSION = (
    "5449444553454131eeaaf426bb045376000102030405060708090a0b0c0d0e0fe58f3cc2c159"
    "9b9b72c994327a46f95e3f8b8bef17fb46f730fa17a70a791c076ca979c1dc367bbc91586b9b"
)
"""An object `folder/object`, with the key above."""
BOUNDARIES = [0, 1, 15, 16, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES + 5]


@pytest.fixture
def bucket() -> SimulatedBucket:
    return SimulatedBucket(SimulatedClock(), Random(0))


def sealed(bucket: SimulatedBucket, key: SealingKey = KEY, seed: int = 1) -> SealedStore:
    return SealedStore(bucket.client(), key, Random(seed).randbytes)


def stored(bucket: SimulatedBucket, name: str = "object") -> bytes:
    found = bucket.contents(name)
    assert found is not None
    return found


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(OSError, match=words) as error:
        call()
    assert error.value.errno == errno.EIO
    assert error.value.filename == "object"


# --- what is stored ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", BOUNDARIES)
def test_sizes_are_those_of_the_contents(bucket: SimulatedBucket, size: int) -> None:
    store = sealed(bucket)
    data = Random(size).randbytes(size)
    cut = size // 3
    store.put("object", [data[:cut], b"", memoryview(data)[cut:]])

    assert store.get("object") == data
    assert store.size("object") == size
    assert store.list("") == [ObjectEntry("object", size)]
    blocks = max(1, -(-size // BLOCK_BYTES))
    assert len(stored(bucket)) == HEADER_BYTES + size + blocks * TAG_BYTES


def test_every_stored_size_is_of_one_size_or_none() -> None:
    sizes = {HEADER_BYTES + size + max(1, -(-size // BLOCK_BYTES)) * TAG_BYTES: size for size in range(3 * BLOCK_BYTES)}
    for stored_size in range(HEADER_BYTES + 3 * SEALED_BYTES):
        assert plain_size(stored_size) == sizes.get(stored_size)


def test_nothing_of_the_contents_shows(bucket: SimulatedBucket) -> None:
    sealed(bucket).put("object", [b"secret " * 100])
    assert b"secret" not in stored(bucket)
    assert stored(bucket).startswith(MAGIC + KEY.id)


def test_the_same_contents_look_different_each_time(bucket: SimulatedBucket) -> None:
    store = sealed(bucket)
    data = bytes(2 * BLOCK_BYTES)
    store.put("one", [data])
    store.put("two", [data])
    one, two = stored(bucket, "one")[HEADER_BYTES:], stored(bucket, "two")[HEADER_BYTES:]
    pieces = {each[start : start + 1024] for each in (one, two) for start in range(0, len(one) - 1024, 1024)}
    assert len(pieces) == 2 * len(range(0, len(one) - 1024, 1024))


def test_the_format_is_what_earlier_versions_wrote(bucket: SimulatedBucket) -> None:
    """Bytes of the first version: whoever changes the format must still read them."""
    bucket.damage("folder/object", bytes.fromhex(FIRST_VERSION))
    assert sealed(bucket).get("folder/object") == b"written by the first version"


# --- parts ------------------------------------------------------------------------------------------------------


def test_any_part_comes_back(bucket: SimulatedBucket) -> None:
    rng = Random(4)
    data = rng.randbytes(4 * BLOCK_BYTES + 77)
    sealed(bucket).put("object", [data])
    edges = [
        edge for block in range(6) for edge in range(block * BLOCK_BYTES - 2, block * BLOCK_BYTES + 3) if edge >= 0
    ]
    for start in edges:
        for end in (*edges, start, len(data), len(data) + 10):
            if end >= start:
                store = sealed(bucket) if rng.random() < 0.5 else SealedStore(bucket.client(), KEY, rng.randbytes)
                assert store.read("object", start, end - start) == data[start:end], (start, end)


def test_a_part_costs_its_blocks(bucket: SimulatedBucket) -> None:
    client = bucket.client()
    store = SealedStore(client, KEY, Random(1).randbytes)
    store.put("object", [bytes(100 * BLOCK_BYTES)])
    calls: list[ObjectOperation] = []
    client.watch = lambda operation, name, moment: calls.append(operation) if moment == "before" else None

    assert store.read("object", 50 * BLOCK_BYTES, 10) == bytes(10)
    assert calls == ["read", "read"], "the header, and a block"
    assert store.read("object", 70 * BLOCK_BYTES - 5, 10) == bytes(10)
    assert calls == ["read"] * 3
    fresh = SealedStore(client, KEY, Random(1).randbytes)
    assert fresh.read("object", 5, 10) == bytes(10)
    assert calls == ["read"] * 4, "the header lies before the first block"


def test_headers_are_not_kept_without_end(bucket: SimulatedBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEALED_HEADERS_KEPT", 3)
    store = sealed(bucket)
    for number in range(10):
        store.put(f"{number}", [b"%d" % number])
    for _ in range(2):
        for number in range(10):
            assert store.read(f"{number}", 0, 5) == b"%d" % number
            assert len(store._headers) <= 3


# --- damage -----------------------------------------------------------------------------------------------------

WRONG = r"block \d+ of the encrypted object was changed|is not encrypted|encrypted with another key"


@pytest.mark.parametrize("size", [0, 1, 40])
def test_every_changed_bit_is_noticed(bucket: SimulatedBucket, size: int) -> None:
    sealed(bucket).put("object", [bytes(size)])
    good = stored(bucket)
    for position in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            bucket.damage("object", bytes(bad))
            refused(lambda: sealed(bucket).get("object"), WRONG)
            refused(lambda: sealed(bucket).read("object", 0, 10), WRONG)
    bucket.damage("object", good)
    assert sealed(bucket).get("object") == bytes(size)


def test_a_changed_bit_is_noticed_in_its_block_only(bucket: SimulatedBucket) -> None:
    sealed(bucket).put("object", [bytes(3 * BLOCK_BYTES)])
    bad = bytearray(stored(bucket))
    bad[HEADER_BYTES + SEALED_BYTES + 5] ^= 1
    bucket.damage("object", bytes(bad))

    refused(lambda: sealed(bucket).get("object"), "block 1 of")
    refused(lambda: sealed(bucket).read("object", BLOCK_BYTES - 1, 2), "block 1 of")
    assert sealed(bucket).read("object", 0, BLOCK_BYTES) == bytes(BLOCK_BYTES)
    assert sealed(bucket).read("object", 2 * BLOCK_BYTES, 10) == bytes(10)


def test_every_cut_is_noticed(bucket: SimulatedBucket) -> None:
    size = 2 * BLOCK_BYTES + 30
    sealed(bucket).put("object", [bytes(size)])
    good = stored(bucket)
    boundaries = [0, len(MAGIC), HEADER_BYTES, HEADER_BYTES + SEALED_BYTES, HEADER_BYTES + 2 * SEALED_BYTES]
    for length in {each + by for each in boundaries for by in (-1, 0, 1, TAG_BYTES) if each + by >= 0} | {
        len(good) - 1
    }:
        bucket.damage("object", good[:length])
        refused(lambda: sealed(bucket).get("object"), WRONG)
        refused(lambda: sealed(bucket).read("object", 0, size), WRONG)
        refused(lambda: sealed(bucket).read("object", 2 * BLOCK_BYTES, 30), WRONG)
        refused(lambda: sealed(bucket).read("object", 5 * BLOCK_BYTES, 30), WRONG)


def test_more_at_the_end_is_noticed(bucket: SimulatedBucket) -> None:
    for size in (30, BLOCK_BYTES, 2 * BLOCK_BYTES):
        name = f"object-{size}"
        sealed(bucket).put(name, [bytes(size)])
        good = stored(bucket, name)
        for more in (b"\0", bytes(TAG_BYTES), good[HEADER_BYTES:], good[-SEALED_BYTES:]):
            bucket.damage(name, good + more)
            with pytest.raises(OSError, match=WRONG):
                sealed(bucket).get(name)
            with pytest.raises(OSError, match=WRONG):
                sealed(bucket).read(name, 0, 10 * size)


def test_blocks_keep_their_places(bucket: SimulatedBucket) -> None:
    sealed(bucket).put("object", [Random(1).randbytes(4 * BLOCK_BYTES)])
    good = stored(bucket)
    header, blocks = good[:HEADER_BYTES], good[HEADER_BYTES:]
    first, second, third, last = (blocks[at : at + SEALED_BYTES] for at in range(0, len(blocks), SEALED_BYTES))
    for order in ([second, first, third, last], [first, third, last], [first, first, third, last], [last], [first]):
        bucket.damage("object", header + b"".join(order))
        refused(lambda: sealed(bucket).get("object"), WRONG)


def test_objects_keep_their_names(bucket: SimulatedBucket) -> None:
    store = sealed(bucket)
    store.put("object", [b"mine"])
    store.put("other", [b"that"])
    bucket.damage("object", stored(bucket, "other"))
    refused(lambda: store.get("object"), "belongs to another object")
    refused(lambda: store.read("object", 0, 1), "belongs to another object")


def test_blocks_of_another_object_do_not_fit(bucket: SimulatedBucket) -> None:
    """Even if both have the name, as in two buckets."""
    other = SimulatedBucket(SimulatedClock(), Random(0))
    for seed, each in enumerate((bucket, other)):
        sealed(each, seed=seed).put("object", [bytes(2 * BLOCK_BYTES)])
    mixed = stored(bucket)[: HEADER_BYTES + SEALED_BYTES] + stored(other)[HEADER_BYTES + SEALED_BYTES :]
    bucket.damage("object", mixed)
    refused(lambda: sealed(bucket).get("object"), "block 1 of")


# --- other objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"plain " * 100, bytes(HEADER_BYTES), bytes(3 * BLOCK_BYTES)])
def test_an_object_that_is_not_encrypted_is_not_taken_for_one(bucket: SimulatedBucket, data: bytes) -> None:
    bucket.damage("object", data)
    for call in (
        lambda: sealed(bucket).get("object"),
        lambda: sealed(bucket).read("object", 0, 1),
        lambda: sealed(bucket).read("object", BLOCK_BYTES, 1),
    ):
        refused(call, "is not encrypted, or not by Tidelog")


def test_a_size_that_no_encrypted_object_has_is_an_error(bucket: SimulatedBucket) -> None:
    bucket.damage("object", b"short")
    refused(lambda: sealed(bucket).size("object"), "is not encrypted")
    assert sealed(bucket).list("") == [("object", 5)], "so that it can be deleted"


def test_another_key_is_told_apart_from_damage(bucket: SimulatedBucket) -> None:
    other = SealingKey(bytes(32))
    sealed(bucket).put("object", [b"x"])
    words = f"encrypted with another key: {KEY.id.hex()}, and ours is {other.id.hex()}"
    for call in (
        lambda: sealed(bucket, other).get("object"),
        lambda: sealed(bucket, other).read("object", 0, 1),
    ):
        refused(call, words)


def test_a_forged_id_does_not_help(bucket: SimulatedBucket) -> None:
    other = SealingKey(bytes(32))
    sealed(bucket).put("object", [b"x"])
    bucket.damage("object", stored(bucket).replace(KEY.id, other.id))
    refused(lambda: sealed(bucket, other).get("object"), "block 0 of")
