"""The data source `tidelog`: what Spark makes for `format("tidelog")`.

    spark.read.format("tidelog").option("url", "redis://127.0.0.1:6399").option("stream", "orders").load()
    spark.readStream.format("tidelog").load("stream:orders")
    frame.write.format("tidelog").option("stream", "out").mode("append").save()
    spark.read.format("tidelog").option("journal", "data").load()
    spark.readStream.format("tidelog").option("start", "initial").load("feed:prefix:order:")
    spark.read.format("tidelog").load("days:queue/jobset")
    spark.read.format("tidelog").option("from", "s3://bucket/copy").option("at", "2025-11-15T20:03").load("state:user:")

It only finds out which kind of target is meant; the kinds do the rest.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.spark.options import Target
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.told_first import ToldFirst

KINDS: Final = {
    "stream": "tidelog.spark.source.stream.kind:StreamKind",
    "journal": "tidelog.spark.source.journal.kind:JournalKind",
    "feed": "tidelog.spark.source.feed.kind:FeedKind",
    "feedparts": "tidelog.spark.source.feed.parts:FeedPartsKind",
    "state": "tidelog.spark.source.state.kind:StateKind",
    "days": "tidelog.spark.source.days.kind:DaysKind",
}
"""The kinds, and the classes that handle them. A class is imported when its kind is named: Spark starts a process for
each question to a source, and none of them should import more than it needs."""

_OWN_KINDS: Final = frozenset(["feedparts"])
"""Those that only our own jobs use. Errors name none of them."""


class TidelogSource(ToldFirst, DataSource):
    """What Spark makes for `format("tidelog")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return self._kind().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._kind().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._kind().stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse_overwrite(overwrite)
        return self._kind(_named_by_rows(schema)).writer(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _refuse_overwrite(overwrite)
        return self._kind(_named_by_rows(schema)).stream_writer(schema)

    def _kind(self, default: tuple[str, str] | None = None) -> Kind:
        target = Target(self._given, KINDS.keys(), default, hidden=_OWN_KINDS)
        module, _, name = KINDS[target.kind].partition(":")
        kind: type[Kind] = getattr(import_module(module), name)
        return kind(target.name, target.options)


def _named_by_rows(schema: StructType) -> tuple[str, str] | None:
    """Rows with a column `stream` say for themselves which stream they go to."""
    return ("stream", "") if "stream" in schema.fieldNames() else None


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ClientError("rows can only be appended: give mode('append')")
