"""The newest manifest of a copy, again and again: what a follower of the copy goes by.

    first     list, then ask for the next by name
    after     the next by name, and no lists: what a listing shows may be late
    silence   if nothing has come for a minute, it lists again: manifests are deleted a day after they were replaced,
              and a process that was stopped for so long would ask for one that is gone for ever after

All of it blocks; for one thread. `heard_us` may be read by any.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog import limits
from tidelog.errors import DataDirectoryError
from tidelog.ports import Clock, ObjectStore
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog, only_database


class CopyReader:
    """One copy, for as long as the process follows it."""

    def __init__(
        self, open_objects: Callable[[], ObjectStore], url: str, database_id: str | None, clock: Clock
    ) -> None:
        """`database_id`: None if it is the only one there."""
        self._open_objects = open_objects
        self._url = url
        self._wanted = database_id
        self._clock = clock
        self._log: ManifestLog | None = None
        self._newest: Manifest | None = None
        self._listed_us = 0
        """When the manifests were last listed (monotonic)."""
        self.objects: ObjectStore
        self.heard_us: int | None = None
        """When a manifest last came, or was made if it is an old one (monotonic); None: never."""
        self.damaged: set[str] = set()
        """Snapshots that somebody has found damaged."""

    @property
    def is_stale(self) -> bool:
        """Nobody ships any more."""
        return self.heard_us is not None and self._clock.monotonic_us() - self.heard_us > limits.COPY_STALE_US

    def newest(self) -> Manifest:
        """`OSError`: the copy cannot be read now. `DataDirectoryError`: there is none, or it is not clear which."""
        log, known = self._open_log(), self._newest
        now_us = self._clock.monotonic_us()
        is_silent = self.is_stale and now_us - self._listed_us > limits.COPY_STALE_US
        if known is None or is_silent:
            self._listed_us = now_us
            found = log.newest()
            if found is None:
                raise DataDirectoryError(f"{self._url} has no manifest of database {log.database_id}")
        else:
            found = known
        if known is not None and found.number < known.number:  # the listing was late
            found = known
        while (after := log.get(found.number + 1)) is not None:
            found = after
        if known is None or found.number > known.number:
            self._newest = found
            age_us = max(0, self._clock.wall_us() - found.made_us)
            is_news = known is not None or age_us < limits.COPY_STALE_US
            self.heard_us = self._clock.monotonic_us() - (0 if is_news else age_us)
        return found

    def _open_log(self) -> ManifestLog:
        if self._log is None:
            objects = self._open_objects()
            database_id = only_database(objects, self._url, self._wanted)
            if database_id is None:
                raise DataDirectoryError(f"{self._url} has no database yet")
            self.objects, self._log = objects, ManifestLog(objects, database_id)
        return self._log
