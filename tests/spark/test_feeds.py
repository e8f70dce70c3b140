"""Change feeds as batches: what each change looks like, which of them are read, and that nothing is short."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, LessThanOrEqual
from pyspark.sql.types import StringType, StructField, StructType

from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, read, reader
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import ClientError, ServerUnreachable
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.options import BadOption
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns, ShardProgress, gathered
from tidelog.spark.source.feed.position import ask_oldest
from tidelog.spark.source.feed.reading import FeedPart, HistoryErased, read_feed
from tidelog.spark.source.feed.spans import spans_of

pytestmark = pytest.mark.xdist_group("spark")

FORGETFUL = {"RETAIN_BYTES": 0, "SNAPSHOTS_KEPT": 1, "FRAME_BYTES_DEFAULT": 1024 * 1024, "FRAMES_PER_SEGMENT_MAX": 2}
"""Keeps nothing that a snapshot has."""


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[ServerProcess]:
    """A Tidelog of two shards."""
    with ServerProcess(tmp_path / "data", "--shards", "2") as running:
        yield running


def url_of(server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{server.port}"


def position(peer: Peer) -> int:
    ts: int = peer.call("FEED", "POSITION")[0][1]
    return ts


def rows_of(peer: Peer, target: str, since: int, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(feed=target, url=peer.url, since=since, **options).to_pylist()
    return found


def changes(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["type"], row["key"], row["field"], row["value"]) for row in rows]


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_all_columns_and_some_of_them(spark: SparkSession, tide: Peer) -> None:
    since = position(tide)
    tide.client.set("order:1", "new")
    tide.call("TWRITE", "order:log", "t", "e")
    tide.client.xadd("order:log", {"a": "1"})
    tide.client.set("other", "x")
    source = spark.read.format("tidelog").option("url", tide.url).option("since", since)
    rows = sorted(source.load("feed:prefix:order:").collect(), key=lambda row: row.ts)
    assert [(row.kind, bytes(row.key), row.type, row.value) for row in rows] == [
        ("value", b"order:1", "string", b"new"),
        ("value", b"order:log", "stream", None),
        ("value", b"order:log", "stream", None),
    ]
    assert [row.entries and row.entries[0].asDict() for row in rows] == [
        None,
        {"offset": 1, "id": rows[1].entries[0].id, "tag": b"t", "entry": b"e", "fields": None},
        {"offset": 2, "id": rows[2].entries[0].id, "tag": b"", "entry": None, "fields": {b"a": b"1"}},
    ]
    assert rows[0].timestamp.timestamp() == pytest.approx(rows[0].ts / 1e6)
    assert source.load("feed:*").filter(f"ts = {rows[0].ts}").count() == 1
    few = source.schema("value string, key string").load("feed:key:order:1")
    assert [tuple(row) for row in few.collect()] == [("new", "order:1")]


# --- what changes look like -------------------------------------------------------------------------------------------


def test_every_kind_of_change(tide: Peer) -> None:
    client, since = tide.client, position(tide)
    client.hset("h", mapping={"f": "1", "g": "2"})
    client.hdel("h", "f")
    client.sadd("s", "m")
    client.zadd("z", {"m": 1.5})
    client.rpush("l", "a", b"\xff", "b")
    client.lrem("l", 0, "b")
    tide.call("TWRITE", "t", "ENTRIES", "a", "1", "b", "2", "c", "3")
    tide.call("XDEL", "t", tide.call("XRANGE", "t", "-", "+", "COUNT", 1)[0][0])
    client.delete("s")
    client.flushdb()
    rows = rows_of(tide, "*", since)
    assert changes(rows) == [
        ("hash", b"h", b"f", b"1"),
        ("hash", b"h", b"g", b"2"),
        ("hash", b"h", b"f", None),
        ("set", b"s", b"m", b"1"),
        ("zset", b"z", b"m", b"1.5"),
        ("list", b"l", b"rpush", b'["a",{"base64":"/w=="},"b"]'),
        ("list", b"l", b"lrem", b'["b",[2]]'),
        ("stream", b"t", None, None),
        ("stream", b"t", b"del", b"1"),
        ("none", b"s", None, None),
        (None, b"", None, None),
    ]
    assert [row["seq"] for row in rows[:3]] == [0, 1, 0]
    assert [entry["entry"] for entry in rows[7]["entries"]] == [b"1", b"2", b"3"]
    assert (rows[-1]["kind"], rows[-1]["end"]) == ("deleterange", b"")
    assert {row["kind"] for row in rows[:-1]} == {"value"}


def test_eviction_says_which_entry_is_the_first(tide: Peer) -> None:
    tide.fill("t", 2500)
    since = position(tide)
    tide.call("TEVICT", "t", 2000)
    assert changes(rows_of(tide, "key:t", since)) == [("stream", b"t", b"evict", b"2001")]


def test_initial_values(tide: Peer) -> None:
    tide.client.mset({"a": "1", "b": "2"})
    tide.client.hset("h", "f", "1")
    tide.fill("t", 5)
    tide.client.set("a", "3")
    tide.client.rpush("l", "a", "b")
    rows = read(feed="*", url=tide.url, initial="true").to_pylist()
    assert sorted(changes(rows), key=repr) == [
        ("hash", b"h", b"f", b"1"),
        ("list", b"l", None, b'["a","b"]'),
        ("stream", b"t", None, b"1,5"),
        ("string", b"a", None, b"3"),
        ("string", b"b", None, b"2"),
    ]
    with pytest.raises(BadOption, match="initial contradicts since and until"):
        reader(feed="*", url=tide.url, initial="true", since=0)


def test_seq_goes_on_over_batches() -> None:
    events: list[Any] = [[b"value", ts, b"k", b"string", None, b"v"] for ts in (1, 1, 2, 3, 3, 3)]
    whole, place = gathered(0, events, ShardProgress(0, 0))
    assert list(whole.seqs) == [0, 1, 0, 0, 1, 2]
    assert place == ShardProgress(3, 3)
    for cut in range(1, len(events)):
        first, between = gathered(0, events[:cut], ShardProgress(0, 0))
        second, end = gathered(0, events[cut:], between)
        assert [*first.seqs, *second.seqs] == [0, 1, 0, 0, 1, 2]
        assert end == place


def test_columns_of_a_batch_that_is_mixed() -> None:
    events: list[Any] = [
        [b"value", 1, b"t", b"stream", None, [[1, b"1-0", b"tag", b"e"], [2, b"1-1", b"", [b"f", b"v"]]]],
        [b"deleterange", 2, b"a", b"c"],
        [b"value", 3, b"t", b"stream", b"evict", 7],
        [b"value", 4, b"t", b"stream", b"del", [8, 9]],
        [b"value", 5, b"k", b"string", None, b"v"],
        [b"value", 6, b"l", b"list", b"lrem", [b"x", [0, 2]]],
        [b"value", 2**62, b"k", b"none", None, None],
    ]
    rows = EventColumns(SCHEMA).batch(gathered(3, events, ShardProgress(0, 0))[0]).to_pylist()
    assert [row["value"] for row in rows] == [None, None, b"7", b"8,9", b"v", b'["x",[0,2]]', None]
    assert [row["entries"] and len(row["entries"]) for row in rows] == [2, None, None, None, None, None, None]
    assert [(row["key"], row["end"]) for row in rows[:2]] == [(b"t", None), (b"a", b"c")]
    assert rows[-1]["timestamp"] is None
    assert {row["shard"] for row in rows} == {3}
    few = StructType([StructField("value", StringType()), StructField("kind", StringType())])
    made = EventColumns(few).batch(gathered(3, events[1:3], ShardProgress(0, 0))[0]).to_pylist()
    assert made == [{"value": None, "kind": "deleterange"}, {"value": "7", "kind": "value"}]


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("*", [b"a1", b"a2", b"b", b"c"]),
        ("prefix:a", [b"a1", b"a2"]),
        ("key:b", [b"b"]),
        ('[{"key": "b"}, {"prefix": "a"}, {"key": "b"}]', [b"a1", b"a2", b"b"]),
        ('[{"span": ["a2", "c"]}]', [b"a2", b"b"]),
        ('[{"span": ["b", ""]}]', [b"b", b"c"]),
    ],
)
def test_which_keys(tide: Peer, target: str, expected: list[bytes]) -> None:
    since = position(tide)
    for key in ("a1", "a2", "b", "c"):
        tide.client.set(key, "1")
    assert [row["key"] for row in rows_of(tide, target, since)] == expected


@pytest.mark.parametrize("target", ["a", "prefix", "[]", "{}", '["a"]', '[{"keys": "a"}]', '[{"span": ["b", "a"]}]'])
def test_targets_that_are_none(target: str) -> None:
    with pytest.raises(BadOption, match=r"give \*, prefix:PREFIX, key:KEY, or a JSON list"):
        spans_of(target)


def test_which_times(tide: Peer) -> None:
    times = []
    for number in range(4):
        tide.client.set("k", number)
        times.append(position(tide))
    assert changes(rows_of(tide, "*", times[0], until=times[2])) == [
        ("string", b"k", None, b"1"),
        ("string", b"k", None, b"2"),
    ]
    cases: list[tuple[list[Filter], list[bytes]]] = [
        ([EqualTo(("ts",), times[1])], [b"1"]),
        ([GreaterThan(("ts",), times[2])], [b"2", b"3"]),  # one more than asked for
        ([GreaterThan(("ts",), times[0]), LessThanOrEqual(("ts",), times[1])], [b"0", b"1"]),
    ]
    for filters, expected in cases:
        made = reader(filters=filters, feed="key:k", url=tide.url)
        values = [row["value"] for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
        assert values == expected
    assert reader(feed="*", url=tide.url, since=times[-1]).partitions() == []
    assert list(reader(feed="*", url=tide.url).read(None)) == []


def test_a_long_history_is_read_by_several_tasks(sharded: ServerProcess) -> None:
    with sharded.client() as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(60):
            pipeline.mset({f"k{number}-{each}": "x" * 50_000 for each in range(2)})
        pipeline.execute()
    whole = reader(feed="*", url=url_of(sharded))
    cut = reader(feed="*", url=url_of(sharded), partition_records=5)
    assert len(whole.partitions()) == 2 < len(cut.partitions())
    found = [
        [(row["ts"], row["seq"], row["key"]) for p in made.partitions() for b in made.read(p) for row in b.to_pylist()]
        for made in (whole, cut)
    ]
    assert len(found[0]) == 120
    assert sorted(found[0]) == sorted(found[1])


def test_a_server_without_feeds(plain: Peer) -> None:
    with pytest.raises(ClientError, match="is not a Tidelog, and only a Tidelog has feeds"):
        reader(feed="*", url=plain.url)


# --- nothing is short -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["FEED KILL", "CLIENT KILL"])
def test_a_feed_that_is_cut_off_goes_on_where_it_was(
    sharded: ServerProcess, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """In order, after a checkpoint, or anywhere, again and again: each time while most is still to come."""
    monkeypatch.setattr(limits, "SPARK_FEED_RETRY_S", 0.001)
    monkeypatch.setattr(limits, "SPARK_BATCH_ROWS", 50)
    monkeypatch.setattr(limits, "SPARK_FEED_READ_BYTES", 4096)
    values = [[f"{number}-{each}-{'x' * 4000}" for each in range(30)] for number in range(400)]
    with sharded.client() as client:
        for together in values:
            client.mset({f"k{each}": value for each, value in enumerate(together)})
    kills, resumed_inside = 0, 0
    found: list[dict[str, Any]] = []
    made = reader(feed="*", url=url_of(sharded))
    for part in made.partitions():
        for number, batch in enumerate(made.read(part)):
            rows = batch.select(["ts", "seq", "key", "value"]).to_pylist()
            resumed_inside += rows[0]["seq"] > 0
            found += rows
            if number % 10 == 3:
                with sharded.client() as client:
                    kills += cut_off(client, way)
    assert kills > 1
    assert resumed_inside
    assert sorted(row["value"].decode() for row in found) == sorted(chain.from_iterable(values))
    assert len({(row["ts"], row["seq"], row["key"]) for row in found}) == len(found)
    assert max(row["seq"] for row in found) < 30


def cut_off(client: Any, way: str) -> int:
    """End all feeds; how many there were."""
    if way == "CLIENT KILL":
        return int(client.execute_command("CLIENT", "KILL", "SKIPME", "yes"))
    feeds = client.execute_command("FEED", "LIST")
    for feed in feeds:
        with suppress(redis.ResponseError):  # it may have come to its end meanwhile
            client.execute_command("FEED", "KILL", feed[b"id"])
    return len(feeds)


def test_a_server_that_comes_back_and_one_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_BATCH_ROWS", 1)
    monkeypatch.setattr(limits, "SPARK_FEED_READ_BYTES", 4096)
    first = ServerProcess(tmp_path / "data")
    with first.client() as client:
        for number in range(3000):
            client.set("k", f"{number}-{'x' * 2000}")
        until = client.execute_command("FEED", "POSITION")[0][1]
    server, columns, spans = Endpoint(ServerAddress.parse(url_of(first))), EventColumns(SCHEMA), spans_of("*")
    batches = read_feed(server, FeedPart(0, 0, until), spans, columns)
    found = next(batches).to_pylist()
    first.kill()
    first.close()
    restarted: list[ServerProcess] = []

    def restart() -> None:
        time.sleep(0.3)
        restarted.append(ServerProcess(tmp_path / "data", instead_of=first))

    thread = threading.Thread(target=restart)
    thread.start()
    found += [row for batch in batches for row in batch.to_pylist()]
    thread.join(30)
    assert [int(row["value"].split(b"-")[0]) for row in found] == list(range(3000))
    restarted[0].close()
    monkeypatch.setattr(limits, "SPARK_FEED_LOST_S", 0.3)
    with pytest.raises(ServerUnreachable):
        list(read_feed(server, FeedPart(0, 0, until), spans, columns))


def test_a_beginning_in_the_future_is_refused_as_the_server_does(tide: Peer) -> None:
    tide.client.set("a", "1")
    ahead = position(tide) + 3_600_000_000
    with pytest.raises(redis.ResponseError, match="ahead of the clock"):
        tide.call("CHANGEFEED", "SINCE", ahead, "KEY", "a")
    with pytest.raises(BadOption, match=f"since={ahead} lies ahead of the server's clock"):
        reader(feed="*", url=tide.url, since=ahead).partitions()
    for start in (ahead, json.dumps({"ts": ahead, "epoch": 1})):
        with pytest.raises(BadOption, match=f"start={ahead} lies ahead of the server's clock"):
            micro_batches(feed="*", url=tide.url, start=start).initialOffset()
    assert reader(feed="*", url=tide.url, until=ahead).partitions()
    assert reader(feed="*", url=tide.url, filters=[GreaterThan(("ts",), ahead)]).partitions() == []


def test_history_that_is_gone(tmp_path: Path) -> None:
    command = [*limited_server.COMMAND, json.dumps(FORGETFUL), "serve"]
    with ServerProcess(tmp_path / "data", command=command) as server, server.client() as client:
        oldest = 0
        client.set("k", "first")
        since = client.execute_command("FEED", "POSITION")[0][1]
        for _ in range(20):
            for _ in range(30):
                client.set("k", b"x" * 100_000)
            client.save()
            oldest = ask_oldest(Endpoint(ServerAddress.parse(url_of(server))), spans_of("*")[0])
            if oldest:
                break
        assert 0 < since < oldest
        made = reader(feed="*", url=url_of(server))
        assert all(part.since >= oldest for part in made.partitions())
        filtered = reader(feed="*", url=url_of(server), filters=[GreaterThan(("ts",), since)])
        parts = filtered.partitions()  # a filter asks for no more than there is
        assert parts
        assert all(part.since >= oldest for part in parts)
        with pytest.raises(HistoryErased, match=r"goes back to ts \d+\. .*start=initial"):
            reader(feed="*", url=url_of(server), since=since).partitions()
        with pytest.raises(HistoryErased, match=f"no longer has what came after ts {since}"):
            list(made.read(FeedPart(0, since, oldest)))
