"""`journal verify` says sound exactly if a server starts, whatever is wrong with a directory (`agreement`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation.agreement import check_refusals, compare, damage_and_compare
from tests.simulation.specimen import Specimen, closed, shards, torn, with_snapshot

PART_COUNT = 10
SEEDS_PER_PART = 150


@pytest.mark.parametrize("make", [closed, torn, shards, with_snapshot])
def test_both_start_with_what_is_not_damaged(make: Callable[[], Specimen]) -> None:
    assert compare(make().disk.clone(0), make()) == "sound"


@pytest.mark.parametrize("make", [closed, shards, with_snapshot])
def test_what_no_crash_leaves_behind_is_refused_by_both_in_the_same_words(make: Callable[[], Specimen]) -> None:
    check_refusals(make())


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part == 0 else pytest.mark.long) for part in range(PART_COUNT)]
)
@pytest.mark.parametrize("make", [closed, torn, shards, with_snapshot])
def test_verify_and_a_start_agree(make: Callable[[], Specimen], part: int) -> None:
    outcomes = Counter(
        damage_and_compare(make(), seed) for seed in range(SEEDS_PER_PART * part, SEEDS_PER_PART * (part + 1))
    )
    assert outcomes["refused"] > 30
    assert outcomes["sound"] > 5
