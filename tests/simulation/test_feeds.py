"""Whatever happens, the state that a client rebuilds from a feed is the store's at every checkpoint (`feed_world`)."""

from __future__ import annotations

import pytest

from tests.simulation.feed_world import FeedWorld

WORLDS = 40


@pytest.mark.parametrize("chunk", range(10))
def test_what_a_feed_says_is_what_the_store_has(chunk: int, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--seed")
    checked = 0
    for each in [seed] if seed is not None else range(chunk * WORLDS, (chunk + 1) * WORLDS):
        world = FeedWorld(each)
        try:
            world.play(150)
        except Exception as error:
            pytest.fail(f"seed {each}: {type(error).__name__}: {error}", pytrace=True)
        checked += world.checked
    assert checked > WORLDS or seed is not None
