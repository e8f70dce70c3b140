"""A cluster on this machine: a master and a worker as processes, whose executors have none of our sources installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.integration.server_process import SOURCES, ServerProcess, free_port
from tidelog.spark.java import find_java_home

pytestmark = pytest.mark.long

SPARK: Final = Path(pyspark.__file__).parent
UP_S_MAX: Final = 60.0

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


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_CONF_DIR")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK)}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.master.rest.enabled=false"
    environment["JAVA_HOME"] = find_java_home(os.environ, folder) or environment.get("JAVA_HOME", "")
    words = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for_worker(port: int) -> None:
    deadline = time.monotonic() + UP_S_MAX
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as reply:
                if json.load(reply)["aliveworkers"]:
                    return
        except OSError:
            time.sleep(0.1)  # it does not listen yet
        time.sleep(0.1)
    raise RuntimeError("no worker has come")


def test_executors_get_our_sources(tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), "--webui-port", str(free_port()))
    with (
        ServerProcess(tmp_path / "data", has_flight=True) as server,
        daemon(tmp_path, "master.Master", "--port", str(port), "--webui-port", str(page)),
        daemon(tmp_path, "worker.Worker", *sizes, master),
    ):
        wait_for_worker(page)
        with server.client() as client:
            words = [word for number in range(1000) for word in ("t", str(number))]
            client.execute_command("TWRITE", "in", "ENTRIES", *words)
            environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
            environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": SOURCES}
            for name in ("SPARK_CONF_DIR", "TIDELOG_SPARK_LOG"):
                environment.pop(name, None)
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, master, f"redis://127.0.0.1:{server.port}"],
                capture_output=True,
                text=True,
                timeout=100,
                env=environment,
                check=False,
            )
            count, file = done.stdout.split()
            assert count == "1000", done.stderr
            assert file.startswith(str(tmp_path / "work")), "the executors found our sources elsewhere"
            assert client.xlen("out") == 1000
