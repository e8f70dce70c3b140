"""Changes of the rows of a source, as a table: tasks that read make it, and tasks that have the rows apply it.

    op int8        SET: the row exists, with the given columns
                   GONE: the row is gone
                   CLEAR: every row from `id` up to but not including `end` is gone (no `end`: all that follow)
    id binary      which row. Ids are in the order in which rows are `latest`: the id of an entry is its offset, big
                   endian
    end binary     of a CLEAR
    is_reset bool  of a SET: whatever the row had before is gone
    more, less     of a SET: list<binary>, names of what the row gained, and of what it lost. A hash is gone with its
                   last field, and no event says so. So a row must know whether any field is left, even of those that
                   no view uses. All other rows have one such name, the empty one
    touched int64  of a SET: a bit for each column that it sets
    ts int64       when the row was changed, where that decides which row was changed last; otherwise null
    c0, c1 ...     string: the values of these columns; null: none

The order of changes counts. `compose` turns a sequence of them into one with the same effect that has each row once,
and all CLEARs first. Everything works on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SET, GONE, CLEAR = 0, 1, 2

_NAMES: Final = pa.list_(pa.binary())
_FIXED: Final = [
    pa.field("op", pa.int8()),
    pa.field("id", pa.binary()),
    pa.field("end", pa.binary()),
    pa.field("is_reset", pa.bool_()),
    pa.field("more", _NAMES),
    pa.field("less", _NAMES),
    pa.field("touched", pa.int64()),
    pa.field("ts", pa.int64()),
]


def column(number: int) -> str:
    """The name of the n-th column of a source in a table of changes."""
    return f"c{number}"


def changes_schema(columns: int) -> pa.Schema:
    return pa.schema([*_FIXED, *(pa.field(column(number), pa.string()) for number in range(columns))])


def no_changes(columns: int) -> pa.Table:
    return changes_schema(columns).empty_table()


def clear(columns: int, start: bytes = b"", end: bytes | None = None) -> pa.Table:
    """One CLEAR."""
    return pa.Table.from_pylist([{"op": CLEAR, "id": start, "end": end}], changes_schema(columns))


def chosen(changes: pa.Table, columns: Sequence[int]) -> pa.Table:
    """The same changes, reduced to some of the columns."""
    touched = changes["touched"]
    bits: Any = pa.scalar(0, pa.int64())
    for number, wanted in enumerate(columns):
        bit = pc.bit_wise_and(pc.shift_right(touched, wanted), 1)
        bits = pc.bit_wise_or(bits, pc.shift_left(bit, number))
    fixed = [bits if field.name == "touched" and columns else changes[field.name] for field in _FIXED]
    return pa.table([*fixed, *(changes[column(each)] for each in columns)], schema=changes_schema(len(columns)))


def in_range(ids: Any, start: bytes, end: bytes | None) -> Any:
    """Which ids a CLEAR from `start` to `end` covers."""
    found = pc.greater_equal(ids, pa.scalar(start, pa.binary()))
    return found if end is None else pc.and_(found, pc.less(ids, pa.scalar(end, pa.binary())))


def compose(steps: pa.Table) -> pa.Table:
    """The same effect, with each row once, and CLEARs first."""
    steps = steps.combine_chunks()
    ops = steps["op"].to_numpy()
    clears = np.flatnonzero(ops == CLEAR)
    counts = ops != CLEAR
    for at in clears:
        start, end = steps["id"][int(at)].as_py(), steps["end"][int(at)].as_py()
        is_meant = in_range(steps["id"], start, end).to_numpy()
        counts[:at] &= ~is_meant[:at]
    rows = steps.filter(pa.array(counts))
    if not len(rows):
        return steps.take(pa.array(clears))
    return pa.concat_tables([steps.take(pa.array(clears)), _each_once(rows)])


def _each_once(rows: pa.Table) -> pa.Table:
    ids = rows["id"].combine_chunks().dictionary_encode()
    codes = ids.indices.to_numpy()
    count = len(ids.dictionary)
    at = np.arange(len(rows))
    is_gone = rows["op"].to_numpy() == GONE
    begins = is_gone | pc.fill_null(rows["is_reset"], False).to_numpy()
    newest = _newest(codes, at, count)
    reset = _newest(codes[begins], at[begins], count)
    is_current = at >= reset[codes]  # set after the row was last reset
    touched = np.zeros(count, np.int64)
    said = pc.fill_null(rows["touched"], 0).to_numpy()
    made: dict[str, Any] = {}
    for number in range(rows.num_columns - len(_FIXED)):
        says = is_current & ((said >> number) & 1 == 1)
        last = _newest(codes[says], at[says], count)
        touched[last >= 0] |= 1 << number
        made[column(number)] = rows[column(number)].take(_or_null(last))
    more, less = _names(rows, codes, is_current, count)
    made |= {
        "op": pa.array(np.where(is_gone[newest], GONE, SET).astype(np.int8)),
        "id": ids.dictionary,
        "end": pa.nulls(count, pa.binary()),
        "is_reset": pa.array(reset >= 0),
        "more": more,
        "less": less,
        "touched": pa.array(touched),
        "ts": rows["ts"].take(pa.array(newest)),
    }
    return pa.table([made[name] for name in rows.schema.names], schema=rows.schema)


def _newest(codes: Any, at: Any, count: int) -> Any:
    """The last index of each code; -1: none."""
    found = np.full(count, -1, np.int64)
    np.maximum.at(found, codes, at)
    return found


def _or_null(places: Any) -> Any:
    return pa.array(places, mask=places < 0)


def _names(rows: pa.Table, codes: Any, is_current: Any, count: int) -> tuple[Any, Any]:
    """The names that each row gained, and those that it lost: the last change of each name counts."""
    said = [(rows["more"], True), (rows["less"], False)]
    if all(names.null_count == len(names) for names, _ in said):
        return pa.nulls(count, _NAMES), pa.nulls(count, _NAMES)
    parts = []
    for names, is_more in said:
        flat = names.combine_chunks()
        parents = pc.list_parent_indices(flat).to_numpy()
        parts.append((flat.flatten(), parents, np.full(len(parents), is_more)))
    values = pa.concat_arrays([part[0] for part in parts]).dictionary_encode()
    parents = np.concatenate([part[1] for part in parts])
    is_got = np.concatenate([part[2] for part in parts])
    kept = np.flatnonzero(is_current[parents])
    # The last change of each pair of row and name wins; a step names each name once.
    pairs = codes[parents] * len(values.dictionary) + values.indices.to_numpy()
    order = kept[np.lexsort((parents[kept], pairs[kept]))]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = pairs[order][1:] != pairs[order][:-1]
    last = order[is_last]
    found = []
    for wanted in (True, False):
        chosen = last[is_got[last] == wanted]
        ends = np.zeros(count + 1, np.int32)
        np.add.at(ends[1:], codes[parents[chosen]], 1)
        names = values.take(pa.array(chosen)).dictionary_decode()
        found.append(pa.ListArray.from_arrays(pa.array(ends.cumsum(dtype=np.int32)), names, type=_NAMES))
    return found[0], found[1]
