"""Times of keys: the first comes first, what was changed or dropped does not come, and stale items are bounded."""

from __future__ import annotations

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
        assert len(deadlines.heap) <= limits.EXPIRY_STALE_MAX + 3
    assert deadlines.take_due(when_ms) == b"k"
    assert deadlines.take_due(when_ms) is None
