"""What tasks tell the driver: the runs that they wrote, and numbers.

It travels as a value that Spark gathers from tasks that succeeded. A task that is run again tells the same under the
same names, so it counts once.
"""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from tidelog.spark.runs.run_files import RunName

Told = dict[tuple[str, int, str], Any]
"""By table, bucket and name: the `RunName` of a run, or a number."""


class Gathering(AccumulatorParam[Told]):
    """Gathers what tasks tell."""

    def zero(self, value: Told) -> Told:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: Told, value2: Told) -> Told:
        value1.update(value2)
        return value1


def runs_of(told: Told) -> list[tuple[str, int, RunName]]:
    """The runs, in the order in which they lie over each other."""
    found = [(name, table, bucket, run) for (table, bucket, name), run in told.items() if isinstance(run, RunName)]
    return [(table, bucket, run) for _, table, bucket, run in sorted(found)]


def number_of(told: Told, name: str) -> int:
    """The sum of a number over all buckets."""
    return sum(value for (_, _, each), value in told.items() if each == name)
