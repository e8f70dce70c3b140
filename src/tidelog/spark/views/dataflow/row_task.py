"""A task applies changes to the rows of one bucket, and hands on each changed row as it was and as it is.

    changes of rows, packed -> `_row` struct<sign, order, id>, and the columns that the SELECT names

Rows lie in a table of state (`rows_table`), by id:

    key binary, gone bool     see `runs.sorted_rows`
    rest list<binary>         names of everything that the row has; a row without any is gone (see `changes`)
    ts bigint                 of a key: when it was changed last, if that counts
    c0, c1 ... string         its columns

What it costs depends on the changes: rows are looked up, and a range of ids is a slice of each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from tidelog import limits
from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.run_lists import RunBuckets
from tidelog.spark.runs.sorted_rows import GONE, KEY, Overlay, overlaid
from tidelog.spark.views.dataflow.changes import CLEAR, column, compose
from tidelog.spark.views.dataflow.changes import GONE as ROW_GONE
from tidelog.spark.views.dataflow.packing import portions
from tidelog.spark.views.dataflow.told import Told
from tidelog.spark.views.dataflow.values import one_chunk


def rows_table(name: str) -> str:
    """The table of state with the rows of the source, or of a lookup."""
    return f"rows-{name}"


ROW_FIELDS: Final = pa.struct([("sign", pa.int8()), ("order", pa.binary()), ("id", pa.binary())])


def rows_schema(columns: int) -> pa.Schema:
    fixed = [
        pa.field(KEY, pa.binary()),
        pa.field(GONE, pa.bool_()),
        pa.field("rest", pa.list_(pa.binary())),
        pa.field("ts", pa.int64()),
    ]
    return pa.schema([*fixed, *(pa.field(column(number), pa.string()) for number in range(columns))])


@dataclass(frozen=True)
class RowTask:
    """Applies changes. It travels to executors."""

    files: RunFiles
    table: str
    runs: RunBuckets
    columns: tuple[str, ...]
    """Names of the columns, in order."""
    has_times: bool
    """Whether the order in which keys were changed counts. Entries and events are in the order of their ids."""
    prefix: str
    """What the names of its runs begin with; no other batch has it."""
    told: Accumulator[Told] | None
    """None: nothing will be changed."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        rows = BucketRows(self, context.partitionId())
        cleared: set[tuple[bytes, bytes | None]] = set()
        for some in portions(batches, limits.VIEW_PORTION_ROWS):
            for before, after in rows.apply(_each_clear_once(_one_table(some), cleared)):
                yield from self._handed_on(before, after)
        rows.finish()

    def everything(self, batches: Iterable[pa.RecordBatch], *, sign: int) -> Iterator[pa.RecordBatch]:
        """All rows of some buckets, whose numbers are given."""
        schema = rows_schema(len(self.columns))
        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                runs = [self.files.open(run) for run in self.runs[bucket]]
                for rows in Overlay(runs, schema).windows():
                    nothing = rows.slice(0, 0)
                    yield from self._handed_on(*((rows, nothing) if sign < 0 else (nothing, rows)))

    def touched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows whose ids are given, as if each had changed without becoming another."""
        context = TaskContext.get()
        assert context is not None
        found = [tables for some in portions(batches, limits.VIEW_PORTION_ROWS) for tables in some]
        if found:
            runs = [self.files.open(run) for run in self.runs[context.partitionId()]]
            _, rows = Overlay(runs, rows_schema(len(self.columns))).newest(joined_ids(found))
            yield from self._handed_on(rows, rows)

    def present(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that changes lead to, from nothing, without keeping them.

        When a key was changed only a view knows that saw it, so the times of rows are taken from the runs.
        """
        context = TaskContext.get()
        assert context is not None
        rows = BucketRows(self, context.partitionId(), is_kept=False)
        for some in portions(batches, limits.VIEW_PORTION_ROWS):
            for _ in rows.apply(_one_table(some)):
                pass
        nothing = rows_schema(len(self.columns)).empty_table()
        for table in rows.windows():
            yield from self._handed_on(nothing, self._with_times(table, context.partitionId()))

    def _with_times(self, rows: pa.Table, bucket: int) -> pa.Table:
        if not self.has_times or not self.runs[bucket]:
            return rows
        known = Overlay([self.files.open(run) for run in self.runs[bucket]], rows.schema)
        places, found = known.newest(one_chunk(rows[KEY]))
        times = np.zeros(len(rows), np.int64)
        times[places] = pc.fill_null(found["ts"], 0).to_numpy()
        return rows.set_column(rows.schema.get_field_index("ts"), "ts", pa.array(times))

    def _handed_on(self, before: pa.Table, after: pa.Table) -> Iterator[pa.RecordBatch]:
        both = pa.concat_tables([before, after])
        signs = np.ones(len(both), np.int8)
        signs[: len(before)] = -1
        ids = one_chunk(both[KEY])
        row = pa.StructArray.from_arrays([pa.array(signs), _orders(both, ids), ids], fields=list(ROW_FIELDS))
        made = [row, *(both[column(number)] for number in range(len(self.columns)))]
        table = pa.table(made, names=["_row", *self.columns])
        yield from table.to_batches(max_chunksize=limits.VIEW_PACKED_ROWS)


