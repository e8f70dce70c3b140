"""Small values beside naive models: packed or not, a value does what a dict or a list would do.

Sizes go over the bounds of packing and back. An item is a prefix of many others, or looks like the lengths that stand
between packed items, so that a search that took one for the other would be found.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.types import shapes
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.packed_items import ITEM_BYTES_MAX, PACKED_BYTES_MAX, PACKED_ITEMS_MAX
from tidelog.types.set_value import Set
from tidelog.types.zset_value import ZSet

BOUNDS = EncodingBounds()
FEW = st.sampled_from([b"", b"a", b"b", b"\1", b"\1a", b"\0", b"ab", b"a\1", b"12", b"-3", b"007"])
ITEM = st.one_of(
    FEW,
    st.integers(0, 40).map(lambda number: b"item:%d" % number),
    st.sampled_from([b"x" * size for size in (64, 65, ITEM_BYTES_MAX, ITEM_BYTES_MAX + 1, PACKED_BYTES_MAX)]),
    st.binary(max_size=4),
)
ITEMS = st.lists(ITEM, min_size=1, max_size=PACKED_ITEMS_MAX + 4)
FEW_ITEMS = st.lists(ITEM, min_size=1, max_size=4)


def check_packed(value: Any, count: int) -> None:
    packed = value.packed
    if packed is not None:
        assert count <= PACKED_ITEMS_MAX
        assert len(packed) <= PACKED_BYTES_MAX + 4 * PACKED_ITEMS_MAX


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.lists(st.tuples(ITEM, ITEM), min_size=1, max_size=PACKED_ITEMS_MAX + 4)),
            st.tuples(st.just("set"), st.lists(st.tuples(FEW, ITEM), min_size=1, max_size=2)),
            st.tuples(st.just("discard"), FEW_ITEMS),
            st.tuples(st.just("copy"), st.none()),
        ),
        max_size=30,
    )
)
def test_hashes(changes: list[tuple[str, Any]]) -> None:
    value, model = Hash(), dict[bytes, bytes]()
    kept: list[tuple[Hash, dict[bytes, bytes]]] = []
    for what, argument in changes:
        if what == "set":
            for field, _ in argument[:1]:
                assert value.get(field) == model.get(field)
            if len(argument) == 1:
                assert value.set_field(argument[0][0], argument[0][1], BOUNDS) == (argument[0][0] not in model)
            else:
                value.update([item for pair in dict(argument).items() for item in pair], BOUNDS)
            model.update(argument)
        elif what == "discard":
            value.discard(argument)
            for field in argument:
                model.pop(field, None)
        else:
            kept.append((value, dict(model)))
            value = value.copy()
        assert list(value.fields().items()) == list(model.items())
        assert value.names() == list(value) == list(model)
        assert value.values() == list(model.values())
        assert len(value) == len(model)
        for field in (b"", b"a", b"\1", b"item:1", *model):
            assert value.get(field) == model.get(field)
            assert (field in value) == (field in model)
        check_packed(value, len(model))
    for copy, fields in kept:
        assert copy.fields() == fields


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.one_of(ITEMS, FEW_ITEMS)),
            st.tuples(st.just("discard"), FEW_ITEMS),
            st.tuples(st.just("copy"), st.none()),
        ),
        max_size=30,
    )
)
def test_sets(changes: list[tuple[str, Any]]) -> None:
    value, model = Set(), dict[bytes, None]()
    kept: list[tuple[Set, list[bytes]]] = []
    for what, argument in changes:
        if what == "add":
            value.update(argument, BOUNDS)
            model |= dict.fromkeys(argument)
        elif what == "discard":
            value.discard(argument)
            for member in argument:
                model.pop(member, None)
        else:
            kept.append((value, list(model)))
            value = value.copy()
        assert list(value) == list(value.members()) == list(model)
        assert len(value) == len(model)
        assert all((member in value) == (member in model) for member in (b"", b"a", b"\1", b"item:1", *model))
        check_packed(value, len(model))
    for copy, members in kept:
        assert list(copy) == members


SCORES = st.sampled_from([0.0, 1.0, 1.5, -2.0, float("inf"), float("-inf"), 1e300])


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("one"), st.tuples(SCORES, ITEM)),
            st.tuples(st.just("update"), st.lists(st.tuples(SCORES, ITEM), min_size=1, max_size=PACKED_ITEMS_MAX + 4)),
            st.tuples(st.just("discard"), FEW_ITEMS),
        ),
        max_size=30,
    )
)
def test_sorted_sets(changes: list[tuple[str, Any]]) -> None:
    value, model = ZSet(), dict[bytes, float]()
    for what, argument in changes:
        if what == "one":
            value.set_one(argument[0], argument[1], BOUNDS)
            model[argument[1]] = argument[0]
        elif what == "update":
            value.update(argument, BOUNDS)
            model |= {member: score for score, member in argument}
        else:
            value.discard(argument)
            for member in argument:
                model.pop(member, None)
        ordered = sorted((score, member) for member, score in model.items())
        assert value.entries() == list(value) == ordered
        assert sorted(value.members()) == sorted(model)
        for place, (score, member) in enumerate(ordered):
            assert value.at(place) == value.at(place - len(ordered)) == (score, member)
            assert (value.rank(member), value.score(member)) == (place, score)
        for entry in [(0.0, b"a"), (1.0, b""), *ordered]:
            for is_after in (False, True):
                before = [each for each in ordered if each < entry or (is_after and each == entry)]
                assert value.place_of_entry(*entry, after=is_after) == len(before)
                lower = [each for each, _ in ordered if each < entry[0] or (is_after and each == entry[0])]
                assert value.place_of_score(entry[0], after=is_after) == len(lower)
        check_packed(value, len(model))


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["left", "right"]), st.one_of(ITEMS, FEW_ITEMS)),
            st.tuples(st.sampled_from(["pop", "drop", "trim", "remove", "insert", "set"]), st.data()),
        ),
        max_size=30,
    )
)
def test_lists(changes: list[tuple[str, Any]]) -> None:
    value, model = List(), list[bytes]()
    for what, argument in changes:
        if what in ("left", "right"):
            value.push(argument, what == "left")
            model = [*argument[::-1], *model] if what == "left" else [*model, *argument]
        elif model:
            _change(value, model, what, argument)
        assert list(value) == model
        assert len(value) == len(model)
        for index, element in enumerate(model):
            assert value.at(index) == element
            assert value.slice(index, len(model)) == model[index:]
            assert list(value.places_of(element, len(model))) == [at for at, e in enumerate(model) if e == element]
        check_packed(value, len(model))


def _change(value: List, model: list[bytes], what: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(model) - 1))
    is_left = data.draw(st.booleans())
    if what == "pop":
        assert value.peek(is_left) == model[0 if is_left else -1]
        value.pop(is_left)
        model.pop(0 if is_left else -1)
    elif what == "drop":
        value.drop(index, is_left)
        model[:] = model[index:] if is_left else model[: len(model) - index]
    elif what == "trim":
        stop = data.draw(st.integers(index + 1, len(model)))
        value.trim(index, stop)
        model[:] = model[index:stop]
    elif what == "remove":
        positions = sorted(data.draw(st.sets(st.integers(0, len(model) - 1))))
        value.remove_at(positions)
        model[:] = [element for at, element in enumerate(model) if at not in positions]
    else:
        element = data.draw(ITEM)
        if what == "insert":
            value.insert(index, element)
            model.insert(index, element)
        else:
            value.set(index, element)
            model[index] = element


def test_hashes_with_the_same_fields_share_their_names() -> None:
    packed: list[bytes] = []
    for number in range(20 * shapes.SEEN_MIN):
        value = Hash()
        value.update([b"shared-name", b"%d" % number, b"another-name", b"x"], BOUNDS)
        assert value.fields() == {b"shared-name": b"%d" % number, b"another-name": b"x"}
        packed.append(value.packed or b"")
    assert b"shared-name" in packed[0]
    assert b"name" not in packed[-1]


def test_fields_that_are_data_make_no_shapes() -> None:
    before = len(shapes.SHAPES)
    for number in range(10_000):
        value = Hash()
        value.update([b"user:%d" % number, b"1", b"other:%d" % number, b"2"], BOUNDS)
        assert len(value) == 2
    assert len(shapes.SHAPES) == before
