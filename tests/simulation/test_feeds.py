"""Whatever happens, what a client rebuilds from a feed is what the store held at that moment (`feed_world`)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.feed_world import FeedWorld

WORLDS = 12
ALWAYS = 4
"""So many chunks are played by every run."""
PROMISES = ("compared", "quiet", "expiries", "resumed", "until")
"""That every chunk puts to the test; the mutants show that lost and erased history comes up too."""


@pytest.mark.parametrize(
    "chunk", [pytest.param(chunk, marks=() if chunk < ALWAYS else pytest.mark.long) for chunk in range(10)]
)
def test_what_a_feed_says_is_what_the_store_has(chunk: int, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--seed")
    coverage: Counter[str] = Counter()
    for each in [seed] if seed is not None else range(chunk * WORLDS, (chunk + 1) * WORLDS):
        world = FeedWorld(each)
        try:
            world.play(150)
        except Exception as error:
            pytest.fail(f"seed {each}: {type(error).__name__}: {error}", pytrace=True)
        coverage += world.coverage
    assert seed is not None or all(coverage[promise] for promise in PROMISES), coverage
