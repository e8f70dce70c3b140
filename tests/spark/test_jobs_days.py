"""`tidelog pipeline compress` and `expire` on a session in this process: what they do, say and refuse."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from redis.cluster import RedisCluster

from benchmarks.peers import stop_peer
from tests.cli.command_line import Outcome, invoke
from tests.days.days_of_events import DAY_1, DAY_2, DAY_MS, MAY_MS, everything, index_of
from tests.days.servers import start_cluster
from tests.spark.conftest import Peer
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.jobset import JobSet
from tidelog.days.lease import Lease
from tidelog.days.message import EventId, Message
from tidelog.days.writer import Writer
from tidelog.spark.jobs.compress import CompressJob, HotDay
from tidelog.spark.jobs.job import Done, run_job
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.pace import Pace, Throttle
from tidelog.spark.jobs.waves import Waves, grouped

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

SETS: Final = [JobSet("queue", f"set {number}") for number in range(3)]
DAYS: Final = 4


def messages(jobset: JobSet, day: int, count: int = 50) -> list[Message]:
    first = MAY_MS + (day - 1) * DAY_MS
    event = b'{"%s": %d, "text": "%s"}'
    return [Message(EventId(first + n, 0), first + n, event % (jobset.index, n, 200 * b"x")) for n in range(count)]


@pytest.fixture
def filled(peer: Peer) -> Peer:
    """Four days, the first to the fourth of May, in each of three job sets; and keys that only look like theirs."""
    for jobset in SETS:
        Writer(peer.client, jobset).write(m for day in range(1, DAYS + 1) for m in messages(jobset, day))
    peer.client.set("{a_b}_streams", "a string")
    peer.client.sadd("{c}_streams", "no job set")
    peer.client.sadd("{d_e}_streams", "no stream")
    return peer


def pipeline(peer: Peer, job: str, older_than_days: int, *more: str, today: str = "2024-05-05") -> Outcome:
    options = ["--url", peer.url, "--older-than-days", str(older_than_days), "--today", today]
    return invoke("pipeline", job, *options, *more)


def address_of(peer: Peer) -> ServerAddress:
    return ServerAddress.parse(peer.url)


def test_compresses_every_day_that_is_old_enough(filled: Peer) -> None:
    before = {jobset.index: everything(filled.client, jobset) for jobset in SETS}
    hot = [jobset.hot(day).key for jobset in SETS for day in (DAY_1, DAY_2)]
    hot_bytes = {key: filled.client.memory_usage(key, samples=0) or 0 for key in hot}
    outcome = pipeline(filled, "compress", 2, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    streams = outcome.of_kind("stream")
    assert sorted((each["jobset"], each["day"]) for each in streams) == [
        (jobset.jobset, day) for jobset in SETS for day in ("2024-05-01", "2024-05-02")
    ]
    assert {(each["outcome"], each["events"], each["batches"], each["error"]) for each in streams} == {
        ("compressed", 50, 1, None)
    }
    summary = outcome.objects[-1]
    assert (summary["kind"], summary["streams"], summary["events"], summary["failed"]) == ("summary", 6, 300, 0)
    assert summary["memory_before_bytes"] == sum(hot_bytes.values())
    after = sum(
        filled.client.memory_usage(s.compressed(day).key, samples=0) or 0 for s in SETS for day in (DAY_1, DAY_2)
    )
    assert summary["memory_after_bytes"] == after
    assert summary["ratio"] == round(summary["memory_before_bytes"] / after, 2) > 2
    assert filled.client.keys("*_fence") == []
    assert summary["event_bytes"] == sum(each["event_bytes"] for each in streams)
    for jobset in SETS:
        assert everything(filled.client, jobset) == before[jobset.index]
        compressed = {jobset.compressed(day).key for day in (DAY_1, DAY_2)}
        assert index_of(filled.client, jobset) > compressed
    told = filled.client.hgetall("tidelog:pipeline:compress")
    assert (told[b"state"], told[b"streams"], told[b"events"], told[b"failed"]) == (b"done", b"6", b"300", b"0")
    assert int(told[b"started_ms"]) <= int(told[b"updated_ms"])
    assert not filled.client.exists("tidelog:pipeline:lease:days"), "the lease was not released"
    [shown] = invoke("pipeline", "status", "--url", filled.url, "--json").objects
    assert (shown["job"], shown["state"], shown["events"]) == ("compress", "done", 300)
    again = pipeline(filled, "compress", 2, "--json")
    assert [each["kind"] for each in again.objects] == ["summary"]
    assert again.objects[0]["streams"] == 0


def test_a_redis_cluster_works_as_well(tmp_path: Path) -> None:
    process, port = start_cluster(tmp_path)
    try:
        with RedisCluster(host="127.0.0.1", port=port) as client:
            for jobset in SETS:
                Writer(client, jobset).write(m for day in range(1, DAYS + 1) for m in messages(jobset, day))
            server = Peer(f"redis://127.0.0.1:{port}", client, False)
            outcome = pipeline(server, "compress", 2, "--cluster", "--json")
            assert (outcome.status, outcome.objects[-1]["streams"]) == (0, 6)
            outcome = pipeline(server, "expire", 3, "--cluster", "--json")
            assert (outcome.status, outcome.objects[-1]["days"]) == (0, 3)
            for jobset in SETS:
                assert everything(client, jobset) == [m for day in (2, 3, 4) for m in messages(jobset, day)]
    finally:
        stop_peer(process)


def test_a_dry_run_lists_and_changes_nothing(filled: Peer) -> None:
    before = filled.client.keys("*")
    outcome = pipeline(filled, "compress", 3, "--dry-run", "--json")
    assert outcome.status == 0
    assert sorted(each["jobset"] for each in outcome.of_kind("found")) == [jobset.jobset for jobset in SETS]
    assert outcome.objects[-1] == {"kind": "summary", "job": "compress", "dry_run": True, "found": 3}
    text = pipeline(filled, "expire", 2, "--dry-run").stdout
    assert text.count("2024-05-01, 2024-05-02") == 3
    assert sorted(filled.client.keys("*")) == sorted(before)


def test_removes_days_and_says_which(filled: Peer) -> None:
    assert pipeline(filled, "compress", 3).status == 0
    outcome = pipeline(filled, "expire", 2, "--json")
    assert outcome.status == 0
    assert {tuple(each["days"]) for each in outcome.of_kind("jobset")} == {("2024-05-01", "2024-05-02")}
    assert (outcome.objects[-1]["jobsets"], outcome.objects[-1]["days"]) == (3, 6)
    for jobset in SETS:
        assert everything(filled.client, jobset) == [*messages(jobset, 3), *messages(jobset, 4)]
    assert filled.client.hget("tidelog:pipeline:expire", "days") == b"6"


def test_what_fails_is_reported_and_the_others_go_on(filled: Peer) -> None:
    hot = SETS[1].hot(DAY_1).key
    filled.client.xadd(hot, {"event": b"{}", "more": b"a field that no batch has"}, id=f"{MAY_MS + 1000}-0")
    outcome = pipeline(filled, "compress", 3)
    assert outcome.status == 1
    lines = outcome.stdout.splitlines()
    assert lines[0].split()[:2] == ["streams", "events"]
    assert lines[1].split()[0] == "2"
    assert "set 1" in lines[-1]
    assert "fields that a batch cannot keep" in lines[-1]
    assert hot in index_of(filled.client, SETS[1])
    told: Any = filled.client.hget("tidelog:pipeline:compress", "last_error")
    assert b"fields that a batch cannot keep" in told


def test_days_that_would_not_shrink_are_left_hot_and_not_tried_again(filled: Peer) -> None:
    small = JobSet("queue", "small")
    Writer(filled.client, small).write(messages(small, 1, 2))
    outcome = pipeline(filled, "compress", 3, "--json")
    assert (outcome.status, outcome.objects[-1]["streams"], outcome.objects[-1]["left_hot"]) == (0, 3, 1)
    assert {(each["jobset"], each["outcome"]) for each in outcome.of_kind("stream")} >= {("small", "left hot")}
    assert index_of(filled.client, small) == {small.hot(DAY_1).key}
    listed = pipeline(filled, "compress", 3, "--dry-run", "--json")
    assert listed.objects[-1]["found"] == 0, "the next run needs no Spark"
    assert pipeline(filled, "compress", 3, "--min-saving", "-10", "--json").objects[-1]["streams"] == 1


def test_a_flush_of_leases_and_reports_does_not_end_a_job(
    filled: Peer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PIPELINE_WAVE_ITEMS", 1)
    monkeypatch.setattr(limits, "PIPELINE_REPORT_S", 0.05)
    job, stop = CompressJob(address_of(filled), older_than_days=0, today=date(2024, 5, 5)), Stop()
    flushed: list[Any] = []

    def flush(_: Done) -> None:
        if not flushed:
            keys = filled.client.keys("tidelog:pipeline:*")
            flushed.append(filled.client.delete(*keys))
            _wait_for(lambda: filled.client.exists("tidelog:pipeline:lease:days") == 1)

    run_job(job, lambda: spark, stop, pace=Pace(), lease_ms=600, on_result=flush, on_found=lambda *_: None)
    assert flushed
    assert stop.reason == ""
    assert job.total.items == 12
    assert filled.client.hget("tidelog:pipeline:compress", "state") == b"done"
    assert b"compress" in filled.client.smembers("tidelog:pipeline:jobs")


def test_small_items_share_a_task() -> None:
    mib = limits.MIB
    assert grouped([1, 2, 3], None) == [[1], [2], [3]]
    assert grouped([5 * mib, 5 * mib, 7 * mib, 90 * mib, mib, mib], lambda item: item) == [
        [5 * mib, 5 * mib], [7 * mib], [90 * mib], [mib, mib],
    ]  # fmt: skip
    assert grouped([1, None, 2, 3], lambda item: item) == [[1], [None], [2, 3]]
    assert [len(group) for group in grouped(range(40), lambda item: item)] == [32, 8]
    assert grouped([], lambda item: item) == []


def test_one_job_at_a_time(filled: Peer) -> None:
    lease = Lease.take(filled.client, "days")
    assert lease is not None
    for job in ("compress", "expire"):
        outcome = pipeline(filled, job, 1)
        assert outcome.status == 3
        assert "another job has the lease 'days'" in outcome.stderr
    assert all(len(index_of(filled.client, jobset)) == DAYS for jobset in SETS)
    lease.release()
    assert pipeline(filled, "compress", 1).status == 0


def test_a_later_job_ends_this_one(filled: Peer) -> None:
    filled.client.set(SETS[0].fence, 10**18)
    outcome = pipeline(filled, "compress", 1, "--json")
    assert outcome.status == 2
    assert "was replaced by a later one" in outcome.stderr
    assert filled.client.hget("tidelog:pipeline:compress", "state") == b"stopped"


def test_a_lost_lease_ends_the_job(filled: Peer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_WAVE_ITEMS", 1)
    job, stop = CompressJob(address_of(filled), older_than_days=0, today=date(2024, 5, 5)), Stop()

    def lose(_: Done) -> None:
        filled.client.set("tidelog:pipeline:lease:days", "another")
        stop.wait(20)

    run_job(job, lambda: spark, stop, pace=Pace(), lease_ms=1500, on_result=lose, on_found=lambda *_: None)
    assert "has ended" in stop.reason
    assert job.total.items == 1
    assert filled.client.get("tidelog:pipeline:lease:days") == b"another"


def test_work_is_found_in_waves(filled: Peer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_WAVE_ITEMS", 5)
    monkeypatch.setattr(limits, "DAYS_SCAN_INDEXES", 2)
    job = CompressJob(address_of(filled), older_than_days=0, today=date(2024, 5, 5))
    found: list[tuple[int, bool]] = []
    run_job(
        job, lambda: spark, Stop(), pace=Pace(), on_result=lambda _: None, on_found=lambda *each: found.append(each)
    )
    assert found == [(6, False), (11, False), (12, True)]
    assert job.total.items == 12


def test_results_come_while_others_still_run_and_stopping_keeps_them(spark: SparkSession) -> None:
    stop, seen = Stop(), list[int]()

    def sleep_at_two(item: int) -> int:  # inside, so that executors need not find this module
        if item == 2:
            time.sleep(60)
        return item

    waves = Waves[int, int](spark, stop, on_result=seen.append, failed=lambda item, _: -item)

    def stop_after_one() -> None:
        _wait_for(lambda: 1 in seen)
        stop.because("enough")

    threading.Thread(target=stop_after_one, daemon=True).start()
    begun = time.monotonic()
    waves.run([1, 2], sleep_at_two)
    assert seen == [1]
    assert time.monotonic() - begun < 25


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_an_item_that_kills_its_process_fails_alone(spark: SparkSession) -> None:
    seen: list[Any] = []

    def kill_at_two(item: int) -> int:
        if item == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    waves = Waves[int, Any](spark, Stop(), on_result=seen.append, failed=lambda item, why: (item, why))
    waves.run([1, 2, 3], kill_at_two)
    assert sorted(each for each in seen if isinstance(each, int)) == [1, 3]
    [(item, why)] = [each for each in seen if not isinstance(each, int)]
    assert item == 2
    assert why


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "parallel", "items", "seconds", "share"),
    [
        (Pace(), 4, limits.PIPELINE_WAVE_ITEMS, 0, None),
        (Pace(items_per_hour=1), 4, 1, 3600, None),
        (Pace(items_per_hour=3600), 4, 10, 10, None),
        (Pace(bytes_per_second=1000), 4, 4, 0, 250),
        (Pace(items_per_hour=360, bytes_per_second=1000), 4, 1, 10, 1000),
    ],
)
def test_a_wave_has_what_the_limits_allow(
    pace: Pace, parallel: int, items: int, seconds: float, share: float | None
) -> None:
    assert pace.wave_items(parallel) == items
    assert pace.wave_seconds(items) == pytest.approx(seconds)
    assert pace.share(items) == share


def test_a_task_waits_until_its_bytes_fit_its_share() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(100, monotonic=lambda: now[0], sleep=sleep)
    throttle(50)
    now[0] += 10
    throttle(50)
    throttle(1000)
    assert slept == [0.5, 0.5]
    assert now[0] == 11


def test_bytes_a_second_hold_over_all_tasks(filled: Peer) -> None:
    sizes = sum(len(message.event) for jobset in SETS for message in messages(jobset, 1))
    begun = time.monotonic()
    outcome = pipeline(filled, "compress", 3, "--bytes-per-second", str(sizes // 2), "--json")
    assert outcome.status == 0
    assert time.monotonic() - begun > 1.9


def test_streams_an_hour_are_spread(filled: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_WAVE_S", 0.5)
    begun = time.monotonic()
    assert pipeline(filled, "compress", 3, "--streams-per-hour", "3600").status == 0
    assert time.monotonic() - begun > 1.9, "three streams, one a second"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--today", "yesterday"), "is not a date"),
        (("--conf", "nonsense"), "is not NAME=VALUE"),
        (("--url", "http://127.0.0.1"), "is not the URL of a server"),
        (("--url", "redis://127.0.0.1:1"), "no server answers"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(peer: Peer, more: tuple[str, ...], said: str) -> None:
    outcome = pipeline(peer, "compress", 2, *more)
    assert outcome.status == 2
    [line] = outcome.stderr.splitlines()
    assert said in line


def test_an_item_can_be_told_apart_and_failed() -> None:
    job = CompressJob(ServerAddress("h", 1, password="secret"), older_than_days=2, today=date(2024, 5, 5))
    done = job.failed(HotDay("q", "s", DAY_1), "why")
    assert (done.outcome, done.error, done.days) == ("failed", "why", ("2024-05-01",))
    assert "secret" not in repr(job.address)
    assert job.first_kept == date(2024, 5, 3)
