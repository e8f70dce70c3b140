"""The table `current`, which follows `changes`.

A pass takes the changes after the ts of `current`, up to a ts that `changes` has, folds them, and merges the result in
one commit, which records the new ts. A change at or below the `(ts, seq)` of a row does not alter it: values that were
there when the lake began may be newer than the first changes.

A pass takes at most a certain number of changes, or files of a certain size; the next pass goes on there. (Statistics
say what files hold, so other files are not opened.) A pass rewrites every file that has a row which changes, so it pays
to take many changes at once. While more changes come, passes take at most a third of the time (`is_due`); otherwise
they follow each other directly.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset

from tidelog import limits
from tidelog.spark.delta.table import HistoryPoint, commit_at
from tidelog.spark.lake.fold import GONE, Folded, fold, in_shards, merged, taken_away
from tidelog.spark.lake.layout import DAY
from tidelog.spark.lake.tables import LakeTable, faults_of

_UNREAD: Final = ("timestamp", DAY)
_GONE: Final = f's."{GONE}"'
_NEWER: Final = "(t.ts < s.ts or (t.ts = s.ts and t.seq < s.seq))"


class Current:
    """Keeps the table up to date."""

    def __init__(self, table: LakeTable, changes: LakeTable, shard_count: int) -> None:
        self._shard_count = shard_count
        """Of the server, which may have been restored with fewer than it had."""
        self.table = table
        self._changes = changes
        self.passes = 0
        self.seconds = 0.0
        """All passes together."""
        self.changes = 0
        """Changes that were folded."""
        self.last_s = 0.0
        self._rewritten_bytes = 0
        self._ended = float("-inf")

    def refresh(self) -> None:
        """Look for new commits of `changes`."""
        had_begun = self.has_begun
        self._changes.refresh()
        if not had_begun:  # the first batch may have filled the table
            self.table.refresh()

    @property
    def has_begun(self) -> bool:
        """False while the first batch may still be filling the table."""
        return self._changes.point is not None

    @property
    def is_behind(self) -> bool:
        return self.table.ts < self._changes.ts

    @property
    def is_due(self) -> bool:
        """Passes take at most a third of the time, and rewrite a limited number of bytes a second."""
        rest_s = max(2 * self.last_s, self._rewritten_bytes / limits.LAKE_REWRITTEN_BYTES_PER_S)
        return self.is_behind and time.monotonic() - self._ended >= rest_s

    def catch_up(self) -> None:
        while self.is_behind:
            self.run_pass()

    def run_pass(self) -> None:
        begun = time.monotonic()
        self._rewritten_bytes = 0
        point = self._changes.point
        assert point is not None
        with faults_of(self.table):
            point = HistoryPoint(self._until(point.ts), point.epoch)
            rows = self._read(self.table.ts, point.ts)
            if rows.num_rows:
                self._merge(fold(rows), point)
            if self.table.ts < point.ts:  # a merge that alters nothing makes no commit
                self.table.commit([], point)
        self.passes += 1
        self.changes += rows.num_rows
        self._ended = time.monotonic()
        self.last_s = self._ended - begun
        self.seconds += self.last_s

    # --- reading changes ------------------------------------------------------------------------------------------

    def _until(self, last: int) -> int:
        """The ts at which a pass ends: the last one, or the end of an earlier file if there is too much."""
        files = pa.table(self._changes.delta.get_add_actions(flatten=True))
        if not files.num_rows:
            return last
        files = files.filter(pc.greater(files.column("max.ts"), self.table.ts)).sort_by("max.ts")
        rows, size_bytes, until = 0, 0, last
        names = ("max.ts", "num_records", "size_bytes")
        for ts, count, size in zip(*(files.column(name).to_pylist() for name in names), strict=True):
            is_too_much = rows + count > limits.LAKE_PASS_CHANGES or size_bytes + size > limits.LAKE_PASS_BYTES
            if rows and is_too_much:
                return until
            rows += count
            size_bytes += size
            until = min(last, ts)
        return last

    def _read(self, since: int, until: int) -> pa.Table:
        columns = [name for name in self._changes.schema.names if name not in _UNREAD]
        ts = pa_dataset.field("ts")
        found: pa.Table = self._changes.delta.to_pyarrow_dataset().to_table(
            columns=columns, filter=(ts > since) & (ts <= until)
        )
        return found

    # --- altering the table ---------------------------------------------------------------------------------------

    def _merge(self, folded: Folded, point: HistoryPoint) -> None:
        self.table.add_columns(self._changes.added_columns())
        delta = self.table.delta
        is_empty = not pa.table(delta.get_add_actions()).num_rows
        away = folded.gone.slice(0, 0)
        if folded.takes_away and not is_empty:
            rows = delta.to_pyarrow_dataset().to_table(columns=["shard", "key", "field"])
            away = taken_away(in_shards(rows, self._shard_count), folded)
        rows = folded.newest if is_empty else merged(folded, away)
        if not rows.num_rows:
            return
        if is_empty:
            self._append(rows, point)
        else:
            self._upsert(rows, point)
        delta.update_incremental()

    def _append(self, rows: pa.Table, point: HistoryPoint) -> None:
        from deltalake import write_deltalake

        rows = rows.select(self.table.schema.names)
        write_deltalake(self.table.delta, rows, mode="append", commit_properties=commit_at(point))

    def _upsert(self, rows: pa.Table, point: HistoryPoint) -> None:
        # Quoted: a name may be a word of SQL.
        values: Any = {f'"{name}"': f's."{name}"' for name in self.table.schema.names if name in rows.column_names}
        merger = self.table.delta.merge(
            rows,
            "t.key = s.key and t.field is not distinct from s.field",
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=commit_at(point),
        )
        merger = merger.when_matched_delete(f"{_GONE} and {_NEWER}")
        merger = merger.when_matched_update(values, f"not {_GONE} and {_NEWER}")
        done: Any = merger.when_not_matched_insert(values, f"not {_GONE}").execute()
        if done["num_target_files_removed"]:
            self._rewritten_bytes = sum(pa.table(self.table.delta.get_add_actions()).column("size_bytes").to_pylist())
