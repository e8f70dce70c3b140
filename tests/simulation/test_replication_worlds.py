"""Whatever happens to leaders, followers and the links between them: all show one history (`replication_world`).

bin/test tests/simulation/test_replication_worlds.py --seed 42     replays one seed
python -m tests.simulation.run --replication 2000                  as many as you like, on two processes
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulation.run import run_replication_seed

CHUNKS: Final = 25
WORLDS: Final = 200
"""Of each chunk: 5,000 seeds in all. A chunk takes half a minute, so the processes of a run share the work, and what
happens in one world of fifty happens in every chunk."""
ALWAYS: Final = 10
"""So many chunks, 2,000 seeds, are lived by every run, the others with `--long`."""
PROMISES: Final = (
    "quiet", "epochs", "failovers", "rewind", "replaced", "set_aside", "confirmed", "confirmed_durable", "delivered",
    "feed_compared", "feed_quiet", "feed_resumed", "crashes", "kills", "died_inside", "disks_full", "chains",
    "handed_over", "thread_preparation", "thread_lot", "retained", "held_for_a_follower",
)  # fmt: skip
"""That every chunk puts to the test."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "chunk", [pytest.param(chunk, marks=() if chunk < ALWAYS else pytest.mark.long) for chunk in range(CHUNKS)]
)
def test_all_servers_show_one_history(chunk: int, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--seed")
    if seed is not None and chunk:
        pytest.skip("one seed is lived once")
    coverage: Counter[str] = Counter()
    for each in [seed] if seed is not None else range(chunk * WORLDS, (chunk + 1) * WORLDS):
        _, _, covered, problem = run_replication_seed(each)
        if problem:
            pytest.fail(f"seed {each}:\n{problem}", pytrace=False)
        coverage += covered
    assert seed is not None or all(coverage[promise] for promise in PROMISES), coverage