def joined_ids(some: list[list[pa.Table]]) -> Any:
    """Ids that several tasks have found, each once, in order."""
    ids = one_chunk(pa.concat_tables([table for tables in some for table in tables])["id"]).unique()
    return ids.take(pc.sort_indices(ids))


def _one_table(some: list[list[pa.Table]]) -> pa.Table:
    """All changes of a portion, each row once and CLEARs first."""
    tables = [table for tables in some for table in tables]
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables)
    is_clear = pc.equal(table["op"], CLEAR)
    # The changes of each shard are in order, and a CLEAR of one shard never concerns what another has set later.
    return compose(pa.concat_tables([table.filter(is_clear), table.filter(pc.invert(is_clear))]))


def _each_clear_once(changes: pa.Table, cleared: set[tuple[bytes, bytes | None]]) -> pa.Table:
    """Without the CLEARs that an earlier portion had: every shard tells them, and rows of others were set since."""
    is_clear = pc.equal(changes["op"], CLEAR)
    clears = changes.filter(is_clear)
    ranges = [(row["id"], row["end"]) for row in clears.select(["id", "end"]).to_pylist()]
    is_new = pa.array([each not in cleared for each in ranges], pa.bool_())
    cleared.update(ranges)
    return pa.concat_tables([clears.filter(is_new), changes.filter(pc.invert(is_clear))])


def _orders(rows: pa.Table, ids: Any) -> Any:
    """In which order rows were changed: by ts if rows have one, and by id."""
    if rows["ts"].null_count == len(rows):
        return ids
    times = one_chunk(pc.fill_null(rows["ts"], 0)).to_numpy().astype(">u8")
    texts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(times), [None, pa.py_buffer(times.tobytes())])
    return pc.binary_join_element_wise(texts.cast(pa.binary()), ids, pa.scalar(b"", pa.binary()))


