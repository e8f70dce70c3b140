"""The table `current`, which follows `changes`.

A pass takes the changes after the ts that `current` has, up to one that `changes` has, folds them, and merges what they
come to in one commit, which says up to which ts it is then. A change at or below the `(ts, seq)` of a row does not
alter it: values that were there when the lake began may be newer than the first changes.

A pass takes so many changes, or files of so many bytes, at most (files say in their statistics what they have, so
others are not opened), and the next goes on there. It rewrites the files that have rows which change, so it pays to
take many changes at once: passes take a third of the time at most (`is_due`) while more comes, and one follows the
other when nothing does.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset

from tidelog import limits
from tidelog.spark.lake.fold import GONE, Folded, fold, merged, taken_away
from tidelog.spark.lake.layout import DAY
from tidelog.spark.lake.tables import LakeTable, Place, at_place, faults_of

_UNREAD: Final = ("timestamp", DAY)
_GONE: Final = f's."{GONE}"'
_NEWER: Final = "(t.ts < s.ts or (t.ts = s.ts and t.seq < s.seq))"


class Current:
    """Keeps the table up to date."""

    def __init__(self, table: LakeTable, changes: LakeTable) -> None:
        self.table = table
        self._changes = changes
        self.passes = 0
        self.seconds = 0.0
        """Of all passes."""
        self.changes = 0
        """That were folded."""
        self.last_s = 0.0
        self._rewritten_bytes = 0
        self._ended = float("-inf")

    def refresh(self) -> None:
        """See what was committed to `changes`."""
        had_begun = self.has_begun
        self._changes.refresh()
        if not had_begun:  # the first batch may have filled the table with the values of then
            self.table.refresh()

    @property
    def has_begun(self) -> bool:
        """Before that, the first batch may be filling the table."""
        return self._changes.place is not None

    @property
    def is_behind(self) -> bool:
        return self.table.ts < self._changes.ts

    @property
    def is_due(self) -> bool:
        """Passes take a third of the time at most, and leave so many bytes a second for vacuum."""
        rest_s = max(2 * self.last_s, self._rewritten_bytes / limits.LAKE_REWRITTEN_BYTES_PER_S)
        return self.is_behind and time.monotonic() - self._ended >= rest_s

    def catch_up(self) -> None:
        while self.is_behind:
            self.run_pass()

    def run_pass(self) -> None:
        begun = time.monotonic()
        self._rewritten_bytes = 0
        place = self._changes.place
        assert place is not None
        with faults_of(self.table):
            place = Place(self._until(place.ts), place.epoch)
            rows = self._read(self.table.ts, place.ts)
            if rows.num_rows:
                self._merge(fold(rows), place)
            if self.table.ts < place.ts:  # a merge that alters nothing is no commit
                self.table.commit([], place)
        self.passes += 1
        self.changes += rows.num_rows
        self._ended = time.monotonic()
        self.last_s = self._ended - begun
        self.seconds += self.last_s

    # --- reading changes ------------------------------------------------------------------------------------------

    def _until(self, last: int) -> int:
        """The ts at which a pass ends: the last, or the end of a file before it if there is too much."""
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

    def _merge(self, folded: Folded, place: Place) -> None:
        self.table.add_columns(self._changes.added_columns())
        delta = self.table.delta
        is_empty = not pa.table(delta.get_add_actions()).num_rows
        away = folded.gone.slice(0, 0)
        if folded.takes_away and not is_empty:
            away = taken_away(delta.to_pyarrow_dataset().to_table(columns=["shard", "key", "field"]), folded)
        rows = folded.newest if is_empty else merged(folded, away)
        if not rows.num_rows:
            return
        if is_empty:
            self._append(rows, place)
        else:
            self._upsert(rows, place)
        delta.update_incremental()

    def _append(self, rows: pa.Table, place: Place) -> None:
        from deltalake import write_deltalake

        rows = rows.select(self.table.schema.names)
        write_deltalake(self.table.delta, rows, mode="append", commit_properties=at_place(place))

    def _upsert(self, rows: pa.Table, place: Place) -> None:
        # Quoted: a name may be a word of SQL.
        values: Any = {f'"{name}"': f's."{name}"' for name in self.table.schema.names if name in rows.column_names}
        merger = self.table.delta.merge(
            rows,
            "t.key = s.key and t.field is not distinct from s.field",
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=at_place(place),
        )
        merger = merger.when_matched_delete(f"{_GONE} and {_NEWER}")
        merger = merger.when_matched_update(values, f"not {_GONE} and {_NEWER}")
        done: Any = merger.when_not_matched_insert(values, f"not {_GONE}").execute()
        if done["num_target_files_removed"]:
            self._rewritten_bytes = sum(pa.table(self.table.delta.get_add_actions()).column("size_bytes").to_pylist())
