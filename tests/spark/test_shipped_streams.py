"""`stream:KEY` with the option `from`: entries of a moment out of node files and the journal after them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.types import StructType

from tests.spark.in_process import reader, source_of
from tests.spark.shipped_copies import CopyPlace, Recorded, place
from tests.store.changes import run
from tidelog import limits
from tidelog.errors import ClientError
from tidelog.ids import Ts
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.spark.options import BadOption
from tidelog.spark.source.stream.columns import SCHEMA
from tidelog.streams.stream import Stream

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")

Entry = tuple[int, str, bytes, bytes | None]
"""Offset, id, tag and entry."""


class Streams(Recorded):
    """With the entries of all streams at some moments."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.moments: dict[Ts, dict[bytes, list[Entry]]] = {}

    def call(self, *words: str | bytes | int) -> None:
        given = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        run(self.store, given)
        self.journal.writer.write()

    def write(self, stream: str, count: int) -> None:
        pairs = (word for number in range(count) for word in (f"t{number % 3}", f"{stream}-{number}"))
        self.clock.advance(1_000_000)
        self.call("TWRITE", stream, "ENTRIES", *pairs)

    def cool(self) -> None:
        assert self.store.cooling is not None
        while (job := self.store.cooling.take()) is not None:
            job.run()
            self.store.cooling.finish(job)

    def note(self) -> None:
        database = self.store.database(0)
        found = {key: database.find(key) for key in database.all_keys()}
        self.moments[self.journal.writer.written_ts] = {
            key: entries_of(value) for key, value in found.items() if isinstance(value, Stream)
        }


def entries_of(stream: Stream) -> list[Entry]:
    rows = stream.read(1, 10**9)
    return [
        (offset, f"{ms}-{seq}", tag, entry if kind == 0 else None)
        for offset, ms, seq, kind, tag, entry in zip(*rows, strict=True)
    ]


@pytest.fixture
def shipped(place: CopyPlace, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Streams with nodes in node files and entries after them, that were trimmed, copied and begun anew."""
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 40)
    monkeypatch.setattr(limits, "HOT_NODES_KEPT", 1)
    made = Streams(place.objects(), 2)
    made.begin()
    for stream in ("a", "b", "{a}2", "orders:1", "orders:2"):
        made.write(stream, 300)
    made.call("XADD", "b", "*", "field", "value", "other", "more")
    made.call("XADD", "b", "*", "tag", "x", "entry", "y")
    made.note()
    made.cool()
    made.call("TEVICT", "a", 50)
    made.call("SET", "string", "x")
    made.save()
    made.note()
    for stream in ("a", "orders:1"):
        made.write(stream, 130)
        made.note()
    made.call("TEVICT", "orders:1", 100)
    made.call("XDEL", "a", *(f"{offset}" for offset in ids(made, "a", 60, 61, 299, 310)))
    made.note()
    made.cool()
    made.call("RENAME", "{a}2", "{a}3")
    made.call("COPY", "a", "{a}4")
    made.write("{a}4", 5)
    made.call("DEL", "b")
    made.note()
    made.write("b", 7)
    made.note()
    made.ship()
    return made


def ids(made: Streams, stream: str, *offsets: int) -> list[str]:
    found: Any = made.store.database(0).find(stream.encode())
    known = {entry[0]: entry[1] for entry in entries_of(found)}
    return [known[offset] for offset in offsets]


def entries(place: CopyPlace, stream: str, filters: Any = None, **options: Any) -> dict[bytes, list[Entry]]:
    options = {"path": f"stream:{stream}", "from": place.url, **place.options, **options}
    made = reader(filters=filters, **options)
    found: dict[bytes, list[Entry]] = {}
    for part in made.partitions():
        for batch in made.read(part):
            for row in batch.to_pylist():
                entry = row["offset"], row["id"], row["tag"], row["entry"]
                found.setdefault(row["stream"].encode(), []).append(entry)
    return {key: sorted(rows) for key, rows in found.items()}


def test_every_moment_has_the_entries_that_it_had(place: CopyPlace, shipped: Streams) -> None:
    for ts, streams in shipped.moments.items():
        for rows in (70, 250_000):
            assert entries(place, "*", at=ts, partition_rows=rows) == {key: its for key, its in streams.items() if its}
        for stream in ("a", "b"):
            if stream.encode() in streams:
                assert entries(place, stream, at=ts)[stream.encode()] == streams[stream.encode()]
            else:
                with pytest.raises(ClientError, match="there is no stream 'b'"):
                    entries(place, stream, at=ts)


def test_ranges_and_filters(place: CopyPlace, shipped: Streams) -> None:
    [*_, newest] = shipped.moments.values()
    wanted = newest[b"a"]
    low, high = wanted[33], wanted[-20]

    def cut(first: Entry, last: Entry) -> dict[bytes, list[Entry]]:
        return {b"a": [entry for entry in wanted if first[0] <= entry[0] <= last[0]]}

    assert entries(place, "a", from_offset=low[0], to_offset=high[0], partition_rows=30) == cut(low, high)
    assert entries(place, "a", from_id=low[1], to_id=high[1]) == cut(low, high)
    assert entries(place, "a", from_id=high[1]) == cut(high, wanted[-1])
    assert entries(place, "a", to_offset=10) == {}
    found = entries(place, "orders:*", [EqualTo(("stream",), "orders:2"), GreaterThanOrEqual(("offset",), 250)])
    assert found == {b"orders:2": [entry for entry in newest[b"orders:2"] if entry[0] >= 250]}


def test_only_nodes_of_the_range_are_read(place: CopyPlace, shipped: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = ShippedDisk.open

    def open_noted(self: ShippedDisk, path: str, mode: Any) -> Any:
        opened.append(path)
        return real(self, path, mode)

    monkeypatch.setattr(ShippedDisk, "open", open_noted)
    options: dict[str, Any] = {"path": "stream:orders:2", "from": place.url, **place.options}
    made = reader(StructType([SCHEMA["entry"]]), from_offset=81, to_offset=120, **options)
    [part] = made.partitions()
    assert len(part.nodes) == 1
    opened.clear()
    [batch] = made.read(part)
    assert batch.num_rows == 40
    assert batch.schema.names == ["entry"]
    assert all("nodes-" in path for path in opened), "a task that reads nodes reads nothing else"


def test_fields_are_maps(place: CopyPlace, shipped: Streams) -> None:
    [first, *_] = shipped.moments
    made = reader(path="stream:b", at=first, **{"from": place.url, **place.options})
    rows = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    assert [row["fields"] for row in rows if row["fields"]] == [[(b"field", b"value"), (b"other", b"more")]]


def test_what_cannot_be_read_is_refused(place: CopyPlace, shipped: Streams) -> None:
    with pytest.raises(ClientError, match="is no stream"):
        entries(place, "string")
    source = source_of(path="stream:a", **{"from": place.url})
    with pytest.raises(BadOption, match=r"spark\.read instead"):
        source.streamReader(source.schema())
    with pytest.raises(BadOption, match="no option 'flight'"):
        entries(place, "a", flight="grpc://127.0.0.1:1")
