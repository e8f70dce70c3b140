"""The whole store crashes by the thousand: it comes back as it was after a transaction, with all that was promised.

One in eight of `--crash-points` is tried here (500 unless told), in chunks that processes share. A failure names its
seed; `--seed N` runs that world alone, here and in `test_crashes`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulation.store_world import FOCI, StoreWorld

SHARE: Final = 8
CHUNK_COUNT: Final = 4
SEEDS_PER_CHUNK: Final = 1_000_000
COVERED_FROM_CRASH_POINTS: Final = 600
"""A chunk of at least this many must have met everything that is common."""
TRACE_SHOWN: Final = 40

COMMON: Final = (
    *("policy_always", "policy_everysec", "policy_never", "shards_1", "shards_2", "shards_3", "shards_4"),
    *("fate_kill", "fate_lose_all", "fate_keep_all", "fate_prefix", "fate_scatter", "fate_mixed"),
    *("crash_in_open", "crash_in_recovery", "crash_in_take_snapshot"),
    *(f"focus_{focus or 'none'}" for focus in FOCI),
    *(
        "multi_shard",
        "lists",
        "libraries",
        "hot",
        "expired",
        "pending_expired",
        "error_reply",
        "capture",
        "from_snapshot",
        "lost_some",
    ),
)
RARE: Final = (
    *(
        "snapshot",
        "snapshot_failed",
        "save",
        "erase",
        "set_run",
        "hot_multi",
        "list_run",
        "script_in_multi",
        "libraries_from_snapshot",
        "clean_stop",
        "enospc",
        "refused",
        "eio",
        "eio_sync",
    ),
    *("fail_stop", "crash_in_sync", "crash_in_write", "crash_in_save", "crash_in_grow"),
)


def run_world(seed: int, coverage: Counter[str], *, tries_fates: bool = True, focus: str = "") -> int:
    """Run one world; a failure says how to replay it."""
    world = StoreWorld(seed, coverage, tries_fates=tries_fates, focus=focus)
    try:
        return world.run()
    except Exception as error:
        steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
        pytest.fail(
            f"seed {seed}: {type(error).__name__}: {error}\nto replay it: bin/test "
            f"tests/simulation/test_store_crashes.py --seed {seed}\nthe last steps:\n  {steps}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The world of `--seed` takes the place of all chunks."""
    if "chunk" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        chunks = range(CHUNK_COUNT) if seed is None else [None]
        metafunc.parametrize("chunk", chunks, ids=lambda chunk: f"seed-{seed}" if chunk is None else f"{chunk:02}")


@pytest.mark.timeout(3600)
def test_every_crash_leaves_a_state_that_was(chunk: int | None, pytestconfig: pytest.Config) -> None:
    if chunk is None:
        run_world(pytestconfig.getoption("--seed"), Counter())
        return
    wanted = -(-pytestconfig.getoption("--crash-points") // SHARE // CHUNK_COUNT)
    coverage = Counter[str]()
    seed, found = chunk * SEEDS_PER_CHUNK, 0
    while found < wanted:
        found += run_world(seed, coverage)
        seed += 1
    if wanted >= COVERED_FROM_CRASH_POINTS:
        missing = [name for name in COMMON if not coverage[name]]
        assert not missing, f"{found} crash points never met {missing}"


def test_holds_come_back_with_what_they_hold(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--seed") is not None:
        pytest.skip("a seed was given")
    coverage = Counter[str]()
    for seed in range(910_000_000, 910_000_024):
        run_world(seed, coverage, tries_fates=False, focus="holds")
    assert coverage["holds_from_snapshot"]
    assert coverage["erase_with_holds"]


def test_what_is_rare_still_happens(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--seed") is not None:
        pytest.skip("a seed was given")
    coverage = Counter[str]()
    for seed in range(900_000_000, 900_000_090):
        run_world(seed, coverage, tries_fates=False)
    missing = [name for name in RARE if not coverage[name]]
    assert not missing, f"90 worlds never met {missing}"
