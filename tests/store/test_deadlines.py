"""Times of keys: the first comes first, what was changed or dropped does not come, and stale items are bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.store.deadlines import Deadlines


def test_keys_come_in_order_of_their_times() -> None:
    deadlines = Deadlines()
    for key, when_ms in ((b"c", 30), (b"a", 10), (b"b", 20), (b"gone", 5), (b"later", 1)):
        deadlines.set(key, when_ms)
    deadlines.drop(b"gone")
    deadlines.drop(b"never there")
    deadlines.set(b"later", 40)
    assert deadlines.take_due(9) is None
    taken = []
    while (due := deadlines.take_due(30)) is not None:
        taken.append(due)
        deadlines.drop(due)
    assert taken == [b"a", b"b", b"c"]
    assert deadlines.times == {b"later": 40}
    assert deadlines.take_due(40) == b"later"


def test_stale_items_are_bounded() -> None:
    deadlines = Deadlines()
    for when_ms in range(3 * limits.EXPIRY_STALE_MAX):
        deadlines.set(b"k", when_ms)
        assert deadlines.count <= limits.EXPIRY_STALE_MAX + 3
    assert deadlines.take_due(when_ms) == b"k"
    assert deadlines.take_due(when_ms) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40)), max_size=200), st.integers(0, 3))
def test_every_key_comes_when_its_time_has_come(changes: list[tuple[int, int]], step: int) -> None:
    """Whatever spans their times are in."""
    unit_ms = [1, 10_000, 1_000_000, 100_000_000][step]
    deadlines, model, now_ms = Deadlines(), dict[bytes, int](), 0
    for at, (number, later) in enumerate(changes):
        key = b"%d" % number
        if later:
            model[key] = now_ms + later * unit_ms
            deadlines.set(key, model[key])
        else:
            model.pop(key, None)
            deadlines.drop(key)
        if at % 5 == 4:
            now_ms += 7 * unit_ms
            taken = []
            while (due := deadlines.take_due(now_ms)) is not None:
                taken.append(model.pop(due))
                deadlines.drop(due)
            assert taken == sorted(taken)
            assert all(when > now_ms for when in model.values())
        assert deadlines.waiting() == {(when, each) for each, when in model.items()}
        assert deadlines.times == model


def test_many_keys_of_a_span_are_moved_on_in_pieces() -> None:
    deadlines, count = Deadlines(), 50_000
    for number in range(count):
        deadlines.set(b"%d" % number, 1 << 40)
    passes, taken = 0, 0
    while taken < count:
        while deadlines.take_due(1 << 40) is not None:
            taken += 1
        passes += 1
    assert 2 < passes < 10
    assert deadlines.count == 0
