"""The table `current`, which follows `changes`.

A pass takes the changes after the ts of `current`, up to a ts that `changes` has, and makes one commit, which takes
files away, adds others, and records the new ts. Executors read, fold and write, bucket by bucket (`current_pass`); this
module decides what a pass takes, and commits. A change at or below the `(ts, seq)` of a row does not alter it: values
that were there when the lake began may be newer than the first changes.

A pass takes at most a certain number of changes, or files of a certain size; the next pass goes on there. (Statistics
say what files hold, so other files are not opened.) A pass rewrites every file that has a row which changes, so it pays
to take many changes at once. While more changes come, passes take at most a third of the time (`is_due`); otherwise
they follow each other directly.

If another job replaced files while a pass read them, nothing was committed, and the pass is done again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidelog import limits
from tidelog.spark.delta.commit import FilesReplaced
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.lake.buckets import bucket_of, wanted_count
from tidelog.spark.lake.compaction import divisions
from tidelog.spark.lake.current_pass import PassWork
from tidelog.spark.lake.executors import Executors
from tidelog.spark.lake.rewrite import Rewrite
from tidelog.spark.lake.tables import FileMade, LakeTable, faults_of


class Current:
    """Keeps the table up to date."""

    def __init__(self, table: LakeTable, changes: LakeTable, shard_count: int, executors: Executors) -> None:
        self._shard_count = shard_count
        """Of the server, which may have been restored with fewer than it had."""
        self._executors = executors
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
        with faults_of(self.table):
            for attempt in range(limits.LAKE_COMMIT_ATTEMPTS):
                try:
                    self.changes += self._run_once()
                    break
                except FilesReplaced:
                    if attempt + 1 == limits.LAKE_COMMIT_ATTEMPTS:
                        raise
        self.passes += 1
        self._ended = time.monotonic()
        self.last_s = self._ended - begun
        self.seconds += self.last_s

    def _run_once(self) -> int:
        """How many changes were folded."""
        last = self._changes.point
        assert last is not None
        self.table.refresh()  # files that others have replaced will be removed some day
        until, new = self._taken(last.ts)
        point = HistoryPoint(until, last.epoch)
        if not new:
            self.table.commit([], point)
            return 0
        self.table.add_columns(self._changes.added_columns())
        files = self._divide()
        outcome = self._executors.fold(self._work(until, files), _grouped(new))
        there = {file.path: file for file in files}
        gone = [there[path] for path in outcome.go]
        self.table.commit(outcome.come, point, gone=gone)
        self._rewritten_bytes = sum(file.size_bytes for file in gone)
        return outcome.changes

    def _taken(self, last: int) -> tuple[int, list[FileMade]]:
        """What a pass takes: the ts at which it ends, and the files that have changes up to there.

        It ends at the last ts, or if that is too much, at the end of an earlier file.
        """
        since = self.table.ts
        new = [file for file in self._changes.files() if file.ts_max > since and file.ts_min <= last]
        rows, size_bytes, until = 0, 0, last
        for number, file in enumerate(new):
            rows += file.rows
            size_bytes += file.size_bytes
            if number and (rows > limits.LAKE_PASS_CHANGES or size_bytes > limits.LAKE_PASS_BYTES):
                break
            until = min(last, file.ts_max)
        else:
            return last, new
        return until, [file for file in new if file.ts_min <= until]

    def _divide(self) -> list[FileMade]:
        """The files of the table, all of as many buckets as it should have."""
        files = self.table.files()
        count = max((bucket_of(file.path).of for file in files), default=1)
        count = wanted_count(sum(file.size_bytes for file in files), count)
        coarse = divisions(self.table, files, count)
        if not coarse:
            return files
        made = self._executors.each(coarse, Rewrite.run)
        if len(self.table.replace(made)) < len(made):
            raise FilesReplaced(
                f"{self.table.storage.uri(self.table.name)}: files were replaced while they were divided"
            )
        return self.table.files()

    def _work(self, until: int, files: Sequence[FileMade]) -> PassWork:
        of: dict[int, list[FileMade]] = {}
        for file in files:
            of.setdefault(bucket_of(file.path).number, []).append(file)
        return PassWork(
            self.table.storage,
            self.table.ts,
            until,
            self._shard_count,
            self._changes.schema,
            self.table.schema,
            bucket_of(files[0].path).of if files else 1,
            of,
        )


def _grouped(files: Sequence[FileMade]) -> list[list[str]]:
    """The files that a task reads."""
    groups: list[list[str]] = []
    room_bytes = 0
    for file in files:
        if file.size_bytes > room_bytes:
            groups.append([])
            room_bytes = limits.LAKE_FOLD_TASK_BYTES
        groups[-1].append(file.path)
        room_bytes -= file.size_bytes
    return groups
