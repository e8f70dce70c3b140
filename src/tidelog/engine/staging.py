"""Commands with large values: a thread writes the values to the blob file before the command runs, and nobody waits.

    large values? --no--> run
         |
        yes --> held, a thread makes and writes the values --written--> run: its records refer to them
                    ^                                          |
                    '-- the segment ended meanwhile, or -------'
                        what the command builds on changed

Values are arguments of a command that writes, or of those that EXEC is about to run, and strings that a command makes
of what is there and its arguments (`Command.large`). The client's other commands wait, as replies are in order; other
clients go on. When the values are there, the command is looked at as if it had just arrived: what refuses it then
refuses it, and the values are garbage in the blob file. A value that cannot be written makes an error reply, and
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tidelog import limits
from tidelog.engine.session import Session
from tidelog.engine.table import Command
from tidelog.errors import CommandError, JournalFailed
from tidelog.ids import ShardId
from tidelog.journal.staging import StageJob
from tidelog.ports import Worker
from tidelog.store.large import Joined, Pieces, is_same, join, size_of, whole
from tidelog.store.slots import slot_of
from tidelog.store.store import Store

Wanted = list[tuple[ShardId, Pieces]]


class StagedCommand:
    """A command whose large values are being written, or are written."""

    __slots__ = ("arguments", "error", "jobs", "times", "wanted")

    def __init__(self, arguments: Sequence[bytes], wanted: Wanted) -> None:
        self.arguments = arguments
        self.wanted = wanted
        self.jobs: list[StageJob] = []
        """Of each, the one that writes it."""
        self.times = 1
        """How often its values were begun to be written."""
        self.error = ""
        """Why one could not be."""

    def give_up(self) -> None:
        for job in self.jobs:
            job.is_given_up = True


class Staging:
    """Stages the large values of commands. For the loop's thread."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._store = store
        self.worker = worker

    def is_ready(self, session: Session, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether a command can run now; otherwise its session is told when (`end_staging`).

        `CommandError`: a value cannot be written.
        """
        command = session.staging
        session.staging = None
        wanted = self._wanted(session, row, arguments)
        if not wanted:
            return True
        if command is None or command.arguments is not arguments:
            return not self._begin(session, StagedCommand(arguments, wanted))
        if command.error:
            raise CommandError(command.error)
        writer = self._store.journal.writer
        is_right = _is_same(command.wanted, wanted) and all(writer.can_refer_to(job.blob) for job in command.jobs)
        if not is_right and command.times < limits.STAGED_TIMES_MAX:
            command.times += 1
            command.wanted = wanted
            return not self._begin(session, command)
        for job, (_, pieces) in zip(command.jobs, command.wanted, strict=True):
            self._store.staged[id(job.blob.value)] = job.blob
            if len(pieces) > 1:
                self._store.joined.append(Joined(pieces, job.blob.value))
        return True

    def _begin(self, session: Session, command: StagedCommand) -> bool:
        """False: nothing can be written at the moment, which the command is told when it runs."""
        writer = self._store.journal.writer
        if writer.refusal is not None:
            return False
        command.jobs = []
        for shard, pieces in command.wanted:
            try:
                command.jobs.append(writer.begin_stage(shard, size_of(pieces), partial(join, pieces)))
            except OSError as error:
                self._finish_jobs(command)
                raise CommandError(_refusal(error)) from None
        session.staging = command
        self.worker.submit(partial(_run, command.jobs), partial(self._finish, session, command))
        return True

    def _finish(self, session: Session, command: StagedCommand) -> None:
        self._finish_jobs(command)
        session.end_staging()

    def _finish_jobs(self, command: StagedCommand) -> None:
        for job in command.jobs:
            with suppress(JournalFailed):  # the command is told when it runs
                self._store.journal.writer.finish_stage(job)
            if job.error is not None:
                command.error = _refusal(job.error)

    # --- what is large ------------------------------------------------------------------------------------------

    def _wanted(self, session: Session, row: Command, arguments: Sequence[bytes]) -> Wanted:
        """The values that a command is about to write."""
        if row.name == "EXEC":
            found: Wanted = []
            for queued, words in session.queued or ():
                found += self._arguments(queued, words)
            return found
        if row.large is not None:
            made = row.large(self._store.database(session.database), arguments)
            return [(self._store.owners[slot_of(key)], pieces) for key, pieces in made]
        return self._arguments(row, arguments)

    def _arguments(self, row: Command, words: Sequence[bytes]) -> Wanted:
        if not row.writes(words):
            return []
        return [
            (self._shard(row, words, index), [whole(word)])
            for index, word in enumerate(words)
            if len(word) >= limits.STAGED_BYTES_MIN
        ]

    def _shard(self, row: Command, words: Sequence[bytes], index: int) -> ShardId:
        """Where an argument goes: to the shard of the last key before it."""
        keys = row.keys
        at = keys.first
        if keys.step > 1 and index > at:
            at += (index - at) // keys.step * keys.step
        return self._store.owners[slot_of(words[at])]


def _run(jobs: list[StageJob]) -> None:
    for job in jobs:
        job.run()


def _is_same(some: Wanted, others: Wanted) -> bool:
    return len(some) == len(others) and all(
        one[0] == other[0] and is_same(one[1], other[1]) for one, other in zip(some, others, strict=True)
    )


def _refusal(error: OSError) -> str:
    return f"MISCONF a large value cannot be written ({error.strerror or error}): nothing was changed"
