"""The data source without Spark: what the driver and the executors do, one after the other, in this process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from tidelog.spark.source.data_source import TidelogSource


def reader(schema: StructType | None = None, filters: list[Filter] | None = None, **options: Any) -> Any:
    """A `DataSourceReader`, whose batches are Arrow's."""
    source = source_of(**options)
    made = source.reader(schema or source.schema())
    if filters:
        assert list(made.pushFilters(filters)) == filters
    return made


def source_of(**options: Any) -> TidelogSource:
    return TidelogSource({name: str(value) for name, value in options.items()})


def micro_batches(schema: StructType | None = None, **options: Any) -> Any:
    """A `DataSourceStreamReader`, whose batches are Arrow's."""
    source = source_of(**options)
    return source.streamReader(schema or source.schema())


def read(schema: StructType | None = None, filters: list[Filter] | None = None, **options: Any) -> pa.Table:
    """All rows, in the order of the tasks."""
    made = reader(schema, filters, **options)
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    assert batches, "there is nothing: look at the partitions instead"
    return pa.Table.from_batches(batches)


def rows_between(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one batch of a stream."""
    batches = [batch for part in made.partitions(start, end) for batch in made.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]
