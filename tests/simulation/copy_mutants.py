"""Planted bugs of servers that follow a copy in an object store: each must be caught by `copy_world`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import FIRST_SEED, Mutant


def _mutant(name: str, file: str, old: str, new: str, why: str, seed: int = FIRST_SEED) -> Mutant:
    return Mutant(name, file, old, new, why, "copies", seed)


COPY_MUTANTS: Final = (
    _mutant(
        "promoted-as-the-original",
        "replication/role_file.py",
        "if stored.leader is not None and is_copy(stored.leader):",
        "if False:",
        "two servers are the same database, and either ships over the other",
    ),
    _mutant(
        "new-database-forgotten-by-a-crash",
        "journal/directory.py",
        "elif database_id and meta.database_id != database_id:",
        "elif False:",
        "a promotion that was cut short leads as the original",
    ),
    _mutant(
        "closed-before-it-is-sent",
        "shipping/copy_session.py",
        "        if size < limits.COPY_READ_BYTES:\n",
        "        if found:\n",
        "feeds are told that nothing more comes, and then it does",
    ),
    _mutant(
        "asks-for-a-manifest-that-is-gone",
        "shipping/copy_reader.py",
        "if known is None or is_silent:",
        "if known is None:",
        "a process that was stopped for long waits for ever for a manifest that was deleted",
    ),
    _mutant(
        "snapshot-of-no-epoch",
        "shipping/copied_journal.py",
        "SnapshotWriter(scratch, _ROOT, meta, first).finish()",
        "SnapshotWriter(scratch, _ROOT, meta, []).finish()",
        "a copy without a snapshot is fetched again and again",
    ),
)
