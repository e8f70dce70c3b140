"""Values that are written before their records, for a world: room, the thread's part and the record, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.simulation.recovery import require
from tests.simulation.scenario import Workload
from tidelog.errors import JournalFailed, JournalFull
from tidelog.journal.new_record import NewRecord
from tidelog.journal.staging import StageJob
from tidelog.journal.writer import JournalWriter


class StagedLoad:
    """One value at a time. What it knows dies with the process."""

    def __init__(self, workload: Workload, coverage: Counter[str], require_fault: Callable[[], None]) -> None:
        self._workload = workload
        self._coverage = coverage
        self._require_fault = require_fault
        """An error is fine only if one was planned."""
        self._job: StageJob | None = None
        self._has_run = False
        self.could_refer = False
        """Whether the last record could refer to its value, as far as the writer knew."""

    def step(self, writer: JournalWriter) -> list[NewRecord]:
        """The next step; returns the records of a transaction with the value, if that is to come now."""
        if self._job is None:
            self._begin(writer)
        elif not self._has_run:
            self._has_run = True
            self._job.run()
            if self._job.error is not None:
                self._require_fault()
        else:
            return self._finish(writer, self._job)
        return []

    def _begin(self, writer: JournalWriter) -> None:
        shard, value = self._workload.large_value()
        try:
            self._job = writer.begin_stage(shard, len(value), lambda: value)
        except (JournalFull, JournalFailed):
            require(writer.is_full or writer.has_failed, "a value was refused for no reason")
        except OSError:
            self._require_fault()
        self._has_run = False

    def _finish(self, writer: JournalWriter, job: StageJob) -> list[NewRecord]:
        self._job = None
        try:
            writer.finish_stage(job)
        except JournalFailed:
            return []
        if job.error is not None:
            self._coverage["enospc_stage"] += 1
            return []
        self.could_refer = writer.can_refer_to(job.blob)
        return self._workload.with_staged(job.blob)
