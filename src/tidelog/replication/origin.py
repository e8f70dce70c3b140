"""Whether the history of a server came out of a copy in an object store, as the servers that it follows say.

One that says so is believed before anything of its history is here; one that says otherwise when its history goes on
here. Then the directory is what that one is: an id of its own, which it had as a leader, is forgotten, too. In between,
a promotion makes another database, which is the safe mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidelog.errors import ReplicationError
from tidelog.replication.message import LeaderHello
from tidelog.replication.role_file import RoleFile

_LOG: Final = logging.getLogger("tidelog")


class HistoryOrigin:
    """Of an open data directory."""

    def __init__(self, file: RoleFile, on_copy: Callable[[], None]) -> None:
        """`on_copy`: it is news that the history is that of a copy, and others were told that it is not."""
        self._file = file
        self._on_copy = on_copy

    @property
    def is_of_copy(self) -> bool:
        return self._file.stored.came_from_copy

    def speaks_for_copy(self, database_id: str) -> bool:
        """What followers are told; `database_id`: of the journal, which may still be that of the copy."""
        return self.is_of_copy or self._file.stored.database_id not in ("", database_id)

    def meet(self, hello: LeaderHello) -> None:
        """`ReplicationError`: what it says cannot be stored, so nothing may be taken."""
        if hello.is_of_copy and not self.is_of_copy:
            try:
                self._file.store(replace(self._file.stored, is_of_copy=True))
            except OSError as error:
                raise ReplicationError(f"where the history comes from cannot be stored: {error}") from error
            self._on_copy()

    def go_on(self, hello: LeaderHello | None) -> None:
        """What is here is the beginning of its history."""
        stored = self._file.stored
        if hello is not None and not hello.is_of_copy and (stored.is_of_copy or stored.database_id):
            try:
                self._file.store(replace(stored, is_of_copy=False, database_id=""))
            except OSError as error:  # if it leads before the next attempt, it is a database of its own
                _LOG.error("there is no space to store which database this is: %s", error)
