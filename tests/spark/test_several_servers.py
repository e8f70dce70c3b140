"""A source of several servers: its tasks find the one that leads, or read from those that follow."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tests.channels.replicas import with_replica
from tests.client.false_follower import FalseFollower, checkpoint
from tests.integration.heir import Heir
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, read, reader, rows_between
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.spark.endpoint import Endpoint, is_leader, source_options, take_endpoint
from tidelog.spark.options import Options
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.reading import FeedPart, HistoryLost, read_feed
from tidelog.spark.source.feed.spans import spans_of

__all__ = ["with_replica"]


def test_the_options_of_a_known_server_name_all_of_them() -> None:
    url = "redis+sentinel://u:p@h:1,i:2/orders?sentinel_username=s&sentinel_password=t"
    known = take_endpoint(Options({"url": url, "database": "3"}))
    assert known.address == ServerAddress.parse(url, database=3)
    assert take_endpoint(Options(source_options(known))) == known
    assert pickle.loads(pickle.dumps(known)) == known, "with its passwords: executors have no files"
    assert "'t'" not in repr(known)


# --- the leader -------------------------------------------------------------------------------------------------------


def test_spark_reads_from_the_server_that_leads(spark: SparkSession, tide: Peer) -> None:
    tide.fill("several", 10)
    url = tide.url.replace("//", "//127.0.0.1:1,")
    for kind in ("stream:several", "feed:key:several"):
        frame = spark.read.format("tidelog").option("url", url).option("from_followers", "true").load(kind)
        if kind.startswith("feed"):
            frame = frame.where("kind = 'value'")  # tests before this one have flushed the server
        assert frame.count() == (10 if kind.startswith("stream") else 1)


def test_what_was_planned_is_read_from_the_server_that_took_over(tmp_path: Path) -> None:
    heir = Heir(tmp_path, has_flight=True)
    try:
        with heir.client() as client:
            client.execute_command("TWRITE", "orders", "ENTRIES", *(b"x" for _ in range(20)))
            client.set("k", "before")
        batch = reader(stream="orders", url=heir.url, partition_rows=4)
        parts = batch.partitions()
        feed = micro_batches(feed="key:k", url=heir.url)
        start = feed.initialOffset()
        end = feed.latestOffset(start, feed.getDefaultReadLimit())
        heir.take_over()
        rows = [row for part in parts for found in batch.read(part) for row in found.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(1, 11))
        assert [row["value"] for row in rows_between(feed, start, end)] == [b"before"]
        with heir.client() as client:
            client.set("k", "after")
        later = feed.latestOffset(end, feed.getDefaultReadLimit())
        assert [row["value"] for row in rows_between(feed, end, later)] == [b"after"]
        assert later["0"].keys() == {"ts", "epoch", "seen"}
    finally:
        heir.close()


# --- followers --------------------------------------------------------------------------------------------------------


def test_entries_are_read_from_a_follower_that_has_them(with_replica: tuple[int, int]) -> None:
    leader, follower = with_replica
    url = f"redis://127.0.0.1:{leader},127.0.0.1:{follower}"
    with redis.Redis(port=leader) as client, redis.Redis(port=follower) as its:
        for number in range(50):
            client.xadd("orders", {"number": number})
        while its.xlen("orders") < 50:
            client.wait(1, 100)
        its.config_resetstat()
        assert len(read(stream="orders", url=url, from_followers="true")) == 50
        stats = its.info("commandstats")
        assert stats["cmdstat_xrange"]["calls"] == 1
        client.config_resetstat()
        assert len(read(stream="orders", url=url)) == 50
        assert its.info("commandstats")["cmdstat_xrange"]["calls"] == 1, "unless it is said"
    server = Endpoint(ServerAddress.parse(url), from_followers=True)
    assert server.pinned(lambda _: True).address.port == follower
    assert server.pinned(lambda _: False).address.port == leader, "it has not come as far"
    with server.connect() as client:
        assert is_leader(client), "what a batch is, is asked of the leader"


@contextmanager
def false_follower(*arguments: Any) -> Iterator[FalseFollower]:
    """One that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = FalseFollower(*arguments)
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def several(tide: Peer, follower: FalseFollower) -> Endpoint:
    url = f"{tide.url},127.0.0.1:{follower.port}"
    return Endpoint(ServerAddress.parse(url), from_followers=True)


def values(server: Endpoint, part: FeedPart) -> list[Any]:
    batches = read_feed(server, part, spans_of("key:k"), EventColumns(SCHEMA))
    return [row["value"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("refusal", [b"-FEEDDIVERGED since=0\r\n", b"-FEEDTOOOLD oldest=9\r\n"])
@pytest.mark.parametrize("is_initial", [False, True])
def test_a_part_that_a_follower_refuses_is_the_leaders(tide: Peer, refusal: bytes, is_initial: bool) -> None:
    tide.client.set("k", "v")
    _, ts, epoch = tide.call("FEED", "POSITION")[0]
    with false_follower(ts, epoch, lambda: refusal) as follower:
        part = FeedPart(0, ts - 1, ts, is_initial=is_initial)
        assert values(several(tide, follower), part) == [b"v"]
        assert len(follower.feeds) == 1
        with pytest.raises(HistoryLost):
            values(several(tide, follower), FeedPart(0, ts - 1, ts, epoch=epoch + 1, seen=ts))


def test_a_follower_that_does_not_come_further_is_left(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_FEED_LOST_S", 0.2)
    tide.client.set("k", "v")
    _, ts, epoch = tide.call("FEED", "POSITION")[0]
    with false_follower(ts - 1, epoch, lambda: checkpoint(ts - 1, epoch)) as follower:
        assert values(several(tide, follower), FeedPart(0, ts - 1, ts)) == [b"v"]
        assert len(follower.feeds) == 1
