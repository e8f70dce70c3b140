"""Puts strings from the journal into the keyspace many at once, so that a start visits each slot seldom.

A load mostly waits for memory, because every key lies elsewhere. So runs of the journal are gathered up to
`LOADED_AT_ONCE_BYTES`, and `Database.load` then takes them slot by slot. Call `flush` before reading the keyspace or
changing it in another way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog import limits
from tidelog.journal.record_runs import StringRun
from tidelog.store.keyspace import Database


class StringLoader:
    """Runs that were read and are not in the keyspace yet, all of one database."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = databases
        self._number = 0
        self._gathered: list[tuple[bytes, StringRun]] = []
        self._bytes = 0

    def add(self, number: int, data: bytes, run: StringRun) -> None:
        """A run and the bytes that it lies in. They are as good as loaded once `flush` was called."""
        if number != self._number:
            self.flush()
            self._number = number
        self._gathered.append((data, run))
        self._bytes += len(data)
        if self._bytes >= limits.LOADED_AT_ONCE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Put everything that was gathered."""
        if not self._gathered:
            return
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        sizes = [len(data) for data, _ in gathered]
        bases = np.cumsum([0, *sizes[:-1]]).tolist()
        placed = [(run, base) for (_, run), base in zip(gathered, bases, strict=True)]
        self._databases[self._number].load(
            b"".join([data for data, _ in gathered]),
            np.concatenate([run.keys + base for run, base in placed]),
            np.concatenate([run.values + base for run, base in placed]),
            np.concatenate([run.ends + base for run, base in placed]),
        )
