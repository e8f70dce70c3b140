"""`feed:...` of a copy: its server's rows, whichever lineage they lie in, and an error where some are lost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server_process import ServerProcess
from tests.spark.in_process import micro_batches, reader, rows_between
from tests.spark.shipped_copies import CopyPlace, place, succeed
from tests.spark.test_lake import write
from tests.spark.test_shipped_journal import put
from tests.store.changes import run
from tidelog import limits
from tidelog.errors import ClientError, TooOld
from tidelog.feeds.span import span_of_prefix
from tidelog.spark.copies.past_shard import past_moments
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.spark.source.feed import copied_streams
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.reading import HistoryErased, HistoryLost
from tidelog.spark.source.feed.shipped import CopyPlace as FeedPlace
from tidelog.spark.source.feed.shipped import find_copy
from tidelog.spark.source.stream.copied import copies_in

__all__ = ["place"]
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(200)]


def rows(target: str = "*", **options: Any) -> list[dict[str, Any]]:
    made = reader(feed=target, **options)
    found = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["shard"], row["ts"], row["seq"]))


def of_copy(place: CopyPlace, target: str = "*", **options: Any) -> list[dict[str, Any]]:
    return rows(target, **{"from": place.url}, **place.options, **options)


def batches(place: CopyPlace, **options: Any) -> Any:
    given: dict[str, Any] = {"feed": "*", "from": place.url, **place.options, **options}
    return micro_batches(**given)


def keys(found: list[dict[str, Any]]) -> list[str]:
    return [row["key"].decode() for row in sorted(found, key=lambda row: row["ts"])]


def test_a_copy_has_the_rows_of_its_server(place: CopyPlace, tmp_path: Path) -> None:
    copy: dict[str, Any] = {"from": place.url, **place.options}
    draw = random.Random(4)
    with ServerProcess(tmp_path / "data", "--shards", "3", "--ship-to", place.url, **place.env) as server:
        url = f"redis://127.0.0.1:{server.port}"
        with server.client() as client:
            write(client, draw, 400)
            client.flushdb()
            write(client, draw, 200)
            client.set("large", b"x" * 3_000_000)
            client.rpush("list", "a", "b")
            client.execute_command("RENAME", "x:1" if client.exists("x:1") else "large", "renamed")
            client.execute_command("DELRANGE", "s:1", "s:3")
            write(client, draw, 200)
        wanted = [rows(target, url=url) for target in ("*", "prefix:s:", "key:large")]
        last = max(row["ts"] for row in wanted[0])
        values = [{**row, "ts": 0, "timestamp": None, "seq": 0} for row in rows(url=url, initial=True)]
    assert len(wanted[0]) > 400
    for target, found in zip(("*", "prefix:s:", "key:large"), wanted, strict=True):
        assert rows(target, **copy) == found
    assert rows(partition_records=50, **copy) == wanted[0]
    middle = wanted[0][len(wanted[0]) // 2]["ts"]
    assert rows(since=middle, **copy) == [row for row in wanted[0] if row["ts"] > middle]
    initial = rows(initial=True, **copy)
    assert {row["ts"] for row in initial} == {last}
    told = [{**row, "ts": 0, "timestamp": None, "seq": 0} for row in initial]
    assert sorted(told, key=repr) == sorted(values, key=repr)


def test_batches_go_on_where_a_copy_grows(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    made = batches(place)
    start = made.initialOffset()
    end = made.latestOffset(start, made.getDefaultReadLimit())
    assert [row["key"] for row in sorted(rows_between(made, start, end), key=lambda row: row["ts"])] == [b"one", b"two"]
    put(shipped, "three")
    shipped.ship()
    again = batches(place)
    later = again.latestOffset(end, made.getDefaultReadLimit())
    assert [row["key"] for row in rows_between(again, end, later)] == [b"three"]
    assert rows_between(again, end, end) == []


def test_a_reader_goes_on_over_lineages_and_is_told_of_what_was_lost(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    at = _end(place)
    put(shipped, "lost")
    shipped.ship()
    beyond = _end(place)
    second = succeed(shipped, until=min(place_["ts"] for place_ in at.values()))
    second.begin()
    second.settle()
    put(second, "three")
    second.ship()

    assert keys(of_copy(place)) == ["one", "two", "three"]
    made = batches(place)
    end = made.latestOffset(at, made.getDefaultReadLimit())
    assert [row["key"] for row in rows_between(made, at, end)] == [b"three"]
    with pytest.raises(HistoryLost, match="has lost what came after"):
        rows_between(made, beyond, end)


@pytest.mark.parametrize("saves", [False, True])
def test_a_reader_goes_on_however_often_the_server_was_started_since(place: CopyPlace, saves: bool) -> None:
    """Manifests name the newest epochs only."""
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one")
    shipped.ship()
    at = _end(place)
    for number in range(2 * limits.SHIPPED_EPOCHS_MAX):
        shipped.journal.begin_epoch(1000 + number)
        put(shipped, f"key{number:02}")
        if saves and number == limits.SHIPPED_EPOCHS_MAX // 2:
            shipped.save()
    shipped.ship()
    assert len(shipped.newest.epochs) == limits.SHIPPED_EPOCHS_MAX

    made = batches(place)
    end = made.latestOffset(at, made.getDefaultReadLimit())
    found = keys(rows_between(made, at, end))
    assert found == [f"key{number:02}" for number in range(2 * limits.SHIPPED_EPOCHS_MAX)]


def test_a_gap_is_an_error_and_a_new_reader_begins_behind_it(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    at = _end(place)
    second = succeed(shipped)
    put(second, "three")  # before its first snapshot was made
    second.store.save()
    second.begin()
    second.settle()
    put(second, "four")
    second.ship()

    assert keys(of_copy(place)) == ["four"]
    with pytest.raises(TooOld, match="no longer has"):
        of_copy(place, since=1)
    made = batches(place)
    with pytest.raises(HistoryErased, match="start=initial"):
        rows_between(made, at, made.latestOffset(at, made.getDefaultReadLimit()))


def test_streams_that_were_copied_are_replayed_once_for_all_events_of_a_batch(
    place: CopyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = place.shipped(shards=1)
    shipped.begin()
    expected: dict[tuple[str, int], list[bytes]] = {}
    entries: list[bytes] = []
    for number in range(12):
        name = f"s{number}"
        entries.append(b"%d" % number)
        before = f"s{number - 1}" if number else "first"
        run(shipped.store, [b"TWRITE", before.encode(), b"tag", entries[-1]])
        shipped.journal.writer.write()
        run(shipped.store, [b"RENAME" if number % 3 else b"COPY", before.encode(), name.encode()])
        shipped.journal.writer.write()
        expected[name, shipped.journal.writer.written_ts] = list(entries)
        if number == 4:
            shipped.save()
    shipped.ship()

    replays: list[WantedKeys] = []

    def counted(moment: Any, shard: int, wanted: WantedKeys) -> Any:
        replays.append(wanted)
        return past_moments(moment, shard, wanted)

    monkeypatch.setattr(copied_streams, "past_moments", counted)
    origin = find_copy(FeedPlace(place.url, place.storage))
    given: dict[str, Any] = {"feed": "*", "from": place.url, **place.options}
    made = reader(**given)
    [part] = made.partitions()
    own = origin.of_part(part)
    found: dict[tuple[str, int], list[bytes]] = {}
    for batch in own.read(part, [span_of_prefix(b"")], EventColumns(SCHEMA)):
        for copy in copies_in(batch):
            read = own.copied(copy["key"], copy["value"], copy["ts"])
            found[copy["key"].decode(), copy["ts"]] = [row["entry"] for each in read for row in each.to_pylist()]
    assert found == expected
    assert len(replays) == 1

    again = origin.of_part(part)  # in any order, too
    for (name, ts), its in random.Random(2).sample(list(expected.items()), len(expected)):
        value = b"%d,%d,0-0" % (1, len(its))
        assert [row["entry"] for each in again.copied(name.encode(), value, ts) for row in each.to_pylist()] == its


def test_a_history_that_a_copy_does_not_know(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    end = _end(place)
    ts = end["0"]["ts"]
    made = batches(place, start=json.dumps({"ts": 1, "epoch": 5}))
    with pytest.raises(HistoryLost):
        rows_between(made, made.initialOffset(), end)
    ahead = json.dumps({"ts": 1, "epoch": 5, "seen": ts + 1})
    made = batches(place, start=ahead)
    with pytest.raises(ClientError, match="has not come as far"):
        rows_between(made, made.initialOffset(), end)


def _end(place: CopyPlace) -> Any:
    """Where the copy ends, as a checkpoint has it."""
    made = batches(place)
    found = made.latestOffset(made.initialOffset(), made.getDefaultReadLimit())
    return {shard: {name: its for name, its in at.items() if name != "after"} for shard, at in found.items()}
