"""`tidelog pipeline run` with Spark: jobs of one session on a real server, one that fails beside them, and a stop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cli.command_line import invoke
from tests.integration.server_process import ServerProcess, environment
from tests.spark.pipeline_world import END_S_MAX, wait_until
from tests.spark.standalone import command_of, descendants

VIEWS = """
[views.by_state]
source = "prefix:order:"
sql = "select state, count(*) as n from source group by state"
key = ["state"]
"""
JOBS = """
url = "{url}"
lease_seconds = 8

[lake]
to = "{lake}"

[view]
file = "views.toml"
to = "lake"

[compress]
every = "1s"
older_than_days = 2
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_jobs_share_a_process_and_fail_alone(tmp_path: Path) -> None:
    (tmp_path / "views.toml").write_text(VIEWS)
    (tmp_path / "occupied").write_text("no folder")
    with ServerProcess(tmp_path / "data") as server:
        client, url = server.client(), f"redis://127.0.0.1:{server.port}"
        client.hset("order:1", mapping={"state": "open"})
        file = tmp_path / "pipeline.toml"
        file.write_text(JOBS.format(url=url, lake="occupied/lake"))

        def reported(job: str, name: str) -> bytes:
            found: Any = client.hget(f"tidelog:pipeline:{job}", name)
            return found or b""

        def start(*more: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "tidelog.cli", "pipeline", "run", "--file", str(file), *more],
                env={**environment(), "PYSPARK_PYTHON": sys.executable},
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )

        with start() as running:
            try:
                wait_until(lambda: client.hget("view:by_state:open", "n") == b"1", "the view")
                wait_until(lambda: int(reported("run:lake", "failures") or 0) > 1, "the lake to fail again")
                wait_until(lambda: int(reported("run:compress", "runs") or 0) > 1, "compress to run again")
                client.hset("order:2", mapping={"state": "open"})
                wait_until(lambda: client.hget("view:by_state:open", "n") == b"2", "the view to go on")
                assert running.poll() is None
                javas = [pid for pid in descendants([running.pid]) if "SparkSubmit" in command_of(pid)]
                below = descendants(javas[:1])  # a Java that starts a program looks like two of them for a moment
                assert set(javas[1:]) <= set(below), "one Spark for all"
                told = {each["job"]: each for each in invoke("pipeline", "status", "--json", "--url", url).objects}
                assert {"run", "run:lake", "run:view", "run:compress", "view", "view:by_state"} <= set(told)
                assert (told["run"]["state"], told["run"]["failing"]) == ("running", 1)
                assert "occupied" in told["run:lake"]["last_error"]
            finally:
                running.terminate()
            shown, errors = running.communicate(timeout=END_S_MAX)
        assert running.returncode == 1, errors  # because of the lake
        assert b"lake failed: " in errors
        assert b"stopped" in shown
        assert reported("view", "state") == b"stopped"
        assert reported("run", "state") == b"done"

        file.write_text(JOBS.format(url=url, lake="lake"))
        with start("--once") as once:
            shown, errors = once.communicate(timeout=END_S_MAX)
        assert (once.returncode, errors) == (0, b"")
        keys = DeltaTable(str(tmp_path / "lake" / "changes")).to_pyarrow_table(columns=["key"])["key"].to_pylist()
        assert keys.count(b"order:1") == keys.count(b"order:2") == 1
