"""The value of a list beside a plain Python list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.types import two_ended_list
from tidelog.types.two_ended_list import TwoEndedList

ELEMENT = st.sampled_from([b"a", b"b", b"c"])
STEP = st.one_of(
    st.tuples(st.sampled_from(["push left", "push right"]), st.lists(ELEMENT, min_size=1, max_size=12)),
    st.tuples(st.sampled_from(["pop left", "pop right", "drop left", "drop right"]), st.integers(0, 12)),
    st.tuples(st.sampled_from(["set", "insert", "trim", "remove"]), st.integers(0, 1000)),
)


def change(value: TwoEndedList, model: list[bytes], what: str, how: list[bytes] | int) -> None:
    """The same change of both."""
    size = len(model)
    match what, how:
        case "push left", list(elements):
            value.front.extend(elements)
            model[:0] = elements[::-1]
        case "push right", list(elements):
            value.back.extend(elements)
            model += elements
        case "pop left", int() if model:
            assert value.first() == value.front.pop() == model.pop(0)
        case "pop right", int() if model:
            assert value.last() == value.back.pop() == model.pop()
        case "drop left", int(count):
            value.drop_left(min(count, size))
            del model[:count]
        case "drop right", int(count):
            value.drop_right(min(count, size))
            del model[max(size - count, 0) :]
        case "set", int(number) if model:
            value.set(number % size, b"set")
            model[number % size] = b"set"
        case "insert", int(number):
            value.insert(number % (size + 1), b"new")
            model.insert(number % (size + 1), b"new")
        case "trim", int(number):
            start, stop = sorted([number % (size + 1), number // 7 % (size + 1)])
            value.trim(start, stop)
            model[:] = model[start:stop]
        case "remove", int(number):
            gone = [at for at in range(size) if at * number % 3 == 1]
            value.remove_at(gone)
            model[:] = [element for at, element in enumerate(model) if at not in gone]


@given(st.lists(STEP, max_size=40))
def test_it_is_like_one_list(steps: list[tuple[str, list[bytes] | int]]) -> None:
    value, model = TwoEndedList(), list[bytes]()
    for what, how in steps:
        change(value, model, what, how)
        size = len(model)
        assert len(value) == size
        assert list(value) == value.slice(0, size) == model
        assert [value.at(index) for index in range(size)] == model
        for start in range(0, size + 1, 3):
            for stop in range(start, size + 1, 2):
                assert value.slice(start, stop) == model[start:stop]


@given(st.lists(ELEMENT, max_size=30), st.lists(ELEMENT, max_size=30), st.integers(0, 70))
def test_places(front: list[bytes], back: list[bytes], compared_max: int) -> None:
    value = TwoEndedList(back)
    value.front.extend(front)
    model = front[::-1] + back
    size = len(model)
    forward = [at for at in range(min(size, compared_max)) if model[at] == b"a"]
    backward = [at for at in range(size - 1, max(size - compared_max, 0) - 1, -1) if model[at] == b"a"]
    assert list(value.places_of(b"a", compared_max)) == forward
    assert list(value.places_of(b"a", compared_max, is_backward=True)) == backward


def test_places_in_a_long_list() -> None:
    model = [b"%d" % (number % 1000) for number in range(20_000)]
    value = TwoEndedList(model[7000:])
    value.front.extend(model[6999::-1])
    expected = list(range(999, 20_000, 1000))
    assert list(value.places_of(b"999", 20_000)) == expected
    assert list(value.places_of(b"999", 20_000, is_backward=True)) == expected[::-1]


@pytest.mark.parametrize("pop_left", [False, True])
def test_a_queue_moves_each_element_a_few_times_at_most(pop_left: bool) -> None:
    size = 4 * two_ended_list._MOVED_MAX
    elements = [b"%d" % number for number in range(size)]
    value = TwoEndedList(elements)
    if not pop_left:
        value.front, value.back = value.back[::-1], value.front
    lengths: set[int] = set()
    popped = []
    for _ in range(size):
        popped.append(value.first() if pop_left else value.last())
        (value.front if pop_left else value.back).pop()
        lengths.add(len(value.back if pop_left else value.front))
    assert popped == (elements if pop_left else elements[::-1])
    assert len(lengths) < 30  # so often were elements moved to the other side


def test_a_copy_changes_by_itself() -> None:
    value = TwoEndedList([b"a"])
    value.front.append(b"b")
    copy = value.copy()
    copy.front.append(b"x")
    copy.back.append(b"y")
    assert list(value) == [b"b", b"a"]
    assert list(copy) == [b"x", b"b", b"a", b"y"]
    assert repr(value) == "TwoEndedList([b'b', b'a'])"
