"""Stores whose streams lie in node files crash by the hundred: every entry comes back, and no file is missing or left.

One in eight of `--crash-points` is tried here (500 unless told), in chunks that processes share. A failure names its
seed; `--seed N` runs that world alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulation.cooling_world import CoolingWorld

SHARE: Final = 8
CHUNK_COUNT: Final = 2
SEEDS_PER_CHUNK: Final = 1_000_000
FIRST_SEED: Final = 20_000_000
TRACE_SHOWN: Final = 40
WORLDS_OF_COVERAGE: Final = 60

COVERED: Final = (
    *("cold", "cold_with_holes", "cold_part", "cooled", "cooled_again", "cooling_failed", "job_dropped"),
    *("cold_in_snapshot", "cold_from_snapshot", "snapshot", "snapshot_failed", "save", "enospc"),
    *("retained", "retained_total", "entries_deleted", "stream_dropped", "node_files_removed", "settled"),
    *("settled_with_files", "snapshot_not_durably_gone", "crash_in_drop_stream"),
    *("crash_in_cool", "crash_in_cool_some", "crash_in_take_snapshot", "crash_in_save"),
)


def run_world(seed: int, coverage: Counter[str], *, tries_fates: bool = True) -> int:
    """Run one world; a failure says how to replay it."""
    world = CoolingWorld(seed, coverage, tries_fates=tries_fates)
    try:
        return world.run()
    except Exception as error:
        steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
        pytest.fail(
            f"seed {seed}: {type(error).__name__}: {error}\nto replay it: bin/test "
            f"tests/simulation/test_cooling_crashes.py --seed {seed}\nthe last steps:\n  {steps}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The world of `--seed` takes the place of all chunks."""
    if "chunk" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        chunks = range(CHUNK_COUNT) if seed is None else [None]
        metafunc.parametrize("chunk", chunks, ids=lambda chunk: f"seed-{seed}" if chunk is None else f"{chunk:02}")


@pytest.mark.timeout(3600)
def test_every_crash_leaves_all_entries_and_their_files(chunk: int | None, pytestconfig: pytest.Config) -> None:
    if chunk is None:
        run_world(pytestconfig.getoption("--seed"), Counter())
        return
    wanted = -(-pytestconfig.getoption("--crash-points") // SHARE // CHUNK_COUNT)
    coverage = Counter[str]()
    seed, found = FIRST_SEED + chunk * SEEDS_PER_CHUNK, 0
    while found < wanted:
        found += run_world(seed, coverage)
        seed += 1
    assert coverage["cold_from_snapshot"]
    assert coverage["short_file_refused"]


@pytest.mark.timeout(300)
def test_what_can_happen_to_a_cold_node_happens(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--seed") is not None:
        pytest.skip("a seed was given")
    coverage = Counter[str]()
    for seed in range(930_000_000, 930_000_000 + WORLDS_OF_COVERAGE):
        run_world(seed, coverage, tries_fates=False)
    missing = [name for name in COVERED if not coverage[name]]
    assert not missing, f"{WORLDS_OF_COVERAGE} worlds never met {missing}"
