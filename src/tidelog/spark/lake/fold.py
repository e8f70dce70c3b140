"""Changes are reduced to the state that they lead to. No table is needed for that.

Of the rows of `changes`, the newest of each key and field counts, unless the key was removed later:

    value              the field of the key has this value
    no value           the field is gone; of a stream: entries were appended, and the stream exists
    field copy         of a stream: it was made as a copy, and exists
    type none          the whole key is gone
    deleterange        every key of the shard from `key` up to but not including `end` is gone
    type list          says what was done to a list; what became of the list is not computed, and not in the state

`reduced` drops the rows that decide nothing. What is left are changes too, so those of several tasks can be put
together and folded: the result is the same as if nothing had been dropped. `fold` says of each key and field that it
names what its value is now (`newest`) or that it is gone (`gone`). Of whole keys and ranges it says that everything
they had before is gone; which rows these are, only the table of the earlier state can tell (`upsert`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.source.stream.copied import COPY

_ORDER: Final = "(order)"
"""An extra column. No JSON member has such a name, because Delta would refuse it."""
_RANGE: Final = "deleterange"


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


class _Decisive(NamedTuple):
    """The rows that decide, with their order."""

    named: pa.Table
    """The newest of each key and field, unless the key was removed after it."""
    dead: pa.Table
    """The newest removal of each key."""
    ranges: pa.Table
    """The newest of equal ranges."""


def reduced(changes: pa.Table) -> pa.Table:
    """Of rows of `changes`, those that decide; the order of rows does not matter."""
    return pa.concat_tables(_decisive(changes)).drop_columns([_ORDER])


def is_range(changes: pa.Table) -> Any:
    """Which rows are about a range of keys, and not about one."""
    return pc.equal(changes.column("kind"), _RANGE)


def fold(changes: pa.Table) -> Folded:
    """Rows of `changes`, in any order; columns beyond those of `current` are kept."""
    named, dead, ranges = _decisive(changes)
    is_there = pc.or_(pc.is_valid(named.column("value")), pc.equal(named.column("type"), "stream"))
    newest = named.drop_columns([name for name in ("kind", "end", _ORDER) if name in named.column_names])
    gone = named.filter(pc.invert(is_there)).select(["shard", "key", "field", "ts", "seq"])
    keys_gone = dead.select(["shard", "key", "ts", "seq"])
    return Folded(newest.filter(is_there), gone, keys_gone, [span for _, span in _spans(ranges)])


def _decisive(changes: pa.Table) -> _Decisive:
    changes = changes.append_column(_ORDER, _order(changes)).combine_chunks()
    is_value = pc.equal(changes.column("kind"), "value")
    if pc.all(is_value).as_py() is not False:
        ranges, values = changes.slice(0, 0), changes
    else:
        ranges, values = _newest_ranges(changes.filter(is_range(changes))), changes.filter(is_value)
    values = _with_copies(values)
    types = values.column("type")
    is_none = pc.equal(types, "none")
    dead = _newest_of(values.filter(is_none), ["key"])
    # Other events of a stream (entries were evicted or deleted) do not remove it.
    is_said = pc.and_(pc.equal(types, "stream"), pc.is_valid(values.column("field")))
    is_said = pc.or_(is_said, pc.equal(types, "list"))
    is_named = pc.invert(pc.or_(is_none, is_said))
    named = values if pc.all(is_named).as_py() is not False else values.filter(is_named)
    named = _newest_of(named, ["key", "field"])
    if dead.num_rows or ranges.num_rows:
        named = named.filter(_is_alive(named, dead, _spans(ranges)))
    return _Decisive(named, dead, ranges)


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


def _newest_ranges(rows: pa.Table) -> pa.Table:
    """Each range once: of equal ranges only the last counts."""
    named = rows.select(["shard", "key", "end", _ORDER]).to_pylist()
    found: dict[tuple[int, bytes, bytes], tuple[int, int]] = {}
    for number, row in enumerate(named):
        name, last = (row["shard"], row["key"] or b"", row["end"] or b""), (row[_ORDER], number)
        found[name] = max(found.get(name, last), last)
    return rows.take(pa.array(sorted(number for _, number in found.values()), pa.int64()))


def _spans(ranges: pa.Table) -> list[tuple[int, DeletedRange]]:
    """Ranges, each with its place in the order."""
    return [
        (row[_ORDER], DeletedRange(row["shard"], row["key"] or b"", row["end"] or b"", row["ts"], row["seq"]))
        for row in ranges.select(["shard", "key", "end", "ts", "seq", _ORDER]).to_pylist()
    ]


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
