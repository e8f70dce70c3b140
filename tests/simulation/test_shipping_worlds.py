"""Servers that ship themselves die, are replaced and come back by the dozen: all moments of their copies can be had.

Forty worlds by default, in chunks that processes share, a thousand with `--long`. A failure names its seed; `--seed N`
runs that world alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulation.run import undisturbed
from tests.simulation.shipping_world import ShippingWorld

CHUNK_COUNT: Final = 2
WORLDS: Final = 40
WORLDS_LONG: Final = 1000
TRACE_SHOWN: Final = 40

COVERED: Final = (
    *("taken_over", "promoted", "machine_lost", "restored", "tail_lost", "woken"),
    *(
        "replaced_inside",
        "outlived",
        "outlived_inside",
        "refused_beside",
        "took_over_beside",
        "clock_set",
        "dropped",
        "came_back",
        "restored_lazily",
    ),
    *("restore_too_late", "PermissionError", "TimeoutError", "OSError"),
)
RARE: Final = ("restored_to_a_cut",)
"""What some hundred worlds meet, and twenty may not."""


def run_world(seed: int, coverage: Counter[str]) -> None:
    """Run one world; a failure says how to replay it."""
    world = ShippingWorld(seed, coverage)
    try:
        with undisturbed():
            world.run()
    except Exception as error:
        steps = "\n  ".join(world.trace[-TRACE_SHOWN:])
        pytest.fail(
            f"seed {seed}: {type(error).__name__}: {error}\nto replay it: bin/test "
            f"tests/simulation/test_shipping_worlds.py --seed {seed}\nthe last steps:\n  {steps}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The world of `--seed` takes the place of all chunks."""
    if "chunk" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        chunks = range(CHUNK_COUNT) if seed is None else [None]
        metafunc.parametrize("chunk", chunks, ids=lambda chunk: f"seed-{seed}" if chunk is None else f"{chunk:02}")


@pytest.mark.timeout(3600)
def test_every_moment_of_every_copy_can_be_restored(chunk: int | None, pytestconfig: pytest.Config) -> None:
    if chunk is None:
        run_world(pytestconfig.getoption("--seed"), Counter())
        return
    count = (WORLDS_LONG if pytestconfig.getoption("--long") else WORLDS) // CHUNK_COUNT
    coverage = Counter[str]()
    for seed in range(chunk * count, (chunk + 1) * count):
        run_world(seed, coverage)
    wanted = (*COVERED, *RARE) if count >= WORLDS else COVERED
    missing = [name for name in wanted if not coverage[name]]
    assert not missing, f"{count} worlds never met {missing}"
