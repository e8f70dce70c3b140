"""A lake beside the server that it is kept from: what must be in it, what is, and batches without Spark.

`InProcess` drives the same `BatchCommitter`, `Work` and `PassWork` as the job does, in this process: what Spark adds
(processes, retries) is tested with it elsewhere.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import redis
from deltalake import DeltaTable

from tests.spark.in_process import read, reader
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.lake.batches import BatchCommitter
from tidelog.spark.lake.current import Current
from tidelog.spark.lake.current_pass import PassOutcome, PassWork
from tidelog.spark.lake.executors import Executors
from tidelog.spark.lake.job import LakeOptions
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES
from tidelog.spark.lake.tables import LakeTable, open_table
from tidelog.spark.source.feed.origin import FeedOrigin, ServerOrigin
from tidelog.spark.source.feed.reading import FeedPart

Rows = dict[tuple[bytes, bytes | None], tuple[str, bytes | None]]
"""Of each key and field its type and value."""
OWN = b"tidelog:pipeline:"


def address_of(port: int, **more: Any) -> ServerAddress:
    return ServerAddress(port=port, **more)


# --- what the server has ----------------------------------------------------------------------------------------------


def stored(client: redis.Redis, prefix: bytes = b"") -> Rows:
    """All keys but those that jobs have for themselves."""
    found: Rows = {}
    link: Any = client
    for key in link.scan_iter(match=prefix + b"*", count=1000):
        kind = link.type(key).decode()
        if key.startswith(OWN) or kind == "list":  # what became of a list is not in `current`
            continue
        if kind == "string":
            found[key, None] = kind, link.get(key)
        elif kind == "hash":
            found |= {(key, field): (kind, value) for field, value in link.hgetall(key).items()}
        elif kind == "set":
            found |= {(key, member): (kind, b"1") for member in link.smembers(key)}
        elif kind == "zset":
            raw = link.execute_command("ZRANGE", key, 0, -1, "WITHSCORES")
            found |= {(key, member): (kind, b"%.17g" % score) for member, score in raw}
        else:
            found[key, None] = kind, None
    return found


def fed(url: str, since: int = 0) -> list[tuple[int, int, int, bytes]]:
    """Where and what: every change that the feed has."""
    made = reader(feed="*", url=url, since=since)
    rows = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    return sorted((row["shard"], row["ts"], row["seq"], row["key"]) for row in rows if not row["key"].startswith(OWN))


def fed_entries(url: str) -> list[tuple[bytes, str]]:
    """Stream and id of every entry that was appended."""
    rows = read(feed="*", url=url).to_pylist()
    return sorted((row["key"], entry["id"]) for row in rows for entry in row["entries"] or ())


# --- what the lake has ------------------------------------------------------------------------------------------------


class Lake(NamedTuple):
    """The tables in a folder."""

    folder: Path

    def table(self, name: str) -> pa.Table:
        return DeltaTable(str(self.folder / name)).to_pyarrow_table()

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows

    def current(self) -> Rows:
        rows = self.rows(CURRENT)
        found: Rows = {(row["key"], row["field"]): (row["type"], _value(row)) for row in rows}
        assert len(found) == len(rows), "a key and field is there twice"
        return found

    def changes(self) -> list[tuple[int, int, int, bytes]]:
        return sorted((row["shard"], row["ts"], row["seq"], row["key"]) for row in self.rows(CHANGES))

    def entries(self) -> list[tuple[bytes, int]]:
        return sorted((row["stream"], row["offset"]) for row in self.rows(ENTRIES))


def _value(row: dict[str, Any]) -> bytes | None:
    value: bytes | None = row["value"]
    return b"%.17g" % float(value) if row["type"] == "zset" and value is not None else value


# --- batches without Spark --------------------------------------------------------------------------------------------


class _Frame:
    """Parts, as Spark would hand them out."""

    def __init__(self, parts: list[FeedPart]) -> None:
        self._parts = parts
        self._task: Any = None

    def mapInArrow(self, _task: Callable[..., Any], _schema: str) -> _Frame:
        self._task = _task
        return self

    def collect(self) -> list[Any]:
        names = ("shard", "since", "until", "epoch", "seen", "is_initial", "until_epoch", "manifest")
        rows = []
        for part in self._parts:
            batch = pa.RecordBatch.from_pylist([{name: getattr(part, name) for name in names}])
            rows += [row for made in self._task(iter([batch])) for row in made.to_pylist()]
        return [_Row(row) for row in rows]


class _Row(NamedTuple):
    members: dict[str, Any]

    def asDict(self) -> dict[str, Any]:
        return self.members


class Here(Executors):
    """The executors of a lake, in this process."""

    def __init__(self) -> None:
        pass

    def each(self, items: Sequence[Any], task: Callable[[Any], Any]) -> list[Any]:
        return [task(pickle.loads(pickle.dumps(item))) for item in items]

    def fold(self, work: PassWork, groups: Sequence[Sequence[str]]) -> PassOutcome:
        work = pickle.loads(pickle.dumps(work))
        packed = [batch for paths in groups for batch in work.reduce(paths)]
        found: list[dict[str, Any]] = []
        for number in range(work.bucket_count):
            its = [batch for batch in packed if batch.column("bucket")[0].as_py() == number]
            found += [row for made in work.upsert(its) for row in made.to_pylist()]
        return work.outcome(found)


class InProcess:
    """One run of the job: made anew, it begins with what the tables say."""

    def __init__(
        self,
        port: int | FeedOrigin,
        folder: Path | str,
        options: LakeOptions = LakeOptions(),  # noqa: B008
        **storage: Any,
    ) -> None:
        """`port`: of the server, or where else the feed comes from."""
        self._storage = find_storage(str(folder), **storage)
        self._about = options.about(0)
        server = ServerOrigin(Endpoint(ServerAddress(port=port))) if isinstance(port, int) else port
        self.origin = server.explored()
        names = [CHANGES, CURRENT, ENTRIES, *([BAD] if options.is_json else [])]
        self.tables = {name: self._table(name) for name in names}
        self.batches = BatchCommitter(self.tables, self.origin, options.spans)
        self.executors = Here()
        self.current = Current(self._table(CURRENT), self._table(CHANGES), limits.SHARDS_MAX, self.executors)
        self._is_initial = options.start == "initial"
        self._spans = options.spans
        self._reached: int | None = None
        self.initial_ts = 0
        """From which changes follow, if this run began with the values of then."""

    def _table(self, name: str) -> LakeTable:
        return open_table(self._storage, name, self._about)

    def take(self, until: int | None = None) -> int:
        """What there is, up to a ts, as one batch; where it ended."""
        position = self.origin.position()
        until = position.visible if until is None else until
        point = self.tables[CHANGES].point
        if point is None and not self._is_initial:
            from tidelog.spark.delta.table import HistoryPoint

            point = HistoryPoint(self.origin.oldest(self._spans[0]), position.epoch)
            self.tables[CHANGES].commit([], point)
        since = 0 if point is None else max(point.ts, self._reached or 0)
        epoch = None if point is None else point.epoch
        if since < until:
            parts = [
                FeedPart(
                    shard,
                    since,
                    until,
                    epoch=epoch,
                    seen=None if epoch is None else since,
                    is_initial=point is None,
                    until_epoch=position.epoch,
                    manifest=self.origin.manifest_up_to(until),
                )
                for shard in position.shards
            ]
            self.initial_ts = until if point is None else 0
            self.batches.take(_Frame(parts))
            self._reached = until
        return until

    def fold(self) -> None:
        self.current.refresh()
        self.current.catch_up()

    def run(self) -> None:
        """To the end of what there is."""
        self.take()
        self.batches.finish()
        self.fold()


def check(port: int, client: redis.Redis, folder: Path, *, since: int = 0) -> None:
    """The lake has each change once, and what holds is what the server has."""
    lake = Lake(folder)
    assert lake.current() == stored(client)
    assert lake.changes() == fed(f"redis://127.0.0.1:{port}", since)
