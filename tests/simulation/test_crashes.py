"""Crashes by the thousand: whatever happens, a prefix of the history comes back, and all that was promised.

The crash points (`--crash-points`, 4,000 unless told) are split into chunks, so that processes share them. A chunk
runs one world after the other (`world`), each from a seed of its own, until it has its number. A failure names the
seed; `--seed N` runs that one world alone.

A simulation that quietly stops to exercise something proves nothing, so every chunk must have met everything that is
common, and one test that everything that is rare still happens.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulation.run import replay_command
from tests.simulation.world import World
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

CHUNK_COUNT: Final = 40
SEEDS_PER_CHUNK: Final = 1_000_000
"""How far the first seeds of chunks lie apart."""
COVERED_FROM_CRASH_POINTS: Final = 400
"""A chunk of at least this many must have met everything that is common."""
TRACE_SHOWN: Final = 40
RARE_WORLDS: Final = 300

COMMON: Final = (
    "policy_always",
    "policy_everysec",
    "policy_never",
    "shards_1",
    "shards_2",
    "shards_3",
    "shards_4",
    "fate_kill",
    "fate_lose_all",
    "fate_keep_all",
    "fate_prefix",
    "fate_scatter",
    "fate_mixed",
    "crash_in_open",
    "crash_in_recovery",
    "crash_after_recovery",
    "crash_in_checkpoint",
    "split",
    "blob",
    "roll",
    "multi_shard",
    "snapshot",
    "recovered_from_snapshot",
    "clean_stop",
    "tail_cut",
    "tail_with_records",
    "transactions_lost",
    "followed",
    "holder",
    "staged",
    "naive",
    "naive_split",
    "naive_blob",
)
"""What every chunk meets."""
RARE: Final = (
    "erase",
    "erase_with_holder",
    "too_old",
    "reader_fell_behind",
    "crash_in_take_snapshot",
    "crash_in_sync",
    "crash_in_close",
    "crash_in_write",
    "crash_in_make_sidecars",
    "crash_in_grow",
    "sidecars",
    "enospc",
    "refused",
    "eio",
    "eio_sync",
    "fail_stop",
    "snapshot_failed",
    "staged_too_long",
    "enospc_stage",
    "crash_in_stage",
    "vouch",
    "rot_refused",
    "clock_back",
    "clock_jump",
)
"""What some worlds meet."""


def run_world(seed: int, coverage: Counter[str], *, tries_fates: bool = True) -> int:
    """Run one world; a failure says how to replay it."""
    world = World(seed, coverage, tries_fates=tries_fates)
    try:
        return world.run()
    except Exception as error:
        steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
        pytest.fail(
            f"seed {seed}: {type(error).__name__}: {error}\nto replay it: {replay_command(seed)}\n"
            f"the last steps:\n  {steps}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The world of `--seed` takes the place of all chunks."""
    if "chunk" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        chunks = range(CHUNK_COUNT) if seed is None else [None]
        metafunc.parametrize("chunk", chunks, ids=lambda chunk: f"seed-{seed}" if chunk is None else f"{chunk:02}")


def test_every_crash_leaves_a_prefix(chunk: int | None, pytestconfig: pytest.Config) -> None:
    if chunk is None:
        run_world(pytestconfig.getoption("--seed"), Counter())
        return
    wanted = -(-pytestconfig.getoption("--crash-points") // CHUNK_COUNT)
    coverage = Counter[str]()
    seed, found = chunk * SEEDS_PER_CHUNK, 0
    while found < wanted:
        found += run_world(seed, coverage)
        seed += 1
    if wanted >= COVERED_FROM_CRASH_POINTS:
        missing = [name for name in COMMON if not coverage[name]]
        assert not missing, f"{found} crash points never met {missing}"


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_is_rare_still_happens(part: int, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--seed") is not None:
        pytest.skip("a seed was given")
    coverage = Counter[str]()
    for seed in range(RARE_WORLDS):
        run_world(900_000_000 + 1000 * part + seed, coverage, tries_fates=False)
    missing = [name for name in RARE if not coverage[name]]
    assert not missing, f"{RARE_WORLDS} worlds never met {missing}"


@pytest.mark.parametrize("variation", range(4))
def test_two_crashes_while_the_directory_is_made(variation: int) -> None:
    """Whatever a first process left, by a kill at any operation, a second may be cut off at any of its own."""
    settings = Settings(Geometry(1024, 2), 1)

    def open_journal(disk: SimulatedDisk) -> Journal:
        return Journal.open(disk, "/data", SimulatedClock(), settings, apply=lambda *_: None, new_epoch_id=lambda: 1)

    def crashes_inside(disk: SimulatedDisk, after: int) -> bool:
        disk.crash_after(after)
        try:
            open_journal(disk)
        except SimulatedCrash:
            return True
        return False

    first = 1
    while crashes_inside(killed := SimulatedDisk(100 * first + variation), first):
        killed.kill()
        second = 1
        while crashes_inside(cut := killed.clone(100 * second + variation // 2), second):
            for seed in range(4):
                fate = cut.clone(seed)
                fate.crash("scatter")
                journal = open_journal(fate)
                assert journal.writer.written_ts == 0
                journal.close()
            second += 1
        first += 1
    assert first > 15
