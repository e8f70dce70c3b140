"""`failOnDataLoss`: what was to be read is gone, which is an error, or is passed over and logged."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.days.days_of_events import DAY_3, JOBSET, on
from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, reader, rows_between
from tests.spark.shipped_copies import CopyPlace, place, succeed
from tests.spark.test_feed_micro_batches import position, set_values, values_between
from tests.spark.test_feeds import FORGETFUL
from tests.spark.test_shipped_journal import put
from tidelog import limits
from tidelog.days import Writer, expire_days
from tidelog.spark.options import BadOption
from tidelog.spark.source.feed.reading import HistoryErased, HistoryLost

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()
PASSED_OVER = "data loss, passed over because failOnDataLoss is false"


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)
    monkeypatch.setattr(limits, "COPY_POLL_S", 0.0)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_evicted_entries_are_passed_over_and_logged(tide: Peer, caplog: pytest.LogCaptureFixture) -> None:
    tide.fill("s", 3000)
    batch = reader(stream="s", url=tide.url, failOnDataLoss="false")
    (part,) = batch.partitions()
    endless = micro_batches(stream="s", url=tide.url, failOnDataLoss="false")
    tide.call("TEVICT", "s", 1000)
    assert sum(each.num_rows for each in batch.read(part)) == 2000
    (what,) = told(caplog)
    assert what.startswith(f"{PASSED_OVER}: entries 1 to 1000 of stream 's' were evicted before they were read")
    assert len(rows_between(endless, {"s": 501}, {"s": 3001})) == 2000
    assert "entries 501 to 1000 of stream 's'" in told(caplog)[0]
    assert len(rows_between(endless, {"s": 1001}, {"s": 3001})) == 2000
    assert told(caplog) == []


def test_a_day_that_was_removed_is_logged(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    Writer(peer.client, JOBSET).write(on(1, range(20)))
    made = reader(days="queue/jobs", url=peer.url, failOnDataLoss="false")
    (part,) = made.partitions()
    expire_days(peer.client, JOBSET, keep_days=0, today=DAY_3)
    assert list(made.read(part)) == []
    assert "_2024-05-01 was removed before all of it was read" in told(caplog)[0]


def forget(client: Any, since: int) -> None:
    """Write until the journal no longer has what came after a ts."""
    for number in range(600):
        client.set("k", b"%d" % number + b"x" * 100_000)
        if number % 30 == 29:
            client.save()
            rows = client.execute_command("FEED", "POSITION", "SINCE", since, "BEHIND")
            if rows[0][4] > since:
                return
    raise AssertionError("the journal forgets nothing")


def test_a_feed_goes_on_at_what_the_journal_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command = [*limited_server.COMMAND, json.dumps(FORGETFUL), "serve"]
    with ServerProcess(tmp_path / "data", command=command) as server, server.client() as client:
        target: dict[str, Any] = {"feed": "*", "url": f"redis://127.0.0.1:{server.port}"}
        client.set("k", "first")
        made = micro_batches(**target, start="latest")
        start = made.initialOffset()
        since = next(iter(start.values()))["ts"]
        forget(client, since)
        end = made.latestOffset(start, ALL)
        with pytest.raises(HistoryErased, match="failOnDataLoss=false goes on after ts"):
            rows_between(made, start, end)
        with pytest.raises(HistoryErased, match="failOnDataLoss=false goes on after ts"):
            reader(**target, since=since).partitions()
        caplog.clear()
        lenient = micro_batches(**target, start="latest", failOnDataLoss="false")
        assert len(rows_between(lenient, start, end)) > 0
        (what,) = told(caplog)
        assert f"no longer has what came after ts {since}" in what
        batch = reader(**target, since=since, failOnDataLoss="false")
        rows = [row for part in batch.partitions() for some in batch.read(part) for row in some.to_pylist()]
        assert rows
        assert f"no longer has what came after ts {since}" in told(caplog)[0]
        assert rows[-1]["value"] == client.get("k")


def test_a_feed_goes_on_with_another_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server has lost what was read; what it wrote instead is read, from where the histories part."""
    data = tmp_path / "data"
    with ServerProcess(data, "--fsync", "never") as server:
        url = f"redis://127.0.0.1:{server.port}"
        with server.client() as client:
            set_values(client, "kept")
            (journal,) = data.glob("shard-*/journal-*")
            kept_bytes, kept_ts = journal.stat().st_size, position(client)
            made = micro_batches(feed="*", url=url, start="earliest")
            first = made.initialOffset()
            set_values(client, "lost")
            end = made.latestOffset(first, ALL)
        server.kill()
        with journal.open("r+b") as file:
            file.truncate(kept_bytes)
        with ServerProcess(data, instead_of=server) as again, again.client() as client:
            set_values(client, "new", "newer")
            later = made.latestOffset(end, ALL)
            with pytest.raises(HistoryLost, match="failOnDataLoss=false goes on with what came after that ts"):
                rows_between(made, end, later)
            caplog.clear()
            for pieces in (1, 3):
                lenient = micro_batches(feed="*", url=url, failOnDataLoss="false", minPartitions=pieces)
                later = lenient.latestOffset(end, ALL)
                assert sorted(values_between(lenient, end, later)) == ["new", "newer"]
                assert f"has lost what came after ts {kept_ts}" in told(caplog)[0]
            set_values(client, "newest")
            assert values_between(made, later, made.latestOffset(later, ALL)) == ["newest"]


def test_a_copy_with_a_gap_is_read_on_behind_it(place: CopyPlace, caplog: pytest.LogCaptureFixture) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    target: dict[str, Any] = {"feed": "*", "from": place.url, **place.options}
    before = micro_batches(**target)
    at = before.latestOffset(before.initialOffset(), ALL)
    second = succeed(shipped)
    put(second, "three")  # before its first snapshot was made
    second.store.save()
    second.begin()
    second.settle()
    put(second, "four")
    second.ship()

    strict, lenient = (micro_batches(**target, failOnDataLoss=word) for word in ("true", "false"))
    end = strict.latestOffset(at, ALL)
    with pytest.raises(HistoryErased):
        rows_between(strict, at, end)
    assert [row["key"] for row in rows_between(lenient, at, lenient.latestOffset(at, ALL))] == [b"four"]
    assert any("has no transactions after ts" in what for what in told(caplog))
    batch = reader(**target, since=1, failOnDataLoss="false")
    rows = [row for part in batch.partitions() for some in batch.read(part) for row in some.to_pylist()]
    assert [row["key"] for row in rows] == [b"four"]


def test_jobs_are_never_lenient(tide: Peer) -> None:
    with pytest.raises(BadOption, match="failOnDataLoss must be true"):
        micro_batches(feedparts="*", url=tide.url, failOnDataLoss="false")


def test_a_query_goes_on_after_a_loss_from_its_checkpoint(
    spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str
) -> None:
    tide.fill("s", 2000)
    source = spark.readStream.format("tidelog").schema("offset long").option("url", tide.url)

    def run(**options: str) -> Exception | None:
        frame = source.options(**options).load("stream:s")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        try:
            query.awaitTermination(60)
        except Exception as error:
            return error
        return None

    assert run() is None
    tide.fill("s", 3000, first=2000)
    tide.call("TEVICT", "s", 4000)
    assert "entries 2001 to 4000 of stream 's' were evicted" in str(run())
    assert run(failOnDataLoss="false") is None
    found = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == [*range(1, 2001), *range(4001, 5001)]
