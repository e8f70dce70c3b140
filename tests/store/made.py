"""A store on a simulated machine, for tests of its parts."""

from __future__ import annotations

import itertools
import random

from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.store.store import Store
from tidelog.store.type_table import TypeTable
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


class Machine:
    """A disk, a clock, and the store that is open on them."""

    types: TypeTable | None = None
    """The types of its values; None: those that there are."""

    def __init__(self, shard_count: int = 1, geometry: Geometry | None = None, *, leads: bool = True) -> None:
        self.disk = SimulatedDisk()
        self.clock = SimulatedClock()
        self._settings = Settings(geometry or Geometry(), shard_count=shard_count)
        self._leads = leads
        self._epoch_ids = itertools.count(1)
        self.store = self._open()

    def _open(self) -> Store:
        return Store.open(
            self.disk,
            "/data",
            self.clock,
            self._settings,
            new_epoch_id=lambda: next(self._epoch_ids),
            random=random.Random(1),
            types=self.types,
            leads=self._leads,
        )

    @property
    def now_ms(self) -> int:
        return self.clock.wall_us() // 1000

    def restart(self) -> None:
        """The process dies after its batch was written; the next one has what the journal has."""
        self.store.journal.writer.write()
        self.disk.kill()
        self.store = self._open()
