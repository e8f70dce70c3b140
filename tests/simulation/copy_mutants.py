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
        "if stored.came_from_copy:",
        "if False:",
        "two servers are the same database, and either ships over the other",
        7_000_001,
    ),
    _mutant(
        "new-database-forgotten-by-a-crash",
        "journal/directory.py",
        "elif database_id and meta.database_id != database_id:",
        "elif False:",
        "a promotion that was cut short leads as the original",
        7_000_001,
    ),
    _mutant(
        "closed-before-it-is-sent",
        "shipping/copy_session.py",
        "        if size < limits.COPY_READ_BYTES:\n",
        "        if found:\n",
        "feeds are told that nothing more comes, and then it does",
    ),
    _mutant(
        "closed-at-the-bound-of-the-clock",
        "shipping/copy_session.py",
        "closed_ts = Ts(max(history.ts, manifest.closed_ts))",
        "closed_ts = Ts(max(history.ts, manifest.clock_bound))",
        "what may still be given out is called closed",
        7_000_001,
    ),
    _mutant(
        "leads-before-it-is-another-database",
        "journal/journal.py",
        'if database_id not in ("", self.meta.database_id):',
        "if self.leads:",
        "a promoted server is the original until it is started again",
        7_000_003,
    ),
    _mutant(
        "restored-directory-without-a-beginning",
        "shipping/copied_journal.py",
        "max(before_first_lsn(self.epochs), self.find_begin_ts(lineage.lsns, behind_ts))",
        "self.find_begin_ts(lineage.lsns, behind_ts)",
        "who has nothing goes on after what was restored, and never gets that",
        16,
    ),
)
