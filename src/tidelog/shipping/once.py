"""A directory that no server has open, shipped to its end: the rounds of a server, without the server.

    begin      a snapshot if there is none, the lease, and where the lineage begins
    journal    all of it, in one round
    rest       the newest snapshot, full segments, upkeep: step by step, with a manifest every few seconds

So whoever is killed and run again begins where the last manifest was put. It is the same shipper with the same fence: a
server that has gone on with the database refuses this one, and a server that is started here later goes on with it. A
directory that lacks changes of the copy is refused, too: a server may have lost them in a failover, a copy of its files
has just not got them.

A directory is shipped from its newest snapshot on, as a server does. One that has none, or only one of its last moment,
is shipped from the beginning of its journal if that is still there, with a snapshot of now, so that a restore need not
read all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tidelog import limits
from tidelog.errors import InternalError, ShippingError, ShippingGap
from tidelog.ids import Ts
from tidelog.ports import Clock
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.point import ShipPoint, point_of
from tidelog.shipping.shipper import Shipper
from tidelog.store.store import Store

Result = TypeVar("Result")


class ShippedOnce(NamedTuple):
    """What is in the copy now."""

    lineage: str
    manifest: int
    ts: Ts
    """The last transaction."""
    begins_ts: Ts
    """The earliest moment that this lineage shows; 0: the beginning."""
    snapshot_ts: Ts | None
    """The newest snapshot that is there."""
    objects: int
    """Uploaded just now ..."""
    size: int
    """... and their bytes."""


class OnceShipping:
    """Ships one store, which nobody changes meanwhile."""

    def __init__(self, store: Store, shipper: Shipper, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._journal = store.journal
        self._store = store
        self._shipper = shipper
        self._clock = clock
        self._sleep = sleep
        self._point: ShipPoint | None = None
        self._saved_us = 0
        """When the last manifest was put (monotonic)."""
        self._total = 0

    @property
    def bytes_total(self) -> int:
        """How much will have been uploaded in the end, as far as that is known."""
        return self._total

    def run(self) -> ShippedOnce:
        """`ShippingError`: it must not be shipped. `OSError`: the store could not be reached for minutes."""
        try:
            self._begin()
            self._ship_journal()
            self._ship_rest()
        finally:
            self._shipper.close()
            for pinned in self._shipper.gone:
                pinned.release()
            self._shipper.gone = []
        lineage = self._shipper.lineages[-1]
        if lineage.begins_ts is None:
            raise ShippingError("the journal is shipped, and no snapshot: nothing can be restored from it")
        return ShippedOnce(
            lineage.name,
            self._shipper.manifest_number,
            lineage.ts,
            lineage.begins_ts,
            max(lineage.snapshots, default=None),
            self._shipper.objects_put,
            self._shipper.bytes_put,
        )

    def _begin(self) -> None:
        journal, shipper = self._journal, self._shipper
        journal.writer.write()
        self._refuse_older_state(shipper.newest_manifest())
        pinned = journal.pin_snapshot()
        is_of_now = pinned is None or pinned.snapshot.point.ts >= journal.writer.written_ts
        if pinned is not None:
            pinned.release()
        else:
            self._store.save()
        if not journal.writer.note_blob_extents():
            raise InternalError("a large value is being written, and nobody writes")
        journal.writer.sync()
        self._point = point = point_of(journal)
        self._patiently(lambda: shipper.take_over(point))
        if not shipper.is_begun:
            self._begin_lineage(is_whole_wanted=is_of_now)
        self._saved_us = self._clock.monotonic_us()

    def _refuse_older_state(self, newest: Manifest | None) -> None:
        """It was copied, and the server that it was copied from has gone on shipping. Only what is fsynced is shipped,
        so the directory of whoever shipped last never has less."""
        last = self._journal.writer.written_ts
        if newest is not None and newest.lineages[-1].ts > last:
            raise ShippingError(
                f"the copy of database {newest.database_id} has changes up to ts {newest.lineages[-1].ts}, and this "
                f"directory only up to {last}: it is an older state. If a failover has lost the changes after it, "
                f"start its server with --ship-to: that goes on from here"
            )

    def _begin_lineage(self, *, is_whole_wanted: bool) -> None:
        shipper = self._shipper
        if is_whole_wanted:
            try:
                self._patiently(lambda: shipper.begin(None))
            except ShippingGap:
                pass  # its beginning was erased
            else:
                return
        first = self._journal.pin_snapshot(shipper.wants_snapshot_until)
        self._patiently(lambda: shipper.begin(first))

    def _ship_journal(self) -> None:
        shipper, point = self._shipper, self._point
        assert point is not None
        self._total = shipper.bytes_put + shipper.journal_bytes_left(point) + shipper.snapshot_bytes_left
        self._patiently(lambda: shipper.ship(point._replace(extents=())))

    def _ship_rest(self) -> None:
        shipper = self._shipper
        pinned = self._journal.pin_snapshot()
        if pinned is not None and shipper.wants(pinned.snapshot.point):
            shipper.give(pinned)
        elif pinned is not None:
            pinned.release()
        self._total = shipper.bytes_put + shipper.snapshot_bytes_left
        while self._patiently(shipper.work):
            now_us = self._clock.monotonic_us()
            if now_us - self._saved_us >= limits.SHIP_SAVE_S * 1e6:
                self._patiently(shipper.put_manifest)
                self._saved_us = now_us
            self._total = max(self._total, shipper.bytes_put + shipper.snapshot_bytes_left)
        self._patiently(shipper.put_manifest)

    def _patiently(self, call: Callable[[], Result]) -> Result:
        """Call again while the store cannot be reached, later and later; a refusal is not tried again."""
        for failures in range(limits.SHIP_RETRY_DOUBLINGS):
            try:
                return call()
            except PermissionError:
                raise
            except OSError:
                self._sleep(min(limits.SHIP_RETRY_S_MIN * 2**failures, limits.SHIP_RETRY_S_MAX))
        return call()
