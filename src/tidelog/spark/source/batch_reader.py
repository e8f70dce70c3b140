"""Readers of batches, and the filters that Spark pushes down to them.

Filters only reduce what is read: Spark evaluates all of them again. So a reader may use a filter in part or not at all,
and `>` counts as `>=`. What it must not do is leave out a row that a filter lets through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from tidelog.spark.options import moment_us
from tidelog.spark.source.told_first import ToldFirst

Part = TypeVar("Part", bound=InputPartition)


class BatchReader(ToldFirst, DataSourceReader, Generic[Part]):
    """Reads a target as it is now. Made on the driver, which calls `partitions`; executors call `read`."""

    def narrow(self, filters: Sequence[Filter]) -> None:
        """Leave out what these filters refuse. Called before `partitions`, if at all."""
        raise NotImplementedError

    def read_part(self, part: Part) -> Iterator[Any]:
        """The batches of one part."""
        raise NotImplementedError

    def partitions(self) -> list[InputPartition]:
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[Any]:
        part: Any = partition
        is_ours = part is not None and type(part) is not InputPartition
        # Without any partitions Spark still calls this once, with one of its own.
        return self.read_part(part) if is_ours else iter(())


class PushdownReader(ToldFirst, DataSourceReader):
    """A batch reader that is told the filters of a query.

    It stands apart because Spark refuses every reader with a method `pushFilters` in a session whose pushdown is off.
    """

    def __init__(self, reader: BatchReader[Any]) -> None:
        self.reader = reader

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.reader.narrow(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.reader.read(partition)


class Comparison(NamedTuple):
    """A filter that compares a column with a value."""

    column: str
    """Empty: the filter compares no column."""
    value: Any
    """Of a column `timestamp`: in µs. None: nothing to compare with."""
    is_lower: bool
    """The column is at least this value."""
    is_upper: bool
    """The column is at most this value."""

    def bounded(self, first: int, last: int) -> tuple[int, int]:
        """What a range of whole numbers, both ends included, is with this comparison."""
        return max(first, self.value) if self.is_lower else first, min(last, self.value) if self.is_upper else last


def comparison(condition: Filter) -> Comparison:
    column = ".".join(getattr(condition, "attribute", ()))
    value = getattr(condition, "value", None)
    if column == "timestamp":
        value = moment_us(column, value) if hasattr(value, "tzinfo") else None
    is_equal = isinstance(condition, EqualTo)
    is_lower = is_equal or isinstance(condition, GreaterThan | GreaterThanOrEqual)
    return Comparison(column, value, is_lower, is_equal or isinstance(condition, LessThan | LessThanOrEqual))
