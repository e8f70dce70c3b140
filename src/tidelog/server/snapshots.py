"""Snapshots of a running server: asked for, or by themselves when the journal has grown; and sidecars, in passing.

    visit     on the loop, in slices between the work of clients: short ones while there are any, longer otherwise;
              large values are written on the thread
    durable   the journal is fsynced through the snapshot's point, by the thread that fsyncs (`Turns`)
    finish    on a thread: fsync, name, drop the snapshots that are too many
    erase     what the snapshots cover (`erasing`)

What goes wrong is logged and shown, and never stops the server: the snapshots before still count, and the journal has
everything. One that was to be made by itself is tried again later, and later still.

The thread runs one job at a time, so that sidecars are never made for a segment that is being erased. It is given disk
work only; what belongs to the loop (the writer, the holders, the capture) is touched on the loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

from tidelog import limits
from tidelog.engine.dispatch import explain
from tidelog.engine.metrics import SnapshotFacts
from tidelog.errors import CommandError, TidelogError
from tidelog.journal.journal import Journal
from tidelog.journal.layout import SnapshotPoint
from tidelog.journal.node_files import NodeFile
from tidelog.journal.operation import OperationTable
from tidelog.ports import Clock
from tidelog.server.erasing import Erasing
from tidelog.server.scrub import Scrub
from tidelog.server.turns import Turns
from tidelog.store.capture import Capture
from tidelog.store.cooling import StoreCooling
from tidelog.store.store import Store

_LOG: Final = logging.getLogger("tidelog")
_Result = TypeVar("_Result")

IN_PROGRESS: Final = "ERR Background save already in progress"


class Made(NamedTuple):
    """The newest snapshot."""

    point: SnapshotPoint
    size_bytes: int


class ServerSnapshots:
    """Makes the snapshots of one server. For the loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, turns: Turns, clock: Clock, after_bytes: int
    ) -> None:
        self._loop = loop
        self._store = store
        self._turns = turns
        self._clock = clock
        self._after_bytes = after_bytes
        """Journal after which one is made by itself, at least; 0: never."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._task: asyncio.Task[None] | None = None
        self.erasing = Erasing(loop, store.journal, self._thread)
        self._scrub = Scrub(loop, None if store.cooling is None else store.cooling.files, clock)
        self._capture: Capture | None = None
        self._began_s = 0.0
        self._table: OperationTable = store.types.operations
        self._sidecar_rest_s = 0.0
        """No sidecar is made before (`perf_counter`)."""
        self._is_making_sidecar = False
        self.newest = self._find_newest()
        self.last_s = self.newest.point.ts // 1_000_000 if self.newest else clock.wall_us() // 1_000_000
        """When the last one was made (seconds since 1970); without one, when the server started."""
        self._bytes_before = self._journal.bytes_since(self.newest.point if self.newest else None)
        """Journal since the newest snapshot that was there already when `bytes_written` was ..."""
        self._bytes_from = self._journal.writer.bytes_written
        """... this much."""
        self.error: str | None = None
        """Why the last one failed."""
        self.count = 0
        """How many snapshots were made since the start."""
        self.failures = 0
        """In a row."""
        self._retry_s = 0.0
        """None is made by itself before (`perf_counter`)."""
        self.last_took_s: float | None = None

    @property
    def _journal(self) -> Journal:
        return self._store.journal

    @property
    def _cooling(self) -> StoreCooling:
        assert self._store.cooling is not None
        return self._store.cooling

    def _find_newest(self) -> Made | None:
        found = self._journal.newest_snapshot
        return None if found is None else Made(found.point, self._journal.snapshot_bytes(found))

    # --- how it stands ------------------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    @property
    def facts(self) -> SnapshotFacts:
        capture, newest = self._capture, self.newest
        return SnapshotFacts(
            is_under_way=self.is_under_way,
            current_took_s=perf_counter() - self._began_s if self.is_under_way else None,
            keys_done=0 if capture is None else capture.keys_written,
            keys_total=0 if capture is None else capture.keys_total,
            made=self.count,
            failures=self.failures,
            error=self.error,
            last_took_s=self.last_took_s,
            newest_ts=0 if newest is None else newest.point.ts,
            newest_bytes=0 if newest is None else newest.size_bytes,
            newest_keys=None if newest is None else newest.point.keys,
            bytes_since=self.bytes_since,
            records_since=self.records_since,
            space=self.erasing.facts,
            scrub=self._scrub.facts,
        )

    @property
    def bytes_since(self) -> int:
        """Journal written since the newest snapshot."""
        return self._bytes_before + self._journal.writer.bytes_written - self._bytes_from

    @property
    def records_since(self) -> int:
        """Records written since the newest snapshot."""
        lsns = self.newest.point.lsns if self.newest else ()
        return sum(self._journal.writer.written.lsns) - sum(lsns)

    # --- asked for ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """BGSAVE. Its moment is the end of this turn of the loop: a MULTI that asks for it has then ended."""
        if self.is_under_way:
            raise CommandError(IN_PROGRESS)
        self._began_s = perf_counter()
        self._task = self._loop.create_task(self._run())

    def save(self) -> None:
        """SAVE: make a snapshot here and now."""
        if self.is_under_way:
            raise CommandError(IN_PROGRESS)
        self._began_s = perf_counter()
        try:
            self._save()
        except (TidelogError, OSError) as error:
            self._failed(error)
            raise CommandError(f"ERR the snapshot failed: {error}") from None

    def save_last(self) -> None:
        """SHUTDOWN SAVE: as `save`, instead of one that is under way."""
        self.give_up()
        self.save()

    def _save(self) -> None:
        capture = self._capture = self._store.begin_capture()
        since = self._journal.writer.bytes_written
        if capture is None:
            self._succeeded(None, since)
            return
        try:
            while not capture.is_done:
                capture.visit(limits.CAPTURE_KEYS_AT_ONCE)
            self._turns.commit.sync_now()
            self._on_thread_now(capture.snapshot.finish)
        except BaseException:
            self._discard(capture)
            raise
        self._store.end_capture()
        capture.snapshot.release()
        self._capture = None
        self._succeeded(capture, since)
        self._on_thread_now(self._remove_old)
        self._cooling.end_removal(self._on_thread_now(self._removing_files()))
        self.erasing.begin()

    def _on_thread_now(self, work: Callable[[], _Result]) -> _Result:
        """After what the thread was given before."""
        return self._thread.submit(work).result()

    # --- in the background --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._make()
        except (TidelogError, OSError) as error:
            self._failed(error)
        except Exception as error:
            # A bug of ours, but not one that reaches the data: the snapshot is given up, and the log says where.
            _LOG.error("a snapshot met a bug: %s", explain(error))
            self._failed(error)
        finally:
            if self._task is asyncio.current_task():  # nobody gave it up
                self._task = None

    async def _make(self) -> None:
        capture = self._capture = self._store.begin_capture()
        since = self._journal.writer.bytes_written
        if capture is None:
            self._succeeded(None, since)
            return
        try:
            await self._visit(capture)
            self._store.end_capture()
            await self._turns.commit.make_durable(capture.snapshot.point.ts)
            await self._on_thread(capture.snapshot.finish)
        except BaseException:
            self._discard(capture)
            raise
        capture.snapshot.release()
        self._capture = None
        self._succeeded(capture, since)
        await self._on_thread(self._remove_old)
        self._cooling.end_removal(await self._on_thread(self._removing_files()))
        self.erasing.begin()

    async def _visit(self, capture: Capture) -> None:
        slice_s = limits.CAPTURE_SLICE_S
        turns = self._turns.count
        while not capture.is_done:
            if capture.has_large:
                await self._on_thread(capture.begin_large().run)
                capture.end_large()
                continue
            end_s = perf_counter() + slice_s
            capture.step()
            while perf_counter() < end_s and capture.has_short_steps:
                capture.step()
            if self._turns.count != turns:
                turns, slice_s = self._turns.count, limits.CAPTURE_SLICE_S
                await asyncio.sleep(limits.CAPTURE_PAUSE_S)
            else:
                slice_s = min(2 * slice_s, limits.CAPTURE_IDLE_SLICE_S)
                await asyncio.sleep(0)

    def _remove_old(self) -> None:
        """On the thread. If it fails, it is tried again after the next one."""
        try:
            self._journal.remove_old_snapshots()
        except (TidelogError, OSError) as error:
            _LOG.error("old snapshots could not be removed: %s", error)

    def _removing_files(self) -> Callable[[], list[NodeFile]]:
        """What the thread is to do with node files that nobody needs any more."""
        remove = self._cooling.begin_removal()

        def run() -> list[NodeFile]:
            try:
                return remove()
            except (TidelogError, OSError) as error:
                _LOG.error("node files that nobody needs could not be removed: %s", error)
                return []

        return run

    async def _on_thread(self, work: Callable[[], _Result]) -> _Result:
        return await self._loop.run_in_executor(self._thread, work)

    def _discard(self, capture: Capture) -> None:
        """Remove what was made."""
        if self._capture is capture:
            self._capture = None
            self._store.end_capture()
            # The thread may still work on it, if the task that waited for it was cancelled.
            capture.snapshot.give_up()
            self._on_thread_now(capture.snapshot.discard)
            capture.snapshot.release()

    # --- how it ended -------------------------------------------------------------------------------------------

    def _succeeded(self, capture: Capture | None, since_bytes: int) -> None:
        """Also without a capture: the newest snapshot shows this moment already."""
        self.last_took_s = perf_counter() - self._began_s
        self.last_s = self._clock.wall_us() // 1_000_000
        self.error = None
        self.failures = 0
        self._retry_s = 0.0
        self.count += 1
        self._bytes_before, self._bytes_from = 0, since_bytes
        if capture is not None:
            point = SnapshotPoint(capture.snapshot.point.ts, capture.snapshot.point.lsns, capture.keys_written)
            self.newest = Made(point, capture.snapshot.bytes_written)

    def _failed(self, error: Exception) -> None:
        self.last_took_s = perf_counter() - self._began_s
        self.error = str(error) or type(error).__name__
        pause_s = min(limits.SNAPSHOT_RETRY_S_MIN * 2**self.failures, limits.SNAPSHOT_RETRY_S_MAX)
        self.failures += 1
        self._retry_s = perf_counter() + pause_s
        _LOG.error("no snapshot: %s", self.error)

    # --- by itself ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Some times a second: begin what is due."""
        if self.is_due:
            self.begin()
        self.erasing.tick()
        self._scrub.tick()
        self._make_sidecar()

    def begin_for_follower(self) -> None:
        """If none is under way. One that waits asks ten times a second, so there is a pause after a failure."""
        if self._may_begin:
            self.begin()

    @property
    def _may_begin(self) -> bool:
        return not self.is_under_way and perf_counter() >= self._retry_s

    @property
    def is_due(self) -> bool:
        if not self._after_bytes or not self._may_begin:
            return False
        size = self.newest.size_bytes if self.newest else 0
        return self._journal.writer.refusal is None and self.bytes_since > max(self._after_bytes, size)

    def _make_sidecar(self) -> None:
        """The next one, on the thread. It is Python at work: it may not take much of the time that clients want."""
        if self._is_making_sidecar or self.is_under_way or perf_counter() < self._sidecar_rest_s:
            return
        job = self._journal.take_sidecar_job(self._table)
        if job is None:
            return
        self._is_making_sidecar = True
        began_s, turns = perf_counter(), self._turns.count

        def finished(done: asyncio.Future[None]) -> None:
            self._is_making_sidecar = False
            error = None if done.cancelled() else done.exception()
            if error is not None:  # the next reader that needs it makes it anew, and gets the error then
                _LOG.warning("a sidecar could not be made: %s", error)
            if self._turns.count != turns:
                now_s = perf_counter()
                self._sidecar_rest_s = now_s + (limits.SIDECAR_IDLE_PARTS - 1) * (now_s - began_s)
            elif not self._loop.is_closed():
                self._loop.call_soon(self._make_sidecar)

        self._loop.run_in_executor(self._thread, job).add_done_callback(finished)

    # --- stopping -----------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Give up the one that is under way: remove what it has written. The snapshots before it still count."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._capture is not None:
            self._discard(self._capture)

    def close(self) -> None:
        """Stop in order; only what is on the thread is waited for."""
        self._after_bytes = 0
        self.give_up()
        self.erasing.close()
        self._scrub.close()
        self._sidecar_rest_s = float("inf")
        self._thread.shutdown()
