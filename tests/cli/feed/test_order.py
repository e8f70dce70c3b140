"""Events in order of ts."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.cli.feed.order import Ordered
from tidelog.client.event import Checkpoint, Value
from tidelog.errors import LimitExceeded


def value(ts: int, key: bytes = b"k") -> Value:
    return Value(ts, key, "string", None, b"v" * 10)


def test_a_checkpoint_lets_out_what_is_not_above_it() -> None:
    order, point = Ordered(), Checkpoint(5, b"", b"", 1, 5)
    for each in (value(4), value(7), value(2, b"a"), value(2, b"b")):
        assert list(order.take(each, None)) == []
    assert list(order.take(point, point)) == [value(2, b"a"), value(2, b"b"), value(4), point]
    later = Checkpoint(7, b"", b"", 1, 7)
    assert list(order.take(value(6), point)) == []
    assert list(order.take(later, later)) == [value(6), value(7), later]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_ORDERED_BYTES_MAX", 4000)
    order, point = Ordered(), Checkpoint(100, b"", b"", 1, 100)
    for ts in range(10):
        assert list(order.take(value(ts), None)) == []
    assert len(list(order.take(point, point))) == 11
    for ts in range(101, 113):
        list(order.take(value(ts), point))
    with pytest.raises(LimitExceeded, match="without --ordered"):
        list(order.take(value(113), point))
