"""Sorted sets as values, and their operations."""

from __future__ import annotations

import gc
import tracemalloc
from math import copysign, inf

import pytest

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.store.keyspace import Database
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.packed_items import PACKED_ITEMS_MAX
from tidelog.types.sorted_members import COLUMNS_AGAIN_MEMBERS, COLUMNS_MEMBERS_MAX, ScoredMember, SortedMembers
from tidelog.types.zset import ZAdd, ZRem, effects, zadd, zrem
from tidelog.types.zset_value import ZSet, zset_of

BOUNDS = EncodingBounds()
SIZES = [1, 5, PACKED_ITEMS_MAX, PACKED_ITEMS_MAX + 1, COLUMNS_MEMBERS_MAX, COLUMNS_MEMBERS_MAX + 1, 1000]


def entries(count: int) -> list[ScoredMember]:
    """In order; three members a score."""
    return [(float(i // 3), b"%06d" % i) for i in range(count)]


def are_columns(members: SortedMembers) -> bool:
    return members._index is None


def test_an_empty_set() -> None:
    zset = ZSet()
    assert not zset
    assert list(zset) == []
    assert zset.slice(0, 10) == []
    assert zset.score(b"a") is None
    assert zset.rank(b"a") is None
    assert zset.place_of_score(1.0, after=True) == 0
    zset.discard([b"a"])


@pytest.mark.parametrize("count", SIZES)
def test_reading(count: int) -> None:
    zset = zset_of(entries(count)[::-1])
    assert len(zset) == count
    assert list(zset) == entries(count)
    assert set(zset.members()) == {member for _, member in entries(count)}
    for place, (score, member) in enumerate(entries(count)):
        assert zset.at(place) == (score, member)
        assert zset.at(place - count) == (score, member)
        assert zset.score(member) == score
        assert zset.rank(member) == place
        assert member in zset
    assert b"x" not in zset
    assert zset.slice(1, 4) == entries(count)[1:4]
    assert zset.slice(2, 2) == []


@pytest.mark.parametrize("count", SIZES)
def test_places(count: int) -> None:
    zset = zset_of(entries(count))
    for score in (-inf, -1.0, -0.0, 0.0, 0.5, 1.0, 20.0, inf):
        assert zset.place_of_score(score, after=False) == sum(each < score for each, _ in entries(count))
        assert zset.place_of_score(score, after=True) == sum(each <= score for each, _ in entries(count))
        for member in (b"", b"000001", b"000001x", b"000060", b"\xff"):
            assert zset.place_of_entry(score, member, after=False) == sum(e < (score, member) for e in entries(count))
            assert zset.place_of_entry(score, member, after=True) == sum(e <= (score, member) for e in entries(count))


def test_infinite_scores_have_places() -> None:
    for extra in (0, COLUMNS_MEMBERS_MAX):
        zset = zset_of([(inf, b"up"), (-inf, b"down"), *entries(extra)])
        assert zset.place_of_score(-inf, after=False) == 0
        assert zset.place_of_score(-inf, after=True) == 1
        assert zset.place_of_score(inf, after=False) == len(zset) - 1
        assert zset.place_of_score(inf, after=True) == len(zset)


def test_many_members_are_indexed_and_columns_again_when_they_are_few() -> None:
    zset = SortedMembers()
    for at, entry in enumerate(entries(COLUMNS_MEMBERS_MAX + 10)):
        zset.update([entry])
        assert are_columns(zset) == (at < COLUMNS_MEMBERS_MAX)
    members = [member for _, member in zset]
    while len(zset) > COLUMNS_AGAIN_MEMBERS:
        assert not are_columns(zset)
        zset.discard([members.pop()])
    assert are_columns(zset)
    assert list(zset) == entries(COLUMNS_AGAIN_MEMBERS)


def test_many_at_once() -> None:
    zset = SortedMembers(entries(10))
    zset.update([(float(-i), b"%06d" % i) for i in range(500)])
    assert not are_columns(zset)
    assert list(zset) == sorted((float(-i), b"%06d" % i) for i in range(500))
    zset.discard([b"%06d" % i for i in range(20, 600)])
    assert are_columns(zset)
    zset.discard([b"%06d" % i for i in range(1, 20)])
    assert list(zset) == [(0.0, b"000000")]


def test_the_last_score_of_a_member_wins() -> None:
    zset = zset_of([(1.0, b"a"), (2.0, b"b"), (3.0, b"a")])
    assert list(zset) == [(2.0, b"b"), (3.0, b"a")]


@pytest.mark.parametrize("count", SIZES)
def test_a_copy_changes_by_itself(count: int) -> None:
    zset = zset_of(entries(count))
    copy = zset.copy()
    assert (copy.packed is None) == (zset.packed is None) == (count > PACKED_ITEMS_MAX)
    zset.update([(99.0, b"new"), (77.0, b"000000")], BOUNDS)
    copy.discard([b"000000"])
    assert list(copy) == entries(count)[1:]
    assert zset.score(b"000000") == 77.0
    assert len(zset) == count + 1


# --- operations -------------------------------------------------------------------------------------------------


def found(database: Database) -> ZSet:
    zset = database.find(b"z")
    assert isinstance(zset, ZSet)
    return zset


def apply(database: Database, *operations: ZAdd | ZRem) -> None:
    for operation in operations:
        for effect in effects():
            if type(operation) is effect.operation:
                payload = effect.kind.encode(operation)
                assert list(effect.kind.keys(payload) or []) == [operation.key]
                effect.apply(database, effect.kind.decode(payload, None))


def test_operations_survive_their_encoding() -> None:
    database = Database(0)
    apply(database, *zadd(b"z", [(1.5, b"a"), (-inf, b""), (inf, b"\0\xff")]))
    assert list(found(database)) == [(-inf, b""), (1.5, b"a"), (inf, b"\0\xff")]
    apply(database, *zrem(b"z", [b"a", b"nobody"]))
    assert len(found(database)) == 2
    apply(database, *zrem(b"z", [b"", b"\0\xff"]), *zrem(b"none", [b"a"]))
    assert database.find(b"z") is None
    assert len(database) == 0


def test_a_zero_loses_its_sign() -> None:
    database = Database(0)
    apply(database, *zadd(b"z", [(-0.0, b"a")]))
    assert copysign(1.0, found(database).at(0)[0]) == 1.0


def test_long_operations_are_split() -> None:
    many = [(float(i), b"%d" % i) for i in range(limits.RECORD_MEMBERS_MAX * 2 + 1)]
    operations = zadd(b"z", many)
    assert [len(operation.items) // 2 for operation in operations] == [512, 512, 1]
    removed = zrem(b"z", [member for _, member in many])
    assert [len(operation.members) for operation in removed] == [512, 512, 1]
    database = Database(0)
    apply(database, *operations)
    assert list(found(database)) == many
    apply(database, *removed)
    assert database.find(b"z") is None


def test_a_malformed_payload_is_refused() -> None:
    decode = {effect.kind.name: effect.kind.decode for effect in effects()}
    with pytest.raises(FormatError):
        decode["zadd"](effects()[1].kind.encode(ZRem(b"z", [b"score"])), None)
    with pytest.raises(FormatError):
        decode["zrem"](b"", None)


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "bytes_max"), [(1, 330), (5, 450), (20, 750), (COLUMNS_MEMBERS_MAX, 2700)])
def test_a_small_set_is_small(count: int, bytes_max: int) -> None:
    """Apart from the members themselves."""
    made = [[(i + 0.5, b"%d-%d" % (which, i)) for i in range(count)] for which in range(100)]
    gc.collect()
    tracemalloc.start()
    sets = [zset_of(each) for each in made]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(sets) < bytes_max
