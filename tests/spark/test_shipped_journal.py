"""`journal:URL` of a copy: every record of its history once, whichever lineage it lies in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.in_process import reader
from tests.spark.shipped_copies import CopyPlace, Recorded, place, state_rows, succeed
from tests.store.changes import run
from tidelog import limits
from tidelog.errors import TooOld
from tidelog.journal.frame import HEADER_BYTES_MAX
from tidelog.journal.layout import META
from tidelog.spark.copies import address
from tidelog.spark.copies.address import HistoryAddress, open_objects
from tidelog.spark.copies.runs import history_runs
from tidelog.system.counted_store import CountedStore

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")


def rows(place: CopyPlace, **options: Any) -> list[tuple[Any, ...]]:
    made = reader(path=f"journal:{place.url}", **place.options, **options)
    found = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    return [(row["ts"], row["shard"], row["lsn"], row["op"], row["key"], row["value"]) for row in found]


def put(shipped: Recorded, *names: str) -> None:
    for name in names:
        shipped.clock.advance(1_000_000)
        run(shipped.store, [b"SET", name.encode(), name.encode()])
        shipped.journal.writer.write()
        shipped.note()


def keys(found: list[tuple[Any, ...]]) -> list[str]:
    return [key.decode() for _, _, _, op, key, _ in sorted(found) if op == "val"]


def test_every_record_that_was_shipped_is_there_once(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    shipped.change(120)
    shipped.ship()
    shipped.save()
    shipped.change(30)
    shipped.ship()

    found = rows(place)
    assert len(set(found)) == len(found)
    assert {ts for ts, *_ in found} == set(shipped.rows)
    middle = sorted(shipped.rows)[70]
    assert rows(place, since=middle, partition_frames=1) == [row for row in found if row[0] >= middle]
    assert rows(place, until=middle) == [row for row in found if row[0] <= middle]
    named = [row for row in found if row[4] is not None and row[4].startswith(b"key1")]
    assert [row for row in rows(place, prefix="key1") if row[4] is not None and row[4].startswith(b"key1")] == named


def test_planning_fetches_heads_and_not_what_lies_around_them(
    place: CopyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHIPPED_HOLE_BYTES", 0)  # frames are small here, and close to each other
    shipped = place.shipped(shards=1)
    shipped.begin()
    shipped.change(400)
    shipped.ship()
    segments = [path for path in shipped.newest.lineages[-1].files if "/journal-" in path]
    assert len(segments) > 2
    opened: list[CountedStore] = []

    def counted(*given: Any) -> CountedStore:
        opened.append(CountedStore(open_objects(*given)))
        return opened[-1]

    def planned(**options: Any) -> int:
        """How many heads are fetched."""
        made = reader(path=f"journal:{place.url}", **place.options, partition_frames=1, **options)
        made.reader._address.open_copy()  # the manifest
        before = sum(store.bytes_read for store in opened)
        read = sum(store.requests["read"] for store in opened)
        assert made.partitions()
        meta_bytes = 2 * sum(file.size for path, file in files.items() if path.endswith(META))
        read = sum(store.requests["read"] for store in opened) - read
        assert sum(store.bytes_read for store in opened) - before <= read * HEADER_BYTES_MAX + meta_bytes
        return read

    files = shipped.newest.lineages[-1].files
    monkeypatch.setattr(address, "open_objects", counted)
    everything = planned()
    last = max(shipped.rows)
    assert planned(since=last) < everything
    monkeypatch.setattr(address, "_OPENED", type(address._OPENED)())


def test_lineages_do_not_repeat_each_other(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    put(shipped, "lost")
    second = succeed(shipped)
    second.begin()
    second.settle()
    put(second, "three", "four")
    second.save()
    third = succeed(second)
    third.begin()
    third.settle()
    put(third, "five")
    third.save()
    put(third, "six")
    third.ship()

    manifest = third.newest
    assert len(manifest.lineages) == 3
    assert len(history_runs(manifest)) == 3
    assert keys(rows(place)) == ["one", "two", "three", "four", "five", "six"]
    shown = {ts for ts, *_ in rows(place)}
    for ts in sorted(third.rows):
        if ts in shown:  # "lost" is not
            made = reader(path="state:*", at=ts, **{"from": place.url, **place.options})
            found = [state_rows(batch) for part in made.partitions() for batch in made.read(part)]
            assert set().union(*found) == third.rows_at(ts)


def test_a_gap_between_lineages_is_told(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    second = succeed(shipped)
    put(second, "three")  # before its first snapshot was made
    second.store.save()
    second.begin()
    second.settle()
    put(second, "four")
    second.ship()

    runs = history_runs(second.newest)
    assert len(runs) == 2
    assert runs[0].last < runs[1].after
    with pytest.raises(TooOld, match="failOnDataLoss=false"):
        rows(place)
    assert keys(rows(place, fail_on_loss="false")) == ["one", "two", "four"]
    assert keys(rows(place, since=runs[1].after + 1)) == ["four"]
    assert keys(rows(place, until=runs[0].last)) == ["one", "two"]


def test_tasks_read_the_manifest_that_was_planned(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one")
    shipped.ship()
    made = reader(path=f"journal:{place.url}", **place.options)
    parts = made.partitions()
    put(shipped, "two")
    shipped.ship()

    found = [row for part in parts for batch in made.read(part) for row in batch.to_pylist()]
    assert [row["key"] for row in found] == [b"one"]
    assert "key=" not in repr(HistoryAddress("s3://bucket"))
