"""What a fold does to the rows that were there before, which come file by file.

A row of the earlier state goes if the fold has a newer value of its key and field, or says that this, the whole key, or
a range with the key was removed later. All other rows stay. A value of the fold is added unless the state has one that
is as new: values that were there when the lake began may be newer than the first changes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.lake.fold import DeletedRange, Folded

LOOKED_AT: Final = ("shard", "key", "field", "ts", "seq")
"""The columns of a row that decide whether it stays."""

_SEPARATOR: Final = pa.scalar(b":")
_Mask = npt.NDArray[np.bool_]


class Upsert:
    """Applies one fold to the rows of one bucket, or of a whole table."""

    def __init__(self, folded: Folded, shard_count: int) -> None:
        """`shard_count`: of the server now."""
        self._newest = folded.newest
        self._shard_count = shard_count
        named = pa.concat_tables([folded.newest.select(LOOKED_AT), folded.gone.select(LOOKED_AT)])
        self._named = _Times(_names(named), named)
        self._keys_gone = _Times(folded.keys_gone.column("key"), folded.keys_gone)
        self._ranges = folded.ranges
        self._is_held = np.zeros(folded.newest.num_rows, bool)
        """Of the newest values, those that the state has already."""

    def stays(self, rows: pa.Table) -> _Mask:
        """Which rows stay; all rows of the state are shown once, with the columns `LOOKED_AT`."""
        ts, seqs = (rows.column(name).to_numpy() for name in ("ts", "seq"))
        is_gone = np.zeros(rows.num_rows, bool)
        if self._named.count:
            found, at = self._named.find(_names(rows))
            is_older = self._named.is_after(at, ts[found], seqs[found])
            is_gone[found[is_older]] = True
            held = at[~is_older]
            self._is_held[held[held < len(self._is_held)]] = True
        if self._keys_gone.count:
            found, at = self._keys_gone.find(rows.column("key"))
            is_gone[found[self._keys_gone.is_after(at, ts[found], seqs[found])]] = True
        if self._ranges:
            shards = in_shards(rows.column("shard"), self._shard_count)
            for span in self._ranges:
                is_gone |= _hit(span, shards, rows.column("key")) & _is_before(ts, seqs, span.ts, span.seq)
        return ~is_gone

    def added(self) -> pa.Table:
        """The new values, once all rows of the state were shown."""
        if not self._is_held.any():
            return self._newest
        return self._newest.filter(pa.array(~self._is_held))


class _Times:
    """Names, each with a ts and seq, to be looked up."""

    def __init__(self, names: Any, times: pa.Table) -> None:
        self._names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
        self._ts, self._seqs = (times.column(name).to_numpy() for name in ("ts", "seq"))
        self.count = times.num_rows

    def find(self, names: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows whose name is here, and the numbers of these names."""
        at = pc.fill_null(pc.index_in(names, value_set=self._names), -1).to_numpy().astype(np.int64)
        found = np.flatnonzero(at >= 0)
        return found, at[found]

    def is_after(self, at: Any, ts: Any, seqs: Any) -> _Mask:
        return _is_before(ts, seqs, self._ts[at], self._seqs[at])


def _is_before(ts: Any, seqs: Any, than_ts: Any, than_seqs: Any) -> _Mask:
    found: _Mask = (ts < than_ts) | ((ts == than_ts) & (seqs < than_seqs))
    return found


def _hit(span: DeletedRange, shards: Any, keys: Any) -> _Mask:
    found: _Mask = span.mask(shards, keys).to_numpy().astype(bool)
    return found


def _names(rows: pa.Table) -> Any:
    """Key and field as one value. The length of the key comes first, because both may have any bytes."""
    keys, fields = rows.column("key"), rows.column("field")
    lengths = pc.binary_length(keys).cast(pa.string()).cast(pa.binary())
    nothing = pa.scalar(b"", pa.binary())
    marked = pc.binary_join_element_wise(_SEPARATOR, pc.fill_null(fields, nothing), nothing)
    return pc.binary_join_element_wise(lengths, keys, pc.if_else(pc.is_valid(fields), marked, nothing), _SEPARATOR)


def in_shards(shards: Any, count: int) -> Any:
    """The shards of rows, where those that the server no longer has are the first one.

    Every shard has every range, so it does not matter which of them takes such a row away.
    """
    return pc.if_else(pc.less(shards, count), shards, pa.scalar(0, shards.type))
