"""How several jobs share the cores of one Spark: jobs that follow a feed come before jobs that work through a lot.

Spark normally runs the tasks of the job that was submitted first: a wave of `compress` would hold up the batches of a
view for minutes. With fair scheduling, jobs are in pools, and a core that becomes free goes to the pool that has the
least of its share. A task is never interrupted, so a batch waits for one task of the other pool, not for all.

    default      what follows a feed. Whatever thread starts a Spark job: Spark's pool for threads that name none
    scheduled    jobs that are run now and then
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.cache import write_once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEDULED: Final = "scheduled"
_POOL: Final = "spark.scheduler.pool"
_POOLS: Final = """\
<?xml version="1.0"?>
<!-- Written by tidelog.spark: a batch of a feed gets the next core that is free. -->
<allocations>
  <pool name="default"><schedulingMode>FAIR</schedulingMode><weight>3</weight><minShare>1</minShare></pool>
  <pool name="scheduled"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""


def pool_settings(cache: Path) -> dict[str, str]:
    """Spark settings for a session that several jobs share."""
    path = write_once(cache / "pools.xml", _POOLS.encode())
    return {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": path.as_uri()}


def use_pool(spark: SparkSession, name: str | None) -> None:
    """Spark jobs of this thread, and of those that inherit from it, go into this pool; None: the default."""
    spark.sparkContext.setLocalProperty(_POOL, name)  # type: ignore[arg-type]
