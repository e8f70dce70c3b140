"""Random views over random changes are what a naive computation makes of the store, at every checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.server_process import ServerProcess
from tests.spark.kept_views import KeptViews, compare
from tests.spark.random_views import random_view
from tests.spark.view_world import World

pytestmark = pytest.mark.xdist_group("spark")

KINDS = ("prefix", "prefix", "prefix", "stream", "days")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("two") / "data", "--shards", "2", has_flight=True) as running:
        yield running


def play(spark: SparkSession, process: ServerProcess, folder: Path, seed: int, checkpoints: int) -> None:
    chance = random.Random(seed)
    with process.client() as client:
        client.flushall()
        world = World(client, seed, flushes=False)
        kept = KeptViews(spark, process.port, folder)
        views = [random_view(chance, f"v{number}", kind) for number, kind in enumerate(KINDS)]
        declared = [each.view for each in views]

        def compare_all(when: object) -> None:
            for each in views:
                compare(kept, world, each, (seed, when))

        world.write(chance.choice([0, 40]))
        kept.once(declared)
        compare_all("built")
        with kept.continuous(declared) as job:
            for checkpoint in range(checkpoints):
                world.write(chance.randrange(1, 30))
                kept.catch_up(job, client)
                compare_all(checkpoint)
        world.write(30)
        if chance.random() < 0.5:
            client.flushdb()
            world.write(10)
        kept.once(declared, batch_records=chance.choice([1, 5, 100_000]))
        compare_all("again")
        kept.check(chance.choice(declared))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1])
def test_views_are_what_a_naive_computation_makes(
    spark: SparkSession, process: ServerProcess, tmp_path: Path, seed: int
) -> None:
    play(spark, process, tmp_path, seed, 1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_more_views_are_too(spark: SparkSession, process: ServerProcess, tmp_path: Path, seed: int) -> None:
    play(spark, process, tmp_path, seed, 15)
