"""When a client was last active, and for how long it has been slow."""

from __future__ import annotations

from tidelog.server.activity import Activity

S = 1_000_000


def test_idling() -> None:
    activity = Activity(5 * S)
    activity.look(7 * S, 1)
    activity.look(9 * S, 1)
    assert (activity.age_s(10 * S), activity.idle_s(10 * S)) == (5, 3)


def test_slow_only_without_a_break() -> None:
    activity = Activity(0)
    assert not activity.is_slow(1 * S, 10, leaves_much=True)
    assert not activity.is_slow(11 * S, 10, leaves_much=True)
    assert activity.is_slow(11 * S + 1, 10, leaves_much=True)
    assert not activity.is_slow(12 * S, 10, leaves_much=False)
    assert not activity.is_slow(13 * S, 10, leaves_much=True)
