"""A running job's lease, the hashes in which it says how far it is, and its figures. No Spark is needed for that."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import invoke
from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.redis_client import connect
from tidelog.spark.endpoint import Endpoint, take_endpoint
from tidelog.spark.jobs.figures import BatchFigures, Figures, Lag
from tidelog.spark.jobs.job_lease import JobLease, JobRunning, Stop
from tidelog.spark.options import Options

pytestmark = pytest.mark.xdist_group("spark")


def eventually(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def spark_server(peer: Peer) -> Endpoint:
    return take_endpoint(Options({"url": peer.url}))


def told(peer: Peer, job: str) -> dict[str, str]:
    found: dict[bytes, bytes] = peer.client.hgetall(f"tidelog:pipeline:{job}")  # type: ignore[assignment]
    return {name.decode(): value.decode() for name, value in found.items()}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_REPORT_S", 0.05)


# --- the hash and the lease -------------------------------------------------------------------------------------------


def test_a_job_says_how_far_it_is_and_keeps_its_lease(tide: Peer) -> None:
    tide.client.hset("tidelog:pipeline:lake", "of_an_earlier_run", "x")
    rows = [1]
    with spark_server(tide).connect() as client:
        figures = lambda: {"rows": rows[0], "ts": None, "last_error": "a bad row"}  # noqa: E731
        with JobLease.take(client, "lake", Stop(), figures, lease="lake:abc", ttl_ms=300) as holding:
            first = told(tide, "lake")
            assert first.keys() == {"state", "started_ms", "updated_ms", "token", "rows", "ts", "last_error"}
            assert (first["state"], first["rows"], first["ts"], first["last_error"]) == (
                "running",
                "1",
                "",
                "a bad row",
            )
            assert first["token"] == str(holding.token)
            rows[0] = 2
            eventually(lambda: told(tide, "lake")["rows"] == "2")
            eventually(lambda: int(told(tide, "lake")["updated_ms"]) > int(first["updated_ms"]) + 600)  # two terms
            assert tide.client.exists("tidelog:pipeline:lease:lake:abc")
            assert holding.told["lake"]["rows"] == 2
            holding.state = "done"
        assert told(tide, "lake")["state"] == "done"
        assert not tide.client.exists("tidelog:pipeline:lease:lake:abc")


def test_a_job_that_fails_says_why(tide: Peer) -> None:
    class Broken(Exception):
        pass

    with spark_server(tide).connect() as client:
        with pytest.raises(Broken), JobLease.take(client, "lake", Stop(), dict, lease="lake:abc"):
            raise Broken("no such table\n" + 5000 * "at com.example\n")
        assert told(tide, "lake")["state"] == "failed"
        assert told(tide, "lake")["last_error"].startswith("no such table")
        assert len(told(tide, "lake")["last_error"]) == limits.PIPELINE_TEXT_CHARS_MAX
        with JobLease.take(client, "lake", Stop(), dict, lease="lake:abc"):
            assert told(tide, "lake")["last_error"] == "", "what an earlier run left is still there"


def test_parts_have_hashes_of_their_own(tide: Peer) -> None:
    tide.client.hset("tidelog:pipeline:view:a", "of_an_earlier_run", "x")
    parts: dict[str, Figures] = {"view:a": {"rows": 1}}
    with (
        spark_server(tide).connect() as client,
        JobLease.take(
            client, "view", Stop(), lambda: {"rows": 3}, lease="view:x", parts=lambda: dict(parts)
        ) as holding,
    ):
        assert told(tide, "view")["rows"] == "3"
        assert told(tide, "view:a")["rows"] == "1"
        assert "of_an_earlier_run" not in told(tide, "view:a")
        tide.client.hset("tidelog:pipeline:view:b", "of_an_earlier_run", "x")
        parts["view:b"] = {"rows": 2, "state": "building"}
        eventually(lambda: told(tide, "view:b").get("state") == "building")
        assert "of_an_earlier_run" not in told(tide, "view:b")
        assert told(tide, "view:b")["token"] == told(tide, "view")["token"]
        eventually(lambda: holding.told.keys() == {"view", "view:a", "view:b"})  # told after it is written
        holding.state = "stopped"
    assert [told(tide, job)["state"] for job in ("view", "view:a", "view:b")] == ["stopped", "stopped", "building"]


def test_a_job_and_its_parts_are_one_transaction(tide: Peer) -> None:
    with spark_server(tide).connect() as client:
        held = JobLease.take(client, "view", Stop(), dict, lease="v", parts=lambda: {"view:a": {}, "view:b": {}})
        before = Lag(client).of(1)["lag_records"]
        with held:
            pass
        reader: Any = tide.client
        assert before is not None
        listening = reader.execute_command("FEED", "POSITION", "SINCE", 1, "BEHIND")
        assert sum(row[3] for row in listening) > int(before)
    stamps = {told(tide, job)["updated_ms"] for job in ("view", "view:a", "view:b")}
    assert len(stamps) == 1


@pytest.mark.parametrize("make", ["spark", "days"])
def test_a_second_job_is_told_who_runs(tide: Peer, make: str) -> None:
    made: Any = connect(ServerAddress.parse(tide.url)) if make == "days" else spark_server(tide).connect()
    with made as client, JobLease.take(client, "lake", Stop(), dict, lease="lake:abc"):
        with pytest.raises(JobRunning, match=r"lake did not start: .* 'lake:abc' \(lake, started \d+ s ago, last rep"):
            JobLease.take(client, "lake", Stop(), dict, lease="lake:abc")
        with JobLease.take(client, "view", Stop(), dict, lease="view:abc") as other:  # another lease, another job
            other.state = "done"


def test_a_job_may_hold_several_leases_and_has_all_or_none(tide: Peer) -> None:
    def leases() -> set[bytes]:
        return {key.rpartition(b":")[2] for key in tide.client.scan_iter(match="tidelog:pipeline:lease:*")}

    parts: dict[str, Any] = {"view:a": {}, "view:b": {}}
    with spark_server(tide).connect() as client:
        with JobLease.take(client, "view", Stop(), dict, lease=["view:a", "view:b"], parts=lambda: parts, ttl_ms=300):
            assert leases() == {b"a", b"b"}
            with pytest.raises(JobRunning, match=r"another job has the lease 'view:b' \(view:b, started"):
                JobLease.take(client, "view", Stop(), dict, lease=["view:c", "view:b"])
            assert leases() == {b"a", b"b"}
            time.sleep(0.5)  # more than a term
            assert leases() == {b"a", b"b"}
        assert leases() == set()
        stop = Stop()
        with JobLease.take(client, "view", stop, dict, lease=["view:a", "view:b", "view:c"], ttl_ms=300):
            tide.client.set("tidelog:pipeline:lease:view:b", "another's")
            assert stop.wait(20)
        assert "'view:b'" in stop.reason
        assert leases() == {b"b"}, "that of another stays"


def test_a_job_whose_lease_is_taken_away_stops_and_leaves_the_hash_alone(tide: Peer) -> None:
    stop = Stop()
    with (
        spark_server(tide).connect() as client,
        JobLease.take(client, "lake", stop, dict, lease="lake:abc", ttl_ms=300),
    ):
        tide.client.set("tidelog:pipeline:lease:lake:abc", "another's")
        assert stop.wait(20)
        tide.client.hset("tidelog:pipeline:lake", "state", "another's")
    assert "has ended" in stop.reason
    assert told(tide, "lake")["state"] == "another's"


def test_a_job_without_a_fence_takes_a_lease_again_that_nobody_has(tide: Peer) -> None:
    stop = Stop()
    held = {"lease": "lake:abc", "ttl_ms": 300, "is_fenced": False}
    with spark_server(tide).connect() as client, JobLease.take(client, "lake", stop, dict, **held) as holding:  # type: ignore[arg-type]
        tide.client.flushall()
        eventually(lambda: tide.client.exists("tidelog:pipeline:lease:lake:abc") == 1)
        eventually(lambda: told(tide, "lake").get("state") == "running")
        assert not stop.is_set()
        holding.state = "done"
    assert told(tide, "lake")["state"] == "done"


def test_figures_that_fail_stop_the_job(tide: Peer) -> None:
    stop, is_broken = Stop(), threading.Event()

    def figures() -> Figures:
        if is_broken.is_set():
            is_broken.clear()
            raise ZeroDivisionError("rows a second")
        return {}

    with spark_server(tide).connect() as client, JobLease.take(client, "lake", stop, figures, lease="lake:abc"):
        is_broken.set()
        assert stop.wait(20)
    assert stop.reason == "its report failed: ZeroDivisionError('rows a second')"


def test_status_and_metrics_show_a_running_job(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_http=True) as process:
        url = f"redis://127.0.0.1:{process.port}"
        batches = BatchFigures()
        batches.add(1000, 0.25)
        with take_endpoint(Options({"url": url})).connect() as client:
            client.set("a", "1")
            lag, ts = Lag(client), client.execute_command("FEED", "POSITION")[0][1]  # type: ignore[no-untyped-call]
            figures = lambda: {**lag.of(ts), **batches.figures(), "tables": 3}  # noqa: E731
            parts = lambda: {"view:a": {"rows": 7}}  # noqa: E731
            with JobLease.take(client, "view", Stop(), figures, lease="view:x", parts=parts):
                view, part = invoke("pipeline", "status", "--url", url, "--json").objects
                assert (view["job"], view["state"], view["rows"], view["tables"]) == ("view", "running", 1000, 3)
                assert view["lag_records"] > 0
                assert (part["job"], part["rows"]) == ("view:a", 7)
                with urllib.request.urlopen(f"http://127.0.0.1:{process.http_port}/metrics", timeout=20) as page:
                    text = page.read().decode()
        for line in (
            'up{job="view"} 1',
            'up{job="view:a"} 1',
            'rows_total{job="view"} 1000',
            'batches_total{job="view"} 1',
        ):
            assert f"\ntidelog_pipeline_{line}\n" in text
        assert '\ntidelog_pipeline_figure{job="view",name="tables"} 3\n' in text
        assert '\ntidelog_pipeline_lag_seconds{job="view"} ' in text
        view = invoke("pipeline", "status", "view", "--url", url, "--json").objects[0]
        assert view["state"] == "failed", "nobody said that it is done"


# --- figures ----------------------------------------------------------------------------------------------------------


def test_lag(tmp_path: Path) -> None:
    """Of a small journal it is exact."""
    with ServerProcess(tmp_path / "data") as process, process.client() as client:
        lag = Lag(client)
        assert lag.of(None) == {"ts": None, "lag_seconds": None, "lag_records": None}
        client.set("a", "1")
        ts = client.execute_command("FEED", "POSITION")[0][1]
        assert lag.of(ts) == {"ts": ts, "lag_seconds": 0.0, "lag_records": 0}
        assert lag.of(ts + 5_000_000) == {"ts": ts + 5_000_000, "lag_seconds": 0.0, "lag_records": 0}
        for number in range(7):
            client.set("a", number)
        later = client.execute_command("FEED", "POSITION")[0][1]
        assert lag.of(ts) == {"ts": ts, "lag_seconds": (later - ts) / 1e6, "lag_records": 7}


def test_batches() -> None:
    now = [1000.0]
    batches = BatchFigures(lambda: now[0])
    assert batches.figures() == {
        "batches": 0,
        "rows": 0,
        "batch_seconds": None,
        "batch_seconds_p50": None,
        "batch_seconds_p99": None,
        "rows_per_second": 0.0,
    }
    for number in range(1, 201):
        now[0] += 1.0
        batches.add(50, number / 1000)
    found = batches.figures()
    assert (found["batches"], found["rows"], found["batch_seconds"]) == (200, 10_000, 0.2)
    assert (found["batch_seconds_p50"], found["batch_seconds_p99"]) == (0.151, 0.2)  # of 101 to 200 ms
    assert found["rows_per_second"] == pytest.approx(50, rel=0.1)
    now[0] += 60
    assert batches.figures()["rows_per_second"] == 0


def test_a_rate_over_long_batches_and_idle_times() -> None:
    now = [0.0]
    batches = BatchFigures(lambda: now[0])
    now[0] = 30.0
    batches.add(3000, 30.0)
    assert batches.figures()["rows_per_second"] == 100
    now[0] = 45.0  # half-way through the next one
    assert batches.figures()["rows_per_second"] == 50
    now[0] = 60.0
    batches.add(6000, 30.0)
    assert batches.figures()["rows_per_second"] == 200
    batches.add(10, 0.0)  # by a clock that stood still
    assert batches.figures()["rows_per_second"] == pytest.approx(201, abs=0.1)  # of the last ten seconds
