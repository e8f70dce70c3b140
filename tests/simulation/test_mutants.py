"""The simulation catches every planted bug (`mutants`), and finds none in the source as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.cooling_mutants import COOLING_MUTANTS
from tests.simulation.copy_mutants import COPY_MUTANTS
from tests.simulation.feed_mutants import FEED_MUTANTS
from tests.simulation.hold_mutants import HOLD_MUTANTS
from tests.simulation.library_mutants import LIBRARY_MUTANTS
from tests.simulation.list_mutants import LIST_MUTANTS
from tests.simulation.mutants import CAUGHT, FIRST_SEED, MUTANTS, Mutant, apply, misplaced
from tests.simulation.replication_mutants import REPLICATION_MUTANTS
from tests.simulation.rule_mutants import RULES
from tests.simulation.script_mutants import SCRIPT_MUTANTS
from tests.simulation.shipping_mutants import SHIPPING_MUTANTS
from tests.simulation.store_mutants import STORE_MUTANTS

ALL: Final = [
    *MUTANTS,
    *RULES,
    *STORE_MUTANTS,
    *COOLING_MUTANTS,
    *FEED_MUTANTS,
    *LIST_MUTANTS,
    *SCRIPT_MUTANTS,
    *LIBRARY_MUTANTS,
    *REPLICATION_MUTANTS,
    *HOLD_MUTANTS,
    *SHIPPING_MUTANTS,
    *COPY_MUTANTS,
]
CHECKOUT: Final = Path(__file__).resolve().parents[2]
WORLDS_MAX: Final = 400
"""A mutant that survives so many was not caught."""
SOUND_WORLDS: Final = 4
ALWAYS: Final = (
    "frame-lsn-off-by-one",
    "head-believed-before-it-is-proved",
    "flush-clears-other-shards",
    "result-given-to-other-nodes",
    "named-feed-not-held",
    "divergence-ignored",
    "another-lease-ignored",
    "promoted-as-the-original",
)
"""One of each kind is hunted by every run, all of them with `--long`: each takes some seconds."""


def hunt(
    kind: str, worlds_max: int, source: Path, seed: int = FIRST_SEED, focus: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{CHECKOUT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", kind, str(worlds_max), str(source), str(seed), focus],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize(
    "kind", ["crashes", "damage", "store", "cooling", "feeds", "replication", "shipping", "copies"]
)
def test_the_source_as_it_is_survives(kind: str, tmp_path: Path) -> None:
    found = hunt(kind, SOUND_WORLDS, apply(None, tmp_path))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, marks=() if each.name in ALWAYS else pytest.mark.long) for each in ALL],
    ids=[each.name for each in ALL],
)
def test_a_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    found = hunt(mutant.hunt, WORLDS_MAX, apply(mutant, tmp_path), mutant.seed, mutant.focus)
    assert found.returncode == CAUGHT, f"{mutant.name} survived: {mutant.why}\n{found.stdout}{found.stderr}"


def test_every_planted_bug_has_its_place() -> None:
    """So that a change of the source that moves one is noticed before it is hunted for."""
    assert [problem for mutant in ALL if (problem := misplaced(mutant))] == []


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 80 + 25
    assert {mutant.hunt for mutant in ALL if mutant.name in ALWAYS} == {mutant.hunt for mutant in ALL}
