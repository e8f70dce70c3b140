"""A cluster on this machine: a master and a worker as processes, whose executors have none of our sources installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.server_process import SOURCES, ServerProcess
from tests.spark.standalone import Standalone

pytestmark = pytest.mark.long

PROGRAM: Final = """
import sys
from tidelog.spark import session

spark = session(master=sys.argv[1], **{"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"})
frame = spark.read.format("tidelog").option("url", sys.argv[2]).load("stream:in")

def where(batches):
    import pyarrow
    import tidelog
    for _ in batches:
        pass
    yield pyarrow.record_batch({"file": [tidelog.__file__]})

print(frame.count(), frame.select("offset").mapInArrow(where, "file string").first().file)
frame.select("tag", "entry").write.format("tidelog").option("url", sys.argv[2]).mode("append").save("stream:out")
spark.stop()
"""


def test_executors_get_our_sources(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", has_flight=True) as server,
        Standalone(tmp_path) as cluster,
        server.client() as client,
    ):
        words = [word for number in range(1000) for word in ("t", str(number))]
        client.execute_command("TWRITE", "in", "ENTRIES", *words)
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": SOURCES}
        for name in ("SPARK_CONF_DIR", "TIDELOG_SPARK_LOG"):
            environment.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.url, f"redis://127.0.0.1:{server.port}"],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment,
            check=False,
        )
        count, file = done.stdout.split()
        assert count == "1000", done.stderr
        assert file.startswith(str(cluster.work)), "the executors found our sources elsewhere"
        assert client.xlen("out") == 1000
