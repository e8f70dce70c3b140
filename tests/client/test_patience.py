"""Pauses between attempts: they double between two bounds, and end when the server was away for too long."""

from __future__ import annotations

from tidelog import limits
from tidelog.client.patience import Patience


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    patience = Patience()
    for _ in range(2):
        pauses = [patience.pause_s() for _ in range(40)]
        longest = [min(limits.CLIENT_RECONNECT_S_MAX, limits.CLIENT_RECONNECT_S_MIN * 2.0**n) for n in range(40)]
        assert all(pause is not None and most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
        patience.reset()


def test_it_ends_when_the_server_was_away_for_too_long() -> None:
    now_s = 100.0
    patience = Patience(10.0, now_s=lambda: now_s)
    assert patience.pause_s() is not None
    now_s = 109.9
    assert patience.pause_s() is not None
    now_s = 110.0
    assert patience.pause_s() is None
    patience.reset()
    assert patience.pause_s() is not None


def test_none_means_that_nobody_waits() -> None:
    assert Patience(0.0).pause_s() is None
