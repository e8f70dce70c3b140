"""A running server ships itself to an object store (`shipping.Shipper`), on a thread of its own.

    follows        a follower ships nothing: its leader does
    taking over    the newest manifest is read, and the next one put
    shipping       a round after each fsync, at most once a second; in between, a step of a snapshot and of upkeep
    failing        the store cannot be reached: tried again, later and later; writes go on, and the copy falls behind
    fenced         another server ships this database now: this one never does again, until it leads anew

Only the thread touches the shipper while a job is under way. What belongs to the loop (the writer, holders, pins) is
touched on the loop, between jobs: the shipper says what it wants, and is given it before its next job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

from tidelog import limits
from tidelog.errors import (
    HolderLapsed,
    JournalFailed,
    JournalFull,
    LimitExceeded,
    ShippingError,
    ShippingFenced,
    ShippingGap,
    TidelogError,
)
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Journal
from tidelog.ports import Clock
from tidelog.server.turns import Turns
from tidelog.shipping.copied_files import CopiedFiles
from tidelog.shipping.point import ShipPoint, point_of
from tidelog.shipping.shipper import Shipper

_LOG: Final = logging.getLogger("tidelog")
_HOLDER: Final = "shipping"
_LOOK_S: Final = 0.1
ShippingState = Literal["follows", "taking over", "shipping", "failing", "fenced"]


@dataclass(frozen=True, slots=True)
class ShippingFacts:
    """How it stands."""

    url: str
    state: ShippingState
    error: str
    """Why it does not go on; "": it does."""
    lease: int
    manifest: int
    shipped_ts: Ts
    """The last transaction that a restore from the copy would have: none before its first snapshot is there."""
    lag_us: int
    """How old the oldest change is that a restore would lack; 0: it would have all."""
    objects_put: int
    bytes_put: int
    rounds: int
    failures: int
    last_round_us: int
    """How long the last round took."""
    snapshot_bytes_left: int
    going: int
    """Objects that are announced to be deleted."""
    upkeep_error: str
    """Why what is needed no more stays in the store; "": it does not."""
    upkeep_failures: int


class ServerShipping:
    """Ships one store. For the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        turns: Turns,
        clock: Clock,
        url: str,
        make_shipper: Callable[[], Shipper],
        local_us: int | None = None,
    ) -> None:
        """`local_us`: node files need not be on disk once they are so old; None: they are always."""
        self._loop = loop
        self._journal = journal
        self._turns = turns
        self._clock = clock
        self._url = url
        self._make_shipper = make_shipper
        self._shipper = make_shipper()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shipping")
        self._local_us = local_us
        self._copied_us = 0
        """When `copied_files` is looked up next (monotonic)."""
        self.copied_files: CopiedFiles | None = None
        """Node files that lie in the copy; None: that is not known, or nothing is shipped."""
        self._is_called = False
        """The thread is to come back: a round is due."""
        self._is_closed = False
        self._running: asyncio.Future[None] | None = None
        """The newest job of the thread."""
        self._state: ShippingState = "follows"
        self._error = ""
        self._rounds = self._failures = self._failures_in_row = 0
        self._retry_us = 0
        self._work_error = ""
        """Why what takes longer than a round does not go on: rounds do."""
        self._work_failures_in_row = 0
        self._work_after_us = 0
        """It is not tried before (monotonic)."""
        self._round_us = 0
        """When the last round began (monotonic)."""
        self._took_us = 0
        self._progress_us = clock.monotonic_us()
        """When a round last worked."""
        self._behind_since_us = 0
        """The wall clock when something was first written that a restore would lack; 0: nothing is."""
        self._task = loop.create_task(self._run())

    # --- how it stands ------------------------------------------------------------------------------------------

    @property
    def facts(self) -> ShippingFacts:
        shipper, now_us = self._shipper, self._clock.wall_us()
        return ShippingFacts(
            url=self._url,
            state=self._state,
            error=self._error or self._work_error,
            lease=shipper.lease,
            manifest=shipper.manifest_number,
            shipped_ts=shipper.archive.restorable_ts,
            lag_us=max(0, now_us - self._behind_since_us) if self._behind_since_us else 0,
            objects_put=shipper.objects_put,
            bytes_put=shipper.bytes_put,
            rounds=self._rounds,
            failures=self._failures,
            last_round_us=self._took_us,
            snapshot_bytes_left=shipper.snapshot_bytes_left,
            going=shipper.going_count,
            upkeep_error=shipper.upkeep_error,
            upkeep_failures=shipper.upkeep_failures,
        )

    # --- the loop's part ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._step()
            except ShippingFenced as error:
                self._state, self._error = "fenced", str(error)
                _LOG.error("shipping ends: %s", error)
                self._let_go()
            except (TidelogError, OSError) as error:
                self._failed(error)
            except Exception as error:  # a mistake of ours: the server goes on, and says that its copy does not
                _LOG.exception("shipping to %s fails by a mistake of Tidelog", self._url)
                self._failed(ShippingError(f"{type(error).__name__}: {error}"))

    async def _step(self) -> None:
        journal, shipper = self._journal, self._shipper
        self._note_lag()
        self._release_pins()
        if not journal.leads:
            self._behind_since_us = 0  # its leader ships
            if self._state != "follows":
                self._let_go()
                self._state = "follows"
            return
        self._bound_pin()
        if self._state == "fenced" or self._clock.monotonic_us() < self._retry_us:
            return
        if shipper.lease < 0:
            self._state = "taking over"
            await self._take_over()
        elif not shipper.is_begun:
            await self._begin()
        elif self._clock.monotonic_us() - self._round_us >= limits.SHIP_EVERY_S * 1e6:
            await self._round()
        else:
            await self._work_between()
            return
        self._failures_in_row, self._error = 0, ""

    async def _take_over(self) -> None:
        journal = self._journal
        try:
            journal.writer.write()
        except (JournalFull, JournalFailed):
            return
        if not journal.writer.note_blob_extents():
            return  # a large value is being written: once more in a moment
        if self._shipper.database_id != journal.meta.database_id:  # promoted: another database is shipped
            self._shipper = self._make_shipper()
        self._hold_first()
        await self._turns.commit.make_durable(journal.writer.written_ts)
        point = point_of(journal)
        await self._on_thread(lambda: self._shipper.take_over(point))
        self._state, self._progress_us = "shipping", self._clock.monotonic_us()
        self._hold(self._shipper.shipped_ts)
        _LOG.info("shipping to %s, manifest %d", self._url, self._shipper.manifest_number)

    async def _begin(self) -> None:
        """Say what a new lineage begins with."""
        shipper = self._shipper
        pinned = self._journal.pin_snapshot(shipper.wants_snapshot_until)
        if pinned is not None:
            self._hold(pinned.snapshot.point.ts)
        try:
            await self._on_thread(lambda: shipper.begin(pinned))
        finally:
            if pinned is not None and shipper.snapshot is not pinned:
                pinned.release()

    async def _round(self) -> None:
        journal, shipper, writer = self._journal, self._shipper, self._journal.writer
        if writer.policy is FsyncPolicy.NEVER and writer.written_ts > shipper.shipped_ts:
            await self._turns.commit.make_durable(writer.written_ts)
        self._offer_snapshot()
        point = point_of(journal)
        self._round_us = self._clock.monotonic_us()
        await self._on_thread(lambda: self._ship(point))
        self._progress_us = self._clock.monotonic_us()
        self._hold(shipper.shipped_ts)

    async def _work_between(self) -> None:
        """A little of what takes longer. Rounds go on if it fails."""
        if self._clock.monotonic_us() < self._work_after_us:
            return
        try:
            await self._on_thread(self._work)
        except OSError as error:
            self._failures += 1
            pause_s = min(limits.SHIP_RETRY_S_MIN * 2**self._work_failures_in_row, limits.SHIP_RETRY_S_MAX)
            self._work_failures_in_row = min(self._work_failures_in_row + 1, limits.SHIP_RETRY_DOUBLINGS)
            self._work_after_us = self._clock.monotonic_us() + round(pause_s * 1e6)
            if not self._work_error:
                _LOG.error("a part of what is shipped to %s fails, and is tried again: %s", self._url, error)
            self._work_error = str(error)
        else:
            self._work_failures_in_row, self._work_error = 0, ""

    def _offer_snapshot(self) -> None:
        newest = self._journal.newest_snapshot
        if self._failures_in_row:
            return  # it would keep the journal, for a store that may be away for long
        if newest is not None and self._shipper.wants(newest.point):
            pinned = self._journal.pin_snapshot()
            if pinned is not None and self._shipper.wants(pinned.snapshot.point):
                self._shipper.give(pinned)
            elif pinned is not None:
                pinned.release()

    def _hold_first(self) -> None:
        """Keep the journal before anything is shipped. One that was let go, because the store could not be reached for
        too long, is not held again by a server that only tries again."""
        if not self._journal.holders.is_passing(_HOLDER):
            self._hold(Ts(0))

    def _bound_pin(self) -> None:
        """A snapshot that is being shipped keeps all of the journal after it. That ends where holders are let go."""
        journal, pinned = self._journal, self._shipper.snapshot
        if pinned is None:
            return
        bounds = journal.retention
        idle_us = self._clock.monotonic_us() - self._progress_us
        if idle_us > bounds.holder_lapse_us:
            reason = f"nothing could be shipped for {idle_us / 1e6:.0f} s"
        elif journal.bytes_since(pinned.snapshot.point) > bounds.bytes_max + bounds.holder_bytes_max:
            reason = "too much of the journal was kept for it"
        else:
            return
        _LOG.warning("the snapshot %s is not shipped to its end: %s", pinned.snapshot.path, reason)
        self._shipper.close()
        self._release_pins()

    def _hold(self, ts: Ts) -> None:
        """Keep the journal after a moment; a holder that was let go is a gap, which the shipper finds."""
        holders, now_us = self._journal.holders, self._clock.wall_us()
        try:
            holders.hold(_HOLDER, ts or self._journal.erased_ts, now_us)
        except (HolderLapsed, LimitExceeded) as error:
            _LOG.warning("the journal is not kept for shipping: %s", error)

    def _note_lag(self) -> None:
        if self._journal.writer.last_ts <= self._shipper.archive.restorable_ts:
            self._behind_since_us = 0
        elif not self._behind_since_us:
            self._behind_since_us = self._clock.wall_us()

    def _release_pins(self) -> None:
        gone, self._shipper.gone = self._shipper.gone, []
        for pinned in gone:
            pinned.release()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ShippingGap):
            _LOG.warning("shipping begins anew: %s", error)
            self._shipper.give_up_lease()
        pause_s = min(limits.SHIP_RETRY_S_MIN * 2**self._failures_in_row, limits.SHIP_RETRY_S_MAX)
        self._failures += 1
        self._failures_in_row = min(self._failures_in_row + 1, limits.SHIP_RETRY_DOUBLINGS)
        self._retry_us = self._clock.monotonic_us() + round(pause_s * 1e6)
        if self._state != "failing" or str(error) != self._error:
            _LOG.error("shipping to %s fails, and is tried again: %s", self._url, error)
        self._error = str(error)
        self._state = "failing"
        if isinstance(error, ShippingError):
            self._shipper.give_up_lease()

    def _let_go(self) -> None:
        """Hold nothing any more."""
        self.copied_files, self._copied_us = None, 0
        self._shipper.give_up_lease()
        self._shipper.close()
        self._release_pins()
        self._journal.writer.forget_blob_extents()
        self._journal.holders.release(_HOLDER)

    # --- the thread's part --------------------------------------------------------------------------------------

    async def _on_thread(self, work: Callable[[], None]) -> None:
        self._is_called = False
        self._running = running = self._loop.run_in_executor(self._thread, work)
        while not running.done():
            await asyncio.wait((running,), timeout=_LOOK_S)
            self._note_lag()
            if self._is_closed or self._clock.monotonic_us() - self._round_us >= limits.SHIP_EVERY_S * 1e6:
                self._is_called = True
        await running

    def _ship(self, point: ShipPoint) -> None:
        began_us = self._clock.monotonic_us()
        self._shipper.ship(point)
        self._took_us = self._clock.monotonic_us() - began_us
        self._rounds += 1
        self._state = "shipping"

        if self._local_us is not None and began_us >= self._copied_us:
            self._copied_us = began_us + min(limits.HISTORY_LOOK_US, self._local_us)
            self.copied_files = self._shipper.copied_files(Ts(max(0, self._clock.wall_us() - self._local_us)))

    def _ship_last(self, point: ShipPoint) -> None:
        self._ship(point)
        if self._shipper.archive.has_unnamed:  # otherwise the next start puts it again
            self._shipper.put_manifest()

    def _work(self) -> None:
        while not self._is_called and self._shipper.work():
            pass

    # --- the end ------------------------------------------------------------------------------------------------

    async def finish(self, seconds_max: float) -> bool:
        """Ship what was written last, for so long, and hold nothing any more. False: a call to a store that does not
        answer is still under way, on a thread that Python would wait for."""
        self._is_closed = self._is_called = True
        try:
            await asyncio.wait_for(asyncio.shield(self._task), seconds_max)
            if self._state == "shipping" and self._journal.leads and self._shipper.is_begun:
                self._turns.commit.sync_now()
                point = point_of(self._journal)
                await asyncio.wait_for(self._on_thread(lambda: self._ship_last(point)), seconds_max)
        except (TidelogError, OSError, TimeoutError) as error:
            _LOG.warning("the server stops, and its copy at %s lacks what was written last: %s", self._url, error)
        self._thread.shutdown(wait=False, cancel_futures=True)
        has_ended = self._running is None or self._running.done()
        if has_ended:
            self._let_go()
        return has_ended
