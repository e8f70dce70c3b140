"""The rows of a view, read from the groups that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.run_lists import RunBuckets
from tidelog.spark.runs.sorted_rows import KEY, Overlay
from tidelog.spark.views.dataflow.components import KeptParts
from tidelog.spark.views.dataflow.group_task import SHOWN, output_name, state_schema
from tidelog.spark.views.sql.plan import ViewPlan


@dataclass(frozen=True)
class ShownRows:
    """Reads the rows of a view, bucket by bucket. It travels to executors."""

    plan: ViewPlan
    contributed: pa.Schema
    result: pa.Schema
    files: RunFiles
    groups: RunBuckets

    def read(self, bucket: int) -> Iterator[tuple[pa.Array, pa.Table]]:
        """The groups that are shown, as text, and their rows; some at a time."""
        runs = [self.files.open(run) for run in self.groups[bucket]]
        for some in Overlay(runs, state_schema(KeptParts(self.plan, self.contributed), self.result)).windows():
            shown = some.filter(some[SHOWN])
            columns = [shown[output_name(number)] for number in range(len(self.result))]
            if len(shown):
                yield shown[KEY].combine_chunks(), pa.table(columns, schema=self.result)
