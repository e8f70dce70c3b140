"""Pauses between attempts: they double between two bounds, and end when the server was away for too long."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.client.patience import Patience
from tidelog.errors import ServerUnreachable
from tidelog.server_search import ServerNotFound, UnknownService

GONE = ServerUnreachable("it went away")
NOBODY_ANSWERS = ServerNotFound("a: refused; b: refused", has_answered=False)
NOBODY_LEADS = ServerNotFound("a: refused; b: it follows a", has_answered=True)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def reached(away_s_max: float | None = None, clock: Clock | None = None) -> Patience:
    made = Patience(away_s_max, now_s=clock or Clock())
    made.reached()
    return made


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    patience = reached()
    for _ in range(2):
        pauses = [patience.pause_s(GONE) for _ in range(40)]
        longest = [min(limits.CLIENT_RECONNECT_S_MAX, limits.CLIENT_RECONNECT_S_MIN * 2.0**n) for n in range(40)]
        assert all(pause is not None and most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
        patience.reset()


def test_it_ends_when_the_server_was_away_for_too_long() -> None:
    clock = Clock()
    patience = reached(10.0, clock)
    assert patience.pause_s(GONE) is not None
    clock.now_s = 109.9
    assert patience.pause_s(GONE) is not None
    clock.now_s = 110.0
    assert patience.pause_s(GONE) is None
    patience.reset()
    assert patience.pause_s(GONE) is not None


def test_none_means_that_nobody_waits() -> None:
    assert reached(0.0).pause_s(GONE) is None


# --- at the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GONE, NOBODY_ANSWERS, NOBODY_LEADS])
def test_one_server_is_not_waited_for_before_it_was_reached(error: ServerUnreachable) -> None:
    patience = Patience()
    assert patience.pause_s(error) is None
    before = patience.has_reached
    patience.reset()
    assert (before, patience.has_reached) == (False, True)
    assert patience.pause_s(error) is not None


def test_several_servers_are_waited_for_as_after_a_lost_connection() -> None:
    clock = Clock()
    patience = Patience(at_start=True, now_s=clock)
    assert patience.pause_s(NOBODY_LEADS) is not None
    clock.now_s += 10 * limits.CLIENT_START_S_MAX
    assert patience.pause_s(GONE) is not None, "it was found, and was gone before it answered"
    assert patience.pause_s(NOBODY_ANSWERS) is not None, "they have answered before, and are the right ones"
    bounded = Patience(60.0, at_start=True, now_s=clock)
    assert bounded.pause_s(NOBODY_LEADS) is not None
    clock.now_s += 60.0
    assert bounded.pause_s(NOBODY_LEADS) is None


@pytest.mark.parametrize(("away_s_max", "bound_s"), [(None, limits.CLIENT_START_S_MAX), (500.0, 30.0), (2.0, 2.0)])
def test_several_of_which_none_answers_may_all_be_wrong(away_s_max: float | None, bound_s: float) -> None:
    clock = Clock()
    patience = Patience(away_s_max, at_start=True, now_s=clock)
    assert patience.pause_s(NOBODY_ANSWERS) is not None
    clock.now_s += bound_s - 0.1
    assert patience.pause_s(NOBODY_ANSWERS) is not None
    clock.now_s += 0.1
    assert patience.pause_s(NOBODY_ANSWERS) is None


def test_a_service_that_no_sentinel_knows_is_an_error_at_once() -> None:
    unknown = UnknownService("s: this Sentinel does not know it", has_answered=False)
    patience = Patience(at_start=True)
    assert patience.pause_s(unknown) is None
    patience.reached()
    assert patience.pause_s(unknown) is not None, "it was known before: somebody is changing it"
