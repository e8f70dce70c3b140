"""A Spark cluster on this machine: a master and some workers, as processes of their own on the loopback interface."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pyspark

from tidelog.spark.java import find_java_home

SPARK: Final = Path(pyspark.__file__).parent
UP_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0


class Standalone:
    """Up when it is made; leaving the block stops it."""

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.work = folder / "work"
        try:
            log = self._start("master.Master", "--port", "0", "--webui-port", "0")
            # Each takes any port that is free, and only its log tells which.
            self.url = self._find(log, r"Starting Spark master at (spark://\S+:\d+)")
            self._page = self._find(log, r"Bound MasterWebUI to .*:(\d+)")
            for number in range(workers):
                sizes = ["--cores", str(cores), "--memory", memory, "--webui-port", "0"]
                self._start("worker.Worker", *sizes, "--work-dir", str(self.work / str(number)), self.url)
            self._wait_for(workers)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, *arguments: str) -> Path:
        """Returns its log."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_CONF_DIR")}
        kept |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK)}
        kept["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.master.rest.enabled=false"
        kept["JAVA_HOME"] = find_java_home(os.environ, self._folder)
        words = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        path = self._folder / f"{name}.{len(self._processes)}.log"
        with path.open("wb") as log:
            self._processes.append(
                subprocess.Popen([*words, *arguments], env=kept, cwd=self._folder, stdout=log, stderr=log)
            )
        return path

    def _find(self, log: Path, pattern: str) -> str:
        """What a process says in its log, when it has said it."""
        deadline = time.monotonic() + UP_S_MAX
        while (found := re.search(pattern, log.read_text())) is None:
            if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                raise RuntimeError(f"it did not start: {log.read_text()}")
            time.sleep(0.1)
        return found[1]

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    def _wait_for(self, workers: int) -> None:
        deadline = time.monotonic() + UP_S_MAX
        while time.monotonic() < deadline:
            try:
                if self.state()["aliveworkers"] == workers:
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.1)
        raise RuntimeError("the workers have not come")

    def executors(self) -> list[int]:
        """The processes of its executors, each a Java that a worker started."""
        daemons = [process.pid for process in self._processes[1:]]
        return [pid for pid in descendants(daemons) if "CoarseGrainedExecutorBackend" in command_of(pid)]

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def descendants(roots: list[int]) -> list[int]:
    """The processes below some processes."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(after_name[1])
    found = list(roots)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[len(roots) :]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
