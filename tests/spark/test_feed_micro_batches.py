"""Feeds without end: where a query is, restarts, limits, initial values first, and history that another server has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, rows_between
from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.options import BadOption
from tidelog.spark.source.feed.reading import HistoryLost

pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is asked of the server."""
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)


def position(link: Any) -> int:
    ts: int = link.execute_command("FEED", "POSITION")[0][1]
    return ts


def values_between(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [row["value"].decode() for row in rows_between(made, start, end)]


def set_values(client: Any, *values: str) -> None:
    for value in values:
        client.set("k", value)


class Held:
    """What holds, of rows that come in any order and any number of times: the newest of each key and field."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, rows: list[dict[str, Any]]) -> None:
        self._rows += rows

    def values(self) -> dict[tuple[bytes, bytes | None], bytes]:
        found: dict[tuple[bytes, bytes | None], bytes] = {}
        for row in sorted(self._rows, key=lambda row: (row["ts"], row["seq"])):
            if row["kind"] == "deleterange":
                found.clear()
            elif row["type"] == "none":
                found = {place: value for place, value in found.items() if place[0] != row["key"]}
            elif row["value"] is None:
                found.pop((row["key"], row["field"]), None)
            else:
                found[row["key"], row["field"]] = row["value"]
        return found


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_a_query_makes_no_batches_while_idle_and_goes_on_where_it_stopped(
    spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str
) -> None:
    set_values(tide.client, "now")
    source = spark.readStream.format("tidelog").schema("value string").option("url", tide.url)
    frame = source.option("start", "initial").load("feed:key:k")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    batches = Path(checkpoint, "commits")
    query = writer.start(str(tmp_path / "out"))
    try:
        wait_for(lambda: (batches / "0").exists())
        time.sleep(1.0)
        assert not (batches / "1").exists()
        set_values(tide.client, "a")
        wait_for(lambda: (batches / "1").exists())
    finally:
        query.stop()
    set_values(tide.client, "b", "c")
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(60)
    assert query.exception() is None
    found = [row.value for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(found) == ["a", "b", "c", "now"]


def wait_for(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- positions --------------------------------------------------------------------------------------------------------


def test_every_change_is_in_one_batch(tide: Peer) -> None:
    made = micro_batches(feed="key:k", url=tide.url, start=position(tide.client))
    places = [made.initialOffset()]
    found: list[str] = []
    for values in (["1", "2"], [], ["3"]):
        set_values(tide.client, *values)
        places.append(made.latestOffset(places[-1], ALL))
        found += values_between(made, *places[-2:])
    assert found == ["1", "2", "3"]
    assert places[1] == places[2]
    assert made.latestOffset(places[-1], ALL) == places[-1]
    assert values_between(made, *places[:2]) == ["1", "2"]
    (place,) = places[-1].values()
    assert place == {"ts": position(tide.client), "epoch": place["epoch"], "seen": place["ts"]}


@pytest.mark.parametrize(("start", "expected"), [("earliest", ["1", "2", "3"]), ("latest", []), ("1", ["2", "3"])])
def test_where_a_query_begins(tmp_path: Path, start: str, expected: list[str]) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        set_values(client, "1")
        begin = str(position(client)) if start == "1" else start
        set_values(client, "2", "3")
        made = micro_batches(feed="*", url=f"redis://127.0.0.1:{server.port}", start=begin)
        first = made.initialOffset()
        assert values_between(made, first, made.latestOffset(first, ALL)) == expected


@pytest.mark.parametrize("start", ["latest", "initial"])
def test_the_first_batch_is_done_again_after_a_restart(tide: Peer, start: str) -> None:
    """Spark asks anew where it begins, and by then that is another place."""
    set_values(tide.client, "before")
    made = micro_batches(feed="key:k", url=tide.url, start=start)
    first = made.initialOffset()
    set_values(tide.client, "1", "2")
    end = made.latestOffset(first, ALL)
    set_values(tide.client, "3")
    expected = {"latest": ["1", "2"], "initial": ["3"]}[start]
    assert values_between(made, first, end) == expected
    again = micro_batches(feed="key:k", url=tide.url, start=start)
    assert values_between(again, again.initialOffset(), end) == expected
    assert values_between(again, end, again.latestOffset(end, ALL)) == ["3"]


def test_available_now_ends_where_it_began(tide: Peer) -> None:
    made = micro_batches(feed="key:k", url=tide.url, start="latest")
    first = made.initialOffset()
    set_values(tide.client, "1")
    made.prepareForTriggerAvailableNow()
    set_values(tide.client, "2")
    end = made.latestOffset(first, ALL)
    assert values_between(made, first, end) == ["1"]
    assert made.latestOffset(end, ALL) == end
    assert made.reportLatestOffset()["newest"]["0"]["ts"] == position(tide.client)


def test_limits(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        for number in range(120):
            client.mset({f"k{number}-{each}": "x" * 50_000 for each in range(2)})
        made = micro_batches(feed="*", url=f"redis://127.0.0.1:{server.port}", max_records_per_trigger=10)
        assert made.getDefaultReadLimit() == ReadMaxRows(10)
        places = [made.initialOffset()]
        found: list[list[bytes]] = []
        while (end := made.latestOffset(places[-1], made.getDefaultReadLimit())) != places[-1]:
            assert len({place["ts"] for place in end.values()}) == 1
            found.append([row["key"] for row in rows_between(made, places[-1], end)])
            places.append(end)
            assert len(places) < 100
    assert len(found) > 2
    assert sorted(key for keys in found for key in keys) == sorted(
        f"k{number}-{each}".encode() for number in range(120) for each in range(2)
    )
    assert all(sum(key.endswith(b"-0") for key in keys) * 2 == len(keys) for keys in found)


def test_the_server_is_not_asked_every_time(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 60.0)
    made = micro_batches(feed="*", url=tide.url, start="latest")
    first = made.initialOffset()
    made.latestOffset(first, ALL)
    before = tide.client.info("stats")["total_commands_processed"]
    for _ in range(20):
        made.latestOffset(first, ALL)
    assert tide.client.info("stats")["total_commands_processed"] - before < 5


def test_bad_options(tide: Peer) -> None:
    for options, says in (
        ({"start": "soon"}, "start='soon'"),
        ({"since": "1"}, "no option 'since'"),
        ({"max_records_per_trigger": 0}, "max_records_per_trigger"),
    ):
        with pytest.raises(BadOption, match=says):
            micro_batches(feed="*", url=tide.url, **options)


# --- initial values ---------------------------------------------------------------------------------------------------


def test_initial_values_and_changes_make_what_there_is(tmp_path: Path) -> None:
    """Whatever changes while they are read, and also if they are read twice."""
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        made = micro_batches(feed="*", url=f"redis://127.0.0.1:{server.port}", start="initial")
        client.mset({f"k{number}": "0" for number in range(3000)})
        client.hset("h", mapping={"a": "1", "b": "2"})
        first = made.initialOffset()
        end = made.latestOffset(first, ALL)
        held = Held()
        for attempt in range(2):
            for part in made.partitions(first, end):
                for batch in made.read(part):
                    held.add(batch.to_pylist())
                    with client.pipeline(transaction=True) as pipeline:
                        pipeline.mset({f"k{number}": f"{attempt}" for number in range(0, 3000, 7)})
                        pipeline.delete(f"k{attempt}", "h")
                        pipeline.hset("h", f"c{attempt}", "3")
                        pipeline.execute()
            client.delete(f"k{10 + attempt}")
        later = made.latestOffset(end, ALL)
        held.add(rows_between(made, end, later))
        expected = {(key, None): client.get(key) for key in client.scan_iter(match="k*", count=1000)}
        expected |= {(b"h", field): value for field, value in client.hgetall("h").items()}
        assert held.values() == expected


# --- another history --------------------------------------------------------------------------------------------------


def test_a_server_that_lost_something(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--fsync", "never") as server:
        url = f"redis://127.0.0.1:{server.port}"
        with server.client() as client:
            set_values(client, "kept")
            kept_ts = position(client)
            (journal,) = data.glob("shard-*/journal-*")
            kept_bytes = journal.stat().st_size
            made = micro_batches(feed="*", url=url, start="earliest")
            first = made.initialOffset()
            middle = made.latestOffset(first, ALL)
            set_values(client, "lost")
            end = made.latestOffset(middle, ALL)
        server.kill()
        with journal.open("r+b") as file:
            file.truncate(kept_bytes)
        with ServerProcess(data, instead_of=server) as again, again.client() as client:
            set_values(client, "new")
            assert values_between(made, first, middle) == ["kept"]
            later = made.latestOffset(end, ALL)
            with pytest.raises(HistoryLost, match=f"lost what came after ts {kept_ts}.*start={kept_ts}"):
                rows_between(made, end, later)
            assert values_between(made, middle, made.latestOffset(middle, ALL)) == ["new"]


def test_a_checkpoint_of_another_number_of_shards(tide: Peer) -> None:
    made = micro_batches(feed="*", url=tide.url)
    with pytest.raises(ClientError, match="the checkpoint has 2 shards"):
        made.latestOffset({"0": {"ts": 1}, "1": {"ts": 1}}, ALL)
