"""A task writes the rows of the view that changed: as hashes on the server, and with their groups into a run.

    changed groups with the row of the view as it is now -> hashes; a run of `groups`

A row that comes out as it was is not written again, so a client that watches a hash is notified of real changes only.
The row as it was is the one that the committed runs have. A batch that was killed may have written others: the next run
of the job corrects all hashes that such a batch may have touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.sorted_rows import KEY
from tidelog.spark.views.dataflow.components import KeptParts
from tidelog.spark.views.dataflow.group_task import (
    EXISTS,
    SHOWN,
    TABLE,
    GroupTask,
    changed_schema,
    output_name,
    state_schema,
)
from tidelog.spark.views.dataflow.hashes import Hashes
from tidelog.spark.views.dataflow.told import Told
from tidelog.spark.views.dataflow.values import one_chunk
from tidelog.spark.views.sql.plan import ViewPlan

DONE: Final = "changed bigint"
_DONE: Final = pa.schema([("changed", pa.int64())])


@dataclass(frozen=True)
class ResultTask:
    """Writes results. It travels to executors."""

    plan: ViewPlan
    contributed: pa.Schema
    result: pa.Schema
    files: RunFiles
    hashes: Hashes
    prefix: str
    told: Accumulator[Told]

    def of_sql(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From `_group`, `_shown`, and the columns of the view."""
        context = TaskContext.get()
        assert context is not None
        writing = _Writing(self, context.partitionId())
        schema = changed_schema(KeptParts(self.plan, self.contributed), self.result)
        for batch in batches:
            if not len(batch):
                continue
            group = batch.column("_group")
            changed = pa.table([group.field(number) for number in range(len(schema))], names=schema.names).cast(schema)
            rows = pa.table(
                [batch.column(name).cast(self.result.field(name).type) for name in self.result.names],
                schema=self.result,
            )
            writing.take(changed, rows, pc.fill_null(batch.column("_shown"), False))
        yield writing.done()

    def of_groups(self, groups: GroupTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From groups, if no SQL is left to do."""
        context = TaskContext.get()
        assert context is not None
        writing = _Writing(self, context.partitionId())
        for changed, columns in groups.changed(batches):
            made = [one_chunk(columns[place]) for _, place in self.plan.outputs]
            rows = pa.table(
                [each.cast(field.type) for each, field in zip(made, self.result, strict=True)], schema=self.result
            )
            writing.take(changed, rows, pa.array(np.ones(len(changed), bool)))
        yield writing.done()


class _Writing:
    """The results of one bucket."""

    def __init__(self, task: ResultTask, bucket: int) -> None:
        self._task = task
        self._bucket = bucket
        self._state = state_schema(KeptParts(task.plan, task.contributed), task.result)
        self._taken = 0
        self._changed = 0
        self._grown = 0

    def take(self, changed: pa.Table, rows: pa.Table, is_shown: Any) -> None:
        """Take changed groups, and their rows of the view."""
        exists = one_chunk(changed[EXISTS])
        shown = pc.and_(exists, is_shown)
        was_shown = one_chunk(changed[SHOWN])
        before = [one_chunk(changed[output_name(number)]) for number in range(len(self._task.result))]
        is_new = pc.and_(
            shown, pc.or_(pc.invert(was_shown), _differ(before, [one_chunk(each) for each in rows.columns]))
        )
        is_gone = pc.and_(was_shown, pc.invert(shown))
        keys = one_chunk(changed[KEY])
        written = self._task.hashes.fields(keys.filter(is_new).to_pylist(), rows.filter(is_new))
        self._task.hashes.write(written, keys.filter(is_gone).to_pylist())
        nothing = pc.invert(shown)
        outputs = [pc.if_else(nothing, pa.scalar(None, column.type), one_chunk(column)) for column in rows.columns]
        fixed = [keys, pc.invert(exists)]
        kept = [changed[name] for name in self._state.names[2 : len(self._state) - len(outputs) - 1]]
        table = pa.table([*fixed, *kept, shown, *outputs], schema=self._state)
        name = f"{self._task.prefix}-{TABLE}-{self._bucket:04d}-{self._taken:04d}"
        run = self._task.files.write(name, [table])
        if run is not None:
            self._task.told.add({(TABLE, self._bucket, run.name): run})
        self._taken += 1
        self._changed += len(written) + pc.sum(is_gone).as_py() if len(keys) else 0
        self._grown += (pc.sum(shown).as_py() or 0) - (pc.sum(was_shown).as_py() or 0)

    def done(self) -> pa.RecordBatch:
        self._task.told.add({(TABLE, self._bucket, "view_rows"): self._grown})
        self._task.told.add({(TABLE, self._bucket, "changed"): self._changed})
        return pa.record_batch([[self._changed]], schema=_DONE)


def _differ(before: list[Any], after: list[Any]) -> Any:
    """Which rows differ; NaN is equal to itself."""
    found = np.zeros(len(before[0]), bool)
    for one, other in zip(before, after, strict=True):
        same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
        if pa.types.is_floating(one.type):
            nan = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))
            same = pc.or_(same, nan)
        found |= ~same.to_numpy(zero_copy_only=False)
    return pa.array(found)
