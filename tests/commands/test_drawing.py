"""Drawing at random: what is drawn, that it is even, and how much it may be."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tidelog import limits
from tidelog.commands.drawing import check_pairs_count, draw, draw_one, drawn_count
from tidelog.errors import CommandError

MEMBERS = {b"a": 1, b"b": 2, b"c": 3, b"d": 4}


def test_different_members() -> None:
    random = Random(1)
    for count in range(1, 4):
        drawn = draw(random, MEMBERS, count)
        assert len(drawn) == len(set(drawn)) == count
        assert set(drawn) <= MEMBERS.keys()
    assert draw(random, MEMBERS, 4) == draw(random, MEMBERS, 2**63 - 1) == list(MEMBERS)
    assert draw(random, MEMBERS, 0) == []


def test_with_repetition() -> None:
    drawn = draw(Random(1), MEMBERS, -1000)
    assert len(drawn) == 1000
    assert set(drawn) == MEMBERS.keys()


@pytest.mark.parametrize("how", ["one", "different", "with repetition"])
def test_every_member_is_as_likely(how: str) -> None:
    random = Random(7)
    drawn: list[bytes] = []
    for _ in range(2000):
        if how == "one":
            drawn.append(draw_one(random, MEMBERS))
        else:
            drawn += draw(random, MEMBERS, 2 if how == "different" else -2)
    counts = Counter(drawn)
    assert counts.keys() == MEMBERS.keys()
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_one_seed_draws_the_same() -> None:
    assert draw(Random(3), MEMBERS, -50) == draw(Random(3), MEMBERS, -50)


def test_too_many() -> None:
    assert len(draw(Random(1), MEMBERS, -limits.DRAWN_MEMBERS_MAX)) == limits.DRAWN_MEMBERS_MAX
    with pytest.raises(CommandError, match=r"^ERR value is out of range$"):
        draw(Random(1), MEMBERS, -limits.DRAWN_MEMBERS_MAX - 1)


def test_counts() -> None:
    assert drawn_count(b"-9223372036854775807") == -(2**63) + 1
    with pytest.raises(CommandError, match="value must between"):
        drawn_count(b"-9223372036854775808")
    check_pairs_count(2**62 - 1)
    with pytest.raises(CommandError, match=r"^ERR value is out of range$"):
        check_pairs_count(2**62)