class BucketRows:
    """The rows of one bucket while a task changes them."""

    def __init__(self, task: RowTask, bucket: int, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._task = task
        self._bucket = bucket
        self._schema = rows_schema(len(task.columns))
        self._runs = [task.files.open(run) for run in task.runs[bucket]] if is_kept else []
        self._pending = self._schema.empty_table()
        """Changed rows that are in no run yet."""
        self._written = 0
        self._grown = 0

    def apply(self, changes: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Apply changes (each row once, CLEARs first). Gives rows as they were, and as they are."""
        is_clear = pc.equal(changes["op"], CLEAR)
        nothing = self._schema.empty_table()
        for each in changes.filter(is_clear).select(["id", "end"]).to_pylist():
            for before in self._overlay().windows(each["id"], each["end"]):
                self._put(_hidden(before))
                self._grown -= len(before)
                yield before, nothing
        changes = changes.filter(pc.invert(is_clear))
        if not len(changes):
            return
        changes = changes.take(pc.sort_indices(changes["id"])).combine_chunks()
        places, found = self._overlay().newest(one_chunk(changes["id"]))
        olds = np.full(len(changes), -1, np.int64)
        olds[places] = np.arange(len(found))
        rows = self._changed(changes, found, olds)
        self._put(rows)
        is_there = pc.invert(rows[GONE])
        after = rows.filter(is_there)
        self._grown += len(after) - len(found)
        yield _without_same(found, after)

    def _overlay(self) -> Overlay:
        pending = [self._pending.to_batches()] if len(self._pending) else []
        return Overlay([*self._runs, *pending], self._schema)

    def _put(self, rows: pa.Table) -> None:
        self._pending = overlaid(self._pending, rows).combine_chunks()
        if self._is_kept and len(self._pending) >= limits.VIEW_RUN_ROWS:
            self._write()

    def _write(self) -> None:
        task = self._task
        assert task.told is not None
        run = task.files.write(f"{task.prefix}-{task.table}-{self._bucket:04d}-{self._written:04d}", [self._pending])
        if run is not None:
            task.told.add({(task.table, self._bucket, run.name): run})
            self._runs.append(self._task.files.open(run))
            self._pending = self._schema.empty_table()
            self._written += 1

    def finish(self) -> None:
        """Write what is left, and tell how many rows came."""
        self._write()
        assert self._task.told is not None
        self._task.told.add({(self._task.table, self._bucket, self._task.table): self._grown})

    def windows(self) -> Iterator[pa.Table]:
        """All rows, some at a time."""
        return self._overlay().windows()

    def _changed(self, changes: pa.Table, before: pa.Table, olds: Any) -> pa.Table:
        """The changed rows, as they are now; a row that is gone hides the earlier one."""
        is_gone = changes["op"].to_numpy() == ROW_GONE
        is_kept = (olds >= 0) & ~pc.fill_null(changes["is_reset"], False).to_numpy()
        kept = pa.array(olds, mask=~is_kept)
        touched = pc.fill_null(changes["touched"], 0).to_numpy()
        rest = _rests(changes, one_chunk(before["rest"]).take(kept))
        is_alive = pc.greater(pc.fill_null(pc.list_value_length(rest), 0), 0).to_numpy(zero_copy_only=False)
        is_dead = is_gone | ~is_alive
        dead = pa.array(is_dead)
        made = {
            KEY: changes["id"],
            GONE: dead,
            "rest": pc.if_else(dead, pa.scalar(None, rest.type), rest),
            "ts": changes["ts"] if self._task.has_times else pa.nulls(len(changes), pa.int64()),
        }
        for number in range(len(self._task.columns)):
            name = column(number)
            is_new = pa.array((touched >> number) & 1 == 1)
            value = pc.if_else(is_new, one_chunk(changes[name]), one_chunk(before[name]).take(kept))
            made[name] = pc.if_else(dead, pa.scalar(None, pa.string()), value)
        return pa.table([made[name] for name in self._schema.names], schema=self._schema)


def _hidden(rows: pa.Table) -> pa.Table:
    """Rows that hide these."""
    count = len(rows)
    made = [rows[KEY], pa.array(np.ones(count, bool))]
    made += [pa.nulls(count, field.type) for field in list(rows.schema)[2:]]
    return pa.table(made, schema=rows.schema)


def _without_same(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both, without rows that are as they were."""
    at = pc.index_in(after[KEY], one_chunk(before[KEY]))
    both = np.flatnonzero(pc.is_valid(at).to_numpy(zero_copy_only=False))
    if not len(both):
        return before, after
    old = before.take(
        at.take(pa.array(both)) if not isinstance(at, pa.ChunkedArray) else one_chunk(at).take(pa.array(both))
    )
    new = after.take(pa.array(both))
    is_same = np.ones(len(both), bool)
    for name in before.schema.names:
        if name in (KEY, GONE, "rest"):
            continue
        one, other = one_chunk(old[name]), one_chunk(new[name])
        same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
        is_same &= same.to_numpy(zero_copy_only=False)
    if not is_same.any():
        return before, after
    same_ids = one_chunk(new[KEY]).filter(pa.array(is_same))
    return (
        before.filter(pc.invert(pc.is_in(before[KEY], same_ids))),
        after.filter(pc.invert(pc.is_in(after[KEY], same_ids))),
    )


def _rests(changes: pa.Table, before: Any) -> Any:
    """The names that keep each row alive: those it had, without `less`, and with `more`."""
    more, less = one_chunk(changes["more"]), one_chunk(changes["less"])
    if not _has_some(less) and not _has_some(before):
        return pc.fill_null(more, pa.scalar([], more.type))
    made = []
    for had, got, lost in zip(before.to_pylist(), more.to_pylist(), less.to_pylist(), strict=True):
        if not had and not lost:
            made.append(got or [])
        else:
            left = set(had or ()).difference(lost or ()).union(got or ())
            made.append(sorted(left))
    return pa.array(made, pa.list_(pa.binary()))


def _has_some(lists: Any) -> bool:
    return bool(pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py())
