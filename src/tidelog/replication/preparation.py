"""A received transaction with large payloads, until it can be applied: a thread does what takes long.

    whole ──► each payload is written to the blob file ──► decoded ──► applied
      ▲             │  ▲                                      │
      │             └──┘ no space: again, in the same place   │
      └────────────── a segment ended meanwhile ──────────────┘

What is left for the loop is a record that refers to the blob file, and to put what was decoded into the keyspace.
Nothing is written before all of the transaction has come: links that end, however often, leave nothing behind. Once it
is written and nobody applies it, it is garbage in the blob file, as a leader's staged values are (`journal/staging`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidelog import limits
from tidelog.errors import JournalFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.operation import OperationKind, Val
from tidelog.journal.staging import StageJob
from tidelog.journal.writer import passes
from tidelog.ports import Worker
from tidelog.replication.incoming import LongPayload, LongTransaction
from tidelog.store.large import LargePayloads
from tidelog.store.store import Store


class Preparation:
    """One such transaction. For the loop's thread."""

    def __init__(self, long: LongTransaction, store: Store, worker: Worker, went_on: Callable[[], None]) -> None:
        self._transaction = long.transaction
        self._store = store
        self._worker = worker
        self._went_on = went_on
        """Told when its payloads are written and decoded."""
        kinds = store.types.operations
        self._payloads = [_Payload(each, kinds.kind(each.record.opcode)) for each in long.payloads]
        self._jobs: list[StageJob] = []
        """Of each payload, the one that writes it; none: there is no room for them yet."""
        self._times = 0
        """How often room was made for them."""
        self._is_working = False
        self._was_full = False
        """There was no space: the same jobs are to run again."""
        self._is_given_up = False

    @property
    def ts(self) -> Ts:
        return self._transaction.ts

    @property
    def is_full(self) -> bool:
        """There was no space for it when it was last tried."""
        return self._was_full

    def is_ready(self) -> bool:
        """Whether it can be applied now; what has to be done before is begun. `JournalFull`: there is no space."""
        if self._is_working:
            return False
        if not self._was_full:
            if self._can_be_referred_to():
                return True
            self._make_room()
        self._was_full = False
        self._is_working = True
        self._worker.submit(self._work, self._end_work)
        return False

    def _can_be_referred_to(self) -> bool:
        writer = self._store.journal.writer
        return bool(self._jobs) and (
            self._times >= limits.STAGED_TIMES_MAX or all(writer.can_refer_to(job.blob) for job in self._jobs)
        )

    def _make_room(self) -> None:
        writer = self._store.journal.writer
        jobs: list[StageJob] = []
        try:
            jobs.extend(writer.begin_stage_received(each.shard, each.pieces) for each in self._payloads)
        except OSError as error:
            for job in jobs:
                writer.finish_stage(job)
            if passes(error):
                raise JournalFull(f"no file for a large value ({error.strerror})", errno=error.errno or 0) from error
            raise _failure(error) from error
        self._jobs = jobs
        self._times += 1

    def _work(self) -> None:
        """On the thread."""
        for job in self._jobs:
            job.run()
            if job.error is not None or job.is_given_up:
                break
        else:
            for each in self._payloads:
                each.decode()

    def _end_work(self) -> None:
        self._is_working = False
        error = next((job.error for job in self._jobs if job.error is not None), None)
        is_synced = all(job.sync_error is None for job in self._jobs)
        if error is not None and passes(error) and is_synced and not self._is_given_up:
            self._was_full = True
            return
        if self._is_given_up:
            with suppress(JournalFailed):  # whoever writes next is told
                self._finish_jobs()
            return
        self._finish_jobs()
        if error is not None:
            raise _failure(error) from error
        self._went_on()

    def _finish_jobs(self) -> None:
        for job in self._jobs:
            self._store.journal.writer.finish_stage(job)

    def apply(self) -> None:
        """Once it is ready. If the journal refuses it, nothing has happened."""
        blobs = {each.place: job.blob for job, each in zip(self._jobs, self._payloads, strict=True)}
        operations = {each.place: each.operation for each in self._payloads}
        self._store.apply_received(self._transaction, LargePayloads(blobs, operations))

    def give_up(self) -> None:
        """It is not wanted any more."""
        self._is_given_up = True
        for job in self._jobs:
            job.is_given_up = True
        if self._was_full:
            self._finish_jobs()


class _Payload:
    """One of its large payloads."""

    def __init__(self, long: LongPayload, kind: OperationKind) -> None:
        self.shard, self._record, self._key, self.pieces = long
        self._kind = kind
        self.operation: Any = None

    @property
    def place(self) -> tuple[int, int]:
        return self.shard, self._record.lsn

    def decode(self) -> None:
        """On the thread, and once."""
        if self.operation is None:
            expire_ms = self._record.expire_ms if self._record.expire_ms >= 0 else None
            if self._key is not None:
                self.operation = Val([(self._key, self.pieces[-1])], expire_ms)
            else:
                self.operation = self._kind.decode(self.pieces[0], expire_ms)


def _failure(error: OSError) -> JournalFailed:
    return JournalFailed(f"a large value cannot be written ({error}): a restart recovers what is durable")
