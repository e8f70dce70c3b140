"""From the events of a feed to rows: what was extracted and applied is what the store has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.integration.server_process import ServerProcess
from tests.spark.in_process import reader
from tests.spark.kept_rows import KeptRows
from tests.spark.view_world import JOBSET, World
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.compressor import compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.message import DAY_MS, EventId, Message
from tidelog.days.reader import Reader
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.source.feed.columns import SCHEMA
from tidelog.spark.source.stream.copied import read_copied
from tidelog.spark.views.dataflow.change_reader import SourceColumns
from tidelog.spark.views.dataflow.changes import CLEAR
from tidelog.spark.views.dataflow.extract import Extractor, extractor
from tidelog.spark.views.dataflow.members import Members

Row = dict[str, str | None]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("two") / "data", "--shards", "2", has_flight=True) as running:
        yield running


@pytest.fixture
def store(process: ServerProcess, tmp_path: Path) -> Iterator[Store]:
    with process.client() as client:
        client.flushall()
        yield Store(f"redis://127.0.0.1:{process.port}", client, tmp_path)


class Store:
    """A server, and one source of it that is followed."""

    def __init__(self, url: str, client: Any, folder: Path) -> None:
        self.url = url
        self.client = client
        self.call = client.execute_command
        self.server = Endpoint(ServerAddress.parse(url))
        self._since = self.visible()
        self._folder = folder
        self._rows: dict[SourceColumns, KeptRows] = {}
        self.changes: dict[SourceColumns, pa.Table] = {}
        """What was taken in last."""

    def visible(self) -> int:
        return min(int(row[1]) for row in self.call("FEED", "POSITION"))

    def follow(
        self, *sources: tuple[str, Sequence[str]], chunk: int = 10_000, until: int | None = None
    ) -> list[list[Row]]:
        """Take in what has happened since the last call; the rows of each source now, in order."""
        until = until or self.visible()
        wanted = [wanted_of(source, columns) for source, columns in sources]
        spans = [{"span": [span.start.decode(), span.end.decode()]} for span in (each.span for each in wanted)]
        made = reader(feed=json.dumps(spans), url=self.url, since=self._since, until=until)
        self._since = until
        copied = partial(read_copied, self.server)
        extractors = [[extractor(*each, copied) for each in wanted] for _ in range(2)]
        for part in made.partitions():
            for batch in made.read(part):
                for start in range(0, len(batch), chunk):
                    for each in extractors[part.shard]:
                        each.add(batch.slice(start, chunk))
        found = []
        for number, each in enumerate(wanted):
            changes = pa.concat_tables([shard[number].finish() for shard in extractors])
            self.changes[each] = changes
            is_clear = pc.equal(changes["op"], CLEAR)
            if each not in self._rows:
                self._rows[each] = KeptRows(self._folder / str(len(self._rows)), each.columns)
            rows = self._rows[each]
            rows.apply(pa.concat_tables([changes.filter(is_clear), changes.filter(pc.invert(is_clear))]))
            found.append(rows_of(rows, each.columns))
        return found


def wanted_of(source: str, columns: Sequence[str]) -> SourceColumns:
    kind, _, target = source.partition(":")
    return SourceColumns(kind, target, tuple(columns))


def rows_of(rows: KeptRows, columns: Sequence[str]) -> list[Row]:
    found = sorted(rows.everything(), key=lambda row: row["_row"]["id"])
    assert rows.grown == len(found)
    return [{name: row[name] for name in columns} for row in found]


ORDER = ("amount", "city", "key", "missing", "more", "n", "state", "value")
TICK = ("entry", "id", "n", "state", "tag", "timestamp")
EVENT = ("day", "event", "id", "jobset", "n", "queue", "state", "timestamp")
SOURCES = [
    ("prefix:order:", ORDER),
    ("prefix:order:", ("state",)),
    ("prefix:order:", ()),
    ("prefix:order:", ("key",)),
    ("prefix:order:1", ("key", "n")),
    ("stream:ticks", TICK),
    ("stream:ticks", ()),
    ("days:shop/web", EVENT),
]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_rows_are_what_the_store_has(store: Store, seed: int) -> None:
    world = World(store.client, seed)
    for round_ in range(12):
        world.write(world.chance.randrange(1, 40))
        found = store.follow(*SOURCES, chunk=world.chance.choice([1, 3, 10_000]))
        for (source, columns), rows in zip(SOURCES, found, strict=True):
            expected = [{name: row.get(name) for name in columns} for row in world.rows(source)]
            assert rows == expected, (seed, round_, source, columns)


def one(
    store: Store, source: str, *columns: str, chunk: int = 10_000, until: int | None = None
) -> list[list[str | None]]:
    """The rows of a source now, by column."""
    [rows] = store.follow((source, columns), chunk=chunk, until=until)
    return [[row[name] for name in columns] for row in rows]


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_hash_is_gone_with_its_last_field(store: Store) -> None:
    store.call("HSET", "k:1", "a", "1", "b", "2")
    assert one(store, "prefix:k:", "a", "key") == [["1", "k:1"]]
    store.call("HDEL", "k:1", "a")
    assert one(store, "prefix:k:", "a", "key") == [[None, "k:1"]]
    store.call("HDEL", "k:1", "b")
    assert one(store, "prefix:k:", "a", "key") == []


def test_a_field_called_key_does_not_hide_the_key(store: Store) -> None:
    store.call("HSET", "k:1", "key", "mine")
    store.call("SET", "k:2", '{"key": "mine"}')
    assert one(store, "prefix:k:", "key") == [["k:1"], ["k:2"]]
    store.call("HDEL", "k:1", "key")
    assert one(store, "prefix:k:", "key") == [["k:2"]]


def test_a_field_without_a_name_keeps_a_hash_alive(store: Store) -> None:
    store.call("HSET", "k:1", "", "1", "a", "1")
    store.call("HDEL", "k:1", "a")
    assert one(store, "prefix:k:", "a") == [[None]]
    store.call("HDEL", "k:1", "")
    assert one(store, "prefix:k:", "a") == []


def test_members_of_json_are_text(store: Store) -> None:
    members = {"a": "x", "b": 1.5, "c": 10, "d": True, "e": None, "f": {"g": ["ü"]}, "h": 2**70}
    store.call("SET", "k:1", json.dumps(members))
    expected = ["x", "1.5", "10", "true", None, json.dumps(members["f"]), str(2**70), None]
    assert one(store, "prefix:k:", *members, "value") == [expected]
    store.call("SET", "k:1", " \n{}")
    assert one(store, "prefix:k:", *members, "value") == [[None] * 8]
    store.call("SET", "k:1", "plain")
    assert one(store, "prefix:k:", *members, "value") == [[*[None] * 7, "plain"]]
    store.call("APPEND", "k:1", " text")
    assert one(store, "prefix:k:", "value") == [["plain text"]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"a": "\\ud800"}', None),
        ('{"a": ["\\udfff x"]}', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', "1e999"),
        ('{"a": 1.50}', "1.50"),
        ('{"a": "x", "a": "y"}', "y"),
        ('{"a": "\\u0000"}', "\0"),
        ('{"a": "x"} rest', None),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", None),
        ('{"a": ' + "9" * 5000 + "}", "9" * 5000),
        (b'{"a": "\xff"}', "\ufffd"),
        (b'{"a": "\xff\\n"}', "\ufffd\n"),
        (b"\xef\xbb\xbf{}", None),
        ("", None),
    ],
)
def test_strange_json_does_no_harm(store: Store, value: str | bytes, expected: str | None) -> None:
    store.call("SET", "k:1", value)
    store.call("TWRITE", "t", "ENTRIES", "tag", value)
    Writer(store.client, JOBSET).write(
        [Message(EventId(1, 1), 1, value if isinstance(value, bytes) else value.encode())]
    )
    found = store.follow(("prefix:k:", ["a"]), ("stream:t", ["a"]), ("days:shop/web", ["a"]))
    assert found == [[{"a": expected}]] * 3


@pytest.mark.parametrize("depth", [50, 200, 500, 900, 990, 1500, 3000, 10_000])
def test_json_of_any_depth_does_no_harm(depth: int) -> None:
    value = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"
    _, columns = Members(["a"]).read([value])
    [found] = columns["a"].to_pylist()
    assert found in (None, "[" * depth + "]" * depth)


def test_bytes_that_are_no_text_are_replaced(store: Store) -> None:
    store.call("HSET", b"k:\xff", b"a", b"\xfe", b"\xfd", b"x")
    store.call("SET", b"k:\xfe", b"\xff")
    assert one(store, "prefix:k:", "a", "key", "value") == [[None, "k:�", "�"], ["�", "k:�", None]]
    store.call("HDEL", b"k:\xff", b"a", b"\xfd")
    store.call("DEL", b"k:\xfe")
    assert one(store, "prefix:k:", "a", "key", "value") == []


def test_a_key_that_becomes_something_else_takes_its_row_along(store: Store) -> None:
    store.call("HSET", "k:1", "a", "1")
    store.call("SADD", "s", "m")
    assert one(store, "prefix:k:", "a") == [["1"]]
    store.call("RENAME", "s", "k:1")
    assert one(store, "prefix:k:", "a") == []
    store.call("SET", "k:1", '{"a": 2}')
    assert one(store, "prefix:k:", "a") == [["2"]]
    store.call("DEL", "k:1")
    store.call("HSET", "k:1", "b", "3")
    assert one(store, "prefix:k:", "a") == [[None]]


def test_everything_goes_with_flushdb(store: Store) -> None:
    store.call("HSET", "k:1", "a", "1")
    store.call("HSET", "k:2", "a", "1")
    assert len(one(store, "prefix:k:", "a", "b")) == 2
    store.call("HSET", "k:3", "a", "1")
    store.call("FLUSHDB")
    store.call("HSET", "k:2", "b", "2")
    assert one(store, "prefix:k:", "a", "b", chunk=1) == [[None, "2"]]


def test_a_range_takes_what_is_in_it(store: Store) -> None:
    for number in range(6):
        store.call("HSET", f"k:{number}", "a", str(number))
    store.call("XADD", "ticks", "*", "a", "t")
    put(store, 1, 1, 2)
    sources = [("prefix:k:", ["a"]), ("stream:ticks", ["a"]), ("days:shop/web", ["n"])]
    assert [len(rows) for rows in store.follow(*sources)] == [6, 1, 2]
    store.call("DELRANGE", "k:1", "k:4")
    store.call("HSET", "k:2", "a", "again")
    store.call("DELPREFIX", JOBSET.hot(on(1)).key)  # its events are gone with the index only
    found = [[value for row in rows for value in row.values()] for rows in store.follow(*sources)]
    assert found == [["0", "again", "4", "5"], ["t"], ["1", "2"]]
    assert not any(each.is_cleared_by(store.changes[each]) for each in store.changes)
    store.call("DELPREFIX", "tick")
    store.call("DELPREFIX", "{shop_web}")
    store.call("DELPREFIX", "k:")
    assert store.follow(*sources) == [[], [], []]


def test_that_everything_went_is_seen_in_the_changes(store: Store) -> None:
    """For with it, the hashes of views went that no change of a row would bring back."""
    store.call("HSET", "order:1", "n", "1")
    store.call("XADD", "ticks", "*", "n", "1")
    store.follow(*SOURCES)
    assert not any(each.is_cleared_by(store.changes[each]) for each in store.changes)
    store.call("FLUSHDB")
    store.call("HSET", "order:1", "n", "1")
    store.follow(*SOURCES)
    assert all(each.is_cleared_by(store.changes[each]) for each in store.changes)
    store.call("DEL", "order:1")
    store.follow(*SOURCES)
    assert not any(each.is_cleared_by(store.changes[each]) for each in store.changes)


def test_what_jobs_say_about_themselves_is_no_row(store: Store) -> None:
    store.call("HSET", "tidelog:pipeline:view", "state", "running")
    store.call("HSET", "tidelog:mine", "state", "new")
    assert one(store, "prefix:tidelog:", "state") == [["new"]]


def test_sixty_columns(store: Store) -> None:
    names = [f"f{number:02}" for number in range(limits.VIEW_COLUMNS_MAX)]
    store.call("HSET", "k:1", *(word for name in names for word in (name, name.upper())))
    store.call("SET", "k:2", json.dumps({name: name for name in names}))
    assert one(store, "prefix:k:", *names) == [[name.upper() for name in names], names]
    store.call("HDEL", "k:1", *names[:-1])
    assert one(store, "prefix:k:", *names)[0] == [None] * (len(names) - 1) + [names[-1].upper()]
    store.call("HDEL", "k:1", names[-1])
    assert one(store, "prefix:k:", *names) == [names]


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entries_go_one_by_one_by_eviction_and_with_the_stream(store: Store) -> None:
    store.call("TWRITE", "t", "ENTRIES", *(word for number in range(6) for word in ("tag", f'{{"n": {number}}}')))
    assert one(store, "stream:t", "n", "offset") == [[str(number), str(number + 1)] for number in range(6)]
    ids = [entry_id for entry_id, _ in store.client.xrange("t")]
    store.call("XDEL", "t", ids[3], ids[4])
    assert one(store, "stream:t", "n", "offset") == [["0", "1"], ["1", "2"], ["2", "3"], ["5", "6"]]
    store.call("XTRIM", "t", "MINID", ids[2])
    assert one(store, "stream:t", "n", "offset") == [["2", "3"], ["5", "6"]]
    store.call("DEL", "t")
    store.call("TWRITE", "t", "ENTRIES", "tag", '{"n": 9}')
    assert one(store, "stream:t", "n", "offset", chunk=1) == [["9", "1"]]


def test_fields_of_an_entry_come_before_what_is_said_about_it(store: Store) -> None:
    store.call("XADD", "t", "5-7", "tag", "mine", "a", "1", "a", "2", b"\xff", b"\xff")
    store.call("XADD", "t", "6-0", "entry", "e")
    columns = ("a", "tag", "entry", "id", "key", "timestamp")
    assert one(store, "stream:t", *columns) == [
        ["2", "mine", None, "5-7", "t", "1970-01-01 00:00:00.005"],
        [None, "", "e", "6-0", "t", "1970-01-01 00:00:00.006"],
    ]


def test_ids_beyond_all_times_have_none(store: Store) -> None:
    store.call("XADD", "t", f"{2**63}-1", "a", "1")
    assert one(store, "stream:t", "a", "id", "timestamp") == [["1", f"{2**63}-1", None]]


@pytest.mark.parametrize("source", ["{t}from", "elsewhere", "from"])
def test_a_stream_that_is_renamed_brings_its_entries(store: Store, source: str) -> None:
    store.call("XADD", source, "*", "a", "1")
    store.call("XADD", source, "*", "a", "2")
    store.call("XADD", "t", "*", "a", "old")
    assert one(store, "stream:t", "a") == [["old"]]
    store.call("RENAME", source, "t")
    assert one(store, "stream:t", "a") == [["1"], ["2"]]
    store.call("RENAME", "t", "elsewhere")
    assert one(store, "stream:t", "a") == []
    store.call("SET", "t", "a string")
    assert one(store, "stream:t", "a") == []


def test_a_copy_has_what_is_left_of_its_entries(store: Store) -> None:
    for number in range(1, 6):
        store.call("XADD", "{t}from", f"{number}-0", "a", number)
    store.call("COPY", "{t}from", "t")
    store.call("XDEL", "t", "2-0")
    store.call("XADD", "t", "6-0", "a", "6")
    store.call("XTRIM", "t", "MINID", "=", "3-0")
    assert one(store, "stream:t", "a") == [["3"], ["4"], ["5"], ["6"]]


def test_a_copy_whose_key_has_another_stream_by_now(store: Store) -> None:
    store.call("XADD", "{t}from", "1-0", "a", "1")
    store.call("COPY", "{t}from", "t")
    until = store.visible()
    store.call("DEL", "t")
    store.call("XADD", "t", "7-0", "a", "new")
    assert list(read_copied(store.server, b"t", b"1,1,1-0,0-0,1,0,from")) == []
    assert one(store, "stream:t", "a", until=until) == []
    assert one(store, "stream:t", "a") == [["new"]]


def test_only_the_stream_itself_counts(store: Store) -> None:
    store.call("XADD", "t", "*", "a", "1")
    store.call("XADD", "t2", "*", "a", "2")
    [rows, others] = store.follow(("stream:t", ["a"]), ("stream:t2", ["a"]))
    assert (rows, others) == ([{"a": "1"}], [{"a": "2"}])


# --- events of days ---------------------------------------------------------------------------------------------------


def put(store: Store, day: int, *numbers: int) -> None:
    Writer(store.client, JOBSET).write(
        Message(EventId(DAY_MS * day + number, 0), DAY_MS * day + number, b'{"n": %d}' % number) for number in numbers
    )


def on(day: int) -> date:
    return date.fromordinal(date(1970, 1, 1).toordinal() + day)


def test_a_compressed_day_keeps_its_events(store: Store) -> None:
    put(store, 1, 1, 2)
    put(store, 2, 3)
    expected = [["1", "1970-01-02"], ["2", "1970-01-02"], ["3", "1970-01-03"]]
    assert one(store, "days:shop/web", "n", "day") == expected
    compress_day(store.client, JOBSET, on(1), 1)
    assert one(store, "days:shop/web", "n", "day", chunk=1) == expected
    put(store, 2, 4)
    compress_day(store.client, JOBSET, on(2), 1)
    assert one(store, "days:shop/web", "n", "day", chunk=1) == [*expected, ["4", "1970-01-03"]]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_expired_day_takes_its_events_along(store: Store, is_compressed: bool) -> None:
    put(store, 1, 1, 2)
    put(store, 2, 3)
    if is_compressed:
        compress_day(store.client, JOBSET, on(1), 1)
    assert len(one(store, "days:shop/web", "n")) == 3
    assert expire_days(store.client, JOBSET, keep_days=0, today=on(2)) == [on(1)]
    assert one(store, "days:shop/web", "n") == [["3"]]
    assert expire_days(store.client, JOBSET, keep_days=0, today=on(3)) == [on(2)]
    assert one(store, "days:shop/web", "n") == []


def test_a_day_that_came_compressed_and_expired_at_once_is_gone(store: Store) -> None:
    put(store, 1, 1, 2)
    compress_day(store.client, JOBSET, on(1), 1)
    put(store, 2, 3)
    expire_days(store.client, JOBSET, keep_days=0, today=on(2))
    assert one(store, "days:shop/web", "n", chunk=1) == [["3"]]


@pytest.mark.parametrize("chunk", [1, 10_000])
def test_a_day_that_expired_and_begins_anew_has_what_is_new(store: Store, chunk: int) -> None:
    put(store, 1, 1, 2)
    assert len(one(store, "days:shop/web", "n")) == 2
    expire_days(store.client, JOBSET, keep_days=0, today=on(2))
    put(store, 1, 3)
    assert [message.event for message in Reader(store.client, JOBSET).until_now()] == [b'{"n": 3}']
    assert one(store, "days:shop/web", "n", chunk=chunk) == [["3"]]
    compress_day(store.client, JOBSET, on(1), 1)
    expire_days(store.client, JOBSET, keep_days=0, today=on(2))
    put(store, 1, 4)
    put(store, 1, 5)
    assert one(store, "days:shop/web", "n", chunk=chunk) == [["4"], ["5"]]


def test_late_messages_and_other_job_sets_are_no_events(store: Store) -> None:
    put(store, 2, 1)
    put(store, 1, 2)
    Writer(store.client, JobSet("shop", "web2")).write([Message(EventId(1, 1), 1, b"{}")])
    assert one(store, "days:shop/web", "n") == [["1"]]


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_no_events_are_no_changes() -> None:
    empty = to_arrow_schema(SCHEMA, timezone="UTC").empty_table().to_batches()
    for source, columns in SOURCES:
        made: Extractor = extractor(*wanted_of(source, columns))
        for batch in [*empty, pa.RecordBatch.from_pylist([], schema=to_arrow_schema(SCHEMA, timezone="UTC"))]:
            made.add(batch)
        assert len(made.finish()) == 0
