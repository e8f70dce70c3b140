"""Which of several jobs gets a core that is free: each order in a Spark of its own, as the first session decides it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

TASKS: Final = 40
PROGRAM: Final = f"""
import json, sys, time
from pathlib import Path
from pyspark.util import InheritableThread
from tidelog.spark import session
from tidelog.spark.jobs.pools import SCHEDULED, pool_settings, use_pool

settings = pool_settings(Path(sys.argv[2])) if sys.argv[1] == "pools" else {{}}
spark = session("pools", "local[2]", **settings)
context = spark.sparkContext
nap = lambda part: time.sleep(0.25)
context.parallelize(range(2), 2).foreachPartition(list)  # the Python processes are there
def work():
    use_pool(spark, SCHEDULED)
    context.setJobGroup("much", "much")
    context.parallelize(range({TASKS}), {TASKS}).foreachPartition(nap)
much = InheritableThread(target=work, daemon=True)
much.start()
tracker = context.statusTracker()
def done():
    [job] = tracker.getJobIdsForGroup("much")
    return sum(tracker.getStageInfo(stage).numCompletedTasks for stage in tracker.getJobInfo(job).stageIds)
while not tracker.getJobIdsForGroup("much") or done() < 2:
    time.sleep(0.02)
begun, before = time.monotonic(), done()
context.parallelize(range(2), 2).foreachPartition(list)
print(json.dumps({{"seconds": time.monotonic() - begun, "meanwhile": done() - before, "before": before}}))
much.join()
spark.stop()
"""


def batch_beside(order: str, folder: Path) -> dict[str, Any]:
    """A small job beside one with many tasks: how long it took, and how many of those were done meanwhile."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, order, str(folder)],
        env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(240)
def test_a_batch_does_not_wait_for_a_scheduled_job(tmp_path: Path) -> None:
    fair = batch_beside("pools", tmp_path)
    assert fair["meanwhile"] < TASKS / 4, "a batch got the next cores"
    first_come = batch_beside("first come", tmp_path)
    assert first_come["meanwhile"] > TASKS / 2, "without pools, it waits for all tasks: the test would notice"
    print(json.dumps({"pools": fair, "first come": first_come}))
