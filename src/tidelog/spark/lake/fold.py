"""Changes are reduced to the state that they lead to. No table is needed for that.

Of the rows of `changes`, the newest of each key and field counts, unless the key was removed later:

    value              the field of the key has this value
    no value           the field is gone; of a stream: entries were appended, and the stream exists
    field copy         of a stream: it was made as a copy, and exists
    type none          the whole key is gone
    deleterange        every key of the shard from `key` up to but not including `end` is gone
    type list          says what was done to a list; what became of the list is not computed, and not in the state

The result says of each key and field that it names what its value is now (`newest`) or that it is gone (`gone`). Of
whole keys and ranges it says that everything they had before is gone; which rows these are, only the table of the
earlier state can tell (`taken_away`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.source.stream.copied import COPY

_ORDER: Final = "(order)"
GONE: Final = "(gone)"
"""Extra columns. No JSON member has such a name, because Delta would refuse it."""
_NAMES: Final = ["key", "field"]


class DeletedRange(NamedTuple):
    """Keys of a shard that were removed together, and when."""

    shard: int
    start: bytes
    end: bytes
    """Empty: there is no end."""
    ts: int
    seq: int

    def mask(self, shards: Any, keys: Any) -> Any:
        """Which of some keys lie in the range."""
        found = pc.and_(pc.equal(shards, self.shard), pc.greater_equal(keys, self.start))
        return pc.and_(found, pc.less(keys, self.end)) if self.end else found


class Folded(NamedTuple):
    """The state that some changes lead to."""

    newest: pa.Table
    """Rows that exist now, each key and field once."""
    gone: pa.Table
    """Rows that are gone, by shard, key and field, with the ts and seq of that; none of them is among the newest."""
    keys_gone: pa.Table
    """Keys that were removed at least once, each with the newest ts and seq of that."""
    ranges: list[DeletedRange]

    @property
    def takes_away(self) -> bool:
        return bool(self.keys_gone.num_rows or self.ranges)


def fold(changes: pa.Table) -> Folded:
    """Rows of `changes`, in any order; columns beyond those of `current` are kept."""
    changes = changes.append_column(_ORDER, _order(changes)).combine_chunks()
    kinds = changes.column("kind")
    is_value = pc.equal(kinds, "value")
    if pc.all(is_value).as_py() is not False:
        ranges, values = pa.nulls(0), changes
        spans: list[tuple[int, DeletedRange]] = []
    else:
        ranges, values = changes.filter(pc.invert(is_value)), changes.filter(is_value)
        spans = _newest_ranges(ranges)
    values = _with_copies(values)
    types = values.column("type")
    is_none = pc.equal(types, "none")
    dead = _newest_of(values.filter(is_none).select(["shard", "key", "ts", "seq", _ORDER]), ["key"])
    # Other events of a stream (entries were evicted or deleted) do not remove it.
    is_said = pc.and_(pc.equal(types, "stream"), pc.is_valid(values.column("field")))
    is_said = pc.or_(is_said, pc.equal(types, "list"))
    is_named = pc.invert(pc.or_(is_none, is_said))
    named = _newest_of(values if pc.all(is_named).as_py() is not False else values.filter(is_named), _NAMES)
    named = named.filter(_is_alive(named, dead, spans)) if dead.num_rows or spans else named
    is_there = pc.or_(pc.is_valid(named.column("value")), pc.equal(named.column("type"), "stream"))
    newest = named.drop_columns([name for name in ("kind", "end", _ORDER) if name in named.column_names])
    gone = named.filter(pc.invert(is_there)).select(["shard", "key", "field", "ts", "seq"])
    return Folded(newest.filter(is_there), gone, dead.drop_columns([_ORDER]), [span for _, span in spans])


def _with_copies(values: pa.Table) -> pa.Table:
    """A stream that was made as a copy is there, as after an append: without field and value."""
    is_copy = pc.and_(pc.equal(values.column("type"), "stream"), pc.equal(values.column("field"), COPY))
    is_copy = pc.fill_null(is_copy, False)
    if pc.any(is_copy).as_py() is not True:
        return values
    for name in ("field", "value"):
        column = values.column(name)
        nothing = pc.if_else(is_copy, pa.scalar(None, column.type), column)
        values = values.set_column(values.column_names.index(name), values.schema.field(name), nothing)
    return values


def _order(changes: pa.Table) -> Any:
    """The number of each row in the order of ts and seq."""
    ts, seqs = (changes.column(name).to_numpy() for name in ("ts", "seq"))
    later = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (seqs[1:] >= seqs[:-1]))
    order = np.arange(len(ts), dtype=np.int64)
    if not later.all():
        sorted_at = np.lexsort((seqs, ts))
        order[sorted_at] = np.arange(len(ts), dtype=np.int64)
    return pa.array(order)


def _newest_of(rows: pa.Table, names: list[str]) -> pa.Table:
    """The last row of each name."""
    if not rows.num_rows:
        return rows
    orders = rows.column(_ORDER)
    last = rows.select([*names, _ORDER]).group_by(names).aggregate([(_ORDER, "max")]).column(f"{_ORDER}_max")
    if len(last) == rows.num_rows:
        return rows
    chosen = np.zeros(pc.max(orders).as_py() + 1, bool)
    chosen[last.to_numpy()] = True
    return rows.filter(pa.array(chosen[orders.to_numpy()]))


def _newest_ranges(rows: pa.Table) -> list[tuple[int, DeletedRange]]:
    """Each range once: of equal ranges only the last counts."""
    found: dict[tuple[int, bytes, bytes], tuple[int, DeletedRange]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: row[_ORDER]):
        start, end = row["key"] or b"", row["end"] or b""
        found[row["shard"], start, end] = row[_ORDER], DeletedRange(row["shard"], start, end, row["ts"], row["seq"])
    return list(found.values())


def _is_alive(named: pa.Table, dead: pa.Table, spans: list[tuple[int, DeletedRange]]) -> Any:
    """Which rows came after everything that removed their key."""
    orders, keys = named.column(_ORDER), named.column("key")
    if dead.num_rows:
        at = pc.index_in(keys, value_set=dead.column("key").combine_chunks())
        died = pc.fill_null(pc.take(dead.column(_ORDER), at), -1)
        is_alive = pc.greater(orders, died)
    else:
        is_alive = pa.array(np.ones(named.num_rows, bool))
    for order, span in spans:
        is_hit = pc.and_(span.mask(named.column("shard"), keys), pc.less(orders, order))
        is_alive = pc.and_(is_alive, pc.invert(is_hit))
    return is_alive


def in_shards(before: pa.Table, count: int) -> pa.Table:
    """Rows of the earlier state, with those of shards that are no more in the first one.

    Every shard has every range, so it does not matter which of them takes such a row away.
    """
    shards = before.column("shard")
    kept = pc.if_else(pc.less(shards, count), shards, pa.scalar(0, shards.type))
    return before.set_column(before.schema.get_field_index("shard"), "shard", kept)


def taken_away(before: pa.Table, folded: Folded) -> pa.Table:
    """Rows of the earlier state (shard, key, field) that removed keys and ranges take away, with their ts and seq.

    Some of them may exist again: `merged` lets the newest win.
    """
    found = []
    if folded.keys_gone.num_rows:
        at = pc.index_in(before.column("key"), value_set=folded.keys_gone.column("key").combine_chunks())
        is_hit = pc.is_valid(at)
        when = folded.keys_gone.select(["ts", "seq"]).take(at.filter(is_hit))
        found.append(_with_times(before.filter(is_hit), when))
    for span in folded.ranges:
        rows = before.filter(span.mask(before.column("shard"), before.column("key")))
        count = rows.num_rows
        times = {"ts": pa.repeat(pa.scalar(span.ts), count), "seq": pa.repeat(pa.scalar(span.seq, pa.int32()), count)}
        found.append(_with_times(rows, pa.table(times)))
    return pa.concat_tables(found) if found else folded.gone.slice(0, 0)


def _with_times(rows: pa.Table, times: pa.Table) -> pa.Table:
    columns = [*rows.select(["shard", *_NAMES]).columns, *times.select(["ts", "seq"]).columns]
    return pa.table(columns, names=["shard", *_NAMES, "ts", "seq"])


def merged(folded: Folded, away: pa.Table) -> pa.Table:
    """One row for each key and field to be altered, and whether it is gone."""
    newest, rows = folded.newest, pa.concat_tables([folded.gone, away])
    made = newest.append_column(GONE, pa.array(np.zeros(newest.num_rows, bool)))
    if not rows.num_rows:
        return made
    gone = rows.append_column(GONE, pa.array(np.ones(rows.num_rows, bool)))
    both = pa.concat_tables([made, gone], promote_options="default")
    # The newest come last; of rows that were taken away more than once, the last time counts.
    count = folded.newest.num_rows + folded.gone.num_rows
    order = np.empty(both.num_rows, np.int64)
    order[count:] = np.argsort(np.argsort(away.column("ts").to_numpy(), kind="stable"), kind="stable")
    order[:count] = np.arange(both.num_rows - count, both.num_rows)
    return _newest_of(both.append_column(_ORDER, pa.array(order)).combine_chunks(), _NAMES).drop_columns([_ORDER])
