"""Where the history of a server lies: node files go from disk, or come back from the object store.

    goes     with `--local-history`, once all of the file is shipped, and a snapshot in the copy that is older than that
             had it as it is
    returns  it lies only in the object store, and that does not hold: after a lazy restore, without `--local-history`,
             or as a follower, for whose files nobody sees to it that they stay in the copy

One file at a time, on a thread of its own. Files come back at so many bytes a second at most, and not if the disk would
be full. A file that fails is tried again later, and others go on; meanwhile it is read from where it is.

What is old may go, and what the copy does not keep returns (`copied_files`). Between the two, a file stays where it is:
otherwise it would go and return again and again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidelog import limits
from tidelog.errors import TidelogError
from tidelog.journal.journal import Journal
from tidelog.journal.node_files import NodeFile, NodeFiles
from tidelog.ports import Clock
from tidelog.server.file_retries import FileRetries
from tidelog.server.shipping import ServerShipping
from tidelog.shipping.copied_files import CopiedFiles
from tidelog.shipping.dropping import drop_file, is_listed_beyond, may_drop
from tidelog.shipping.hydration import Hydration
from tidelog.shipping.remote_file import RemoteNodeFile, settle_remote_files
from tidelog.shipping.tiered_disk import TieredDisk

_LOG: Final = logging.getLogger("tidelog")
_LOOK_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class HistoryFacts:
    """How it stands. Counts are since the start."""

    local_files: int
    """Node files on disk ..."""
    local_bytes: int
    remote_files: int
    """... and those that lie only in the object store."""
    remote_bytes: int
    cache_bytes: int
    """Of the disk, for what was read from the object store."""
    cache_hits: int
    """Blocks that were read from there ..."""
    fetches: int
    """... and those that had to be fetched ..."""
    fetched_bytes: int
    """... with so many bytes."""
    read_failures: int
    """Reads that the object store did not answer."""
    dropped_files: int
    dropped_bytes: int
    returned_files: int
    returned_bytes: int
    bytes_to_return: int
    """Of files that lie in the object store and are to come back; 0: none are."""
    error: str
    """Why nothing goes or returns; "": it does, or need not."""


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """What the configuration says."""

    local_us: int | None
    """How old a file on disk may be; None: any age."""
    bandwidth: int
    """Bytes a second that come back; 0: no limit."""
    url: str
    """Where the server ships to."""
    is_sealed: bool


class ServerHistory:
    """Of one store. For the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: TieredDisk,
        journal: Journal,
        files: NodeFiles,
        shipping: ServerShipping | None,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._journal = journal
        self._files = files
        self._shipping = shipping
        self._clock = clock
        self._options = options
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._is_working = self._is_closed = False
        self._next_us = 0
        """Nothing is done before."""
        self._led_us = clock.monotonic_us()
        """When the server last led."""
        self._hydration: tuple[NodeFile, Hydration] | None = None
        self._dropped = self._dropped_bytes = self._returned = self._returned_bytes = 0
        self._retries = FileRetries(clock)
        self._judged: tuple[CopiedFiles | None, dict[str, bool]] = None, {}
        """Which files are to return, as far as they were looked at, by what is known of the copy."""
        settle_remote_files(disk.local, files.folder, journal.meta.shard_count)
        for file in files:
            file.is_remote = disk.is_remote(file.path)

    # --- how it stands ------------------------------------------------------------------------------------------

    @property
    def facts(self) -> HistoryFacts:
        remote = [file for file in self._files if file.is_remote]
        local = [file for file in self._files if not file.is_remote]
        blocks = self._disk.blocks
        return HistoryFacts(
            local_files=len(local),
            local_bytes=sum(file.size_bytes for file in local),
            remote_files=len(remote),
            remote_bytes=sum(file.size_bytes for file in remote),
            cache_bytes=blocks.cache_bytes,
            cache_hits=blocks.hit_count,
            fetches=blocks.fetched_count,
            fetched_bytes=blocks.fetched_bytes,
            read_failures=blocks.failure_count,
            dropped_files=self._dropped,
            dropped_bytes=self._dropped_bytes,
            returned_files=self._returned,
            returned_bytes=self._returned_bytes,
            bytes_to_return=sum(file.size_bytes for file in remote if self._is_to_return(file)),
            error=self._retries.error,
        )

    # --- what there is to do ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Some times a second."""
        now_us = self._clock.monotonic_us()
        if self._journal.leads:
            self._led_us = now_us
        if self._is_working or self._is_closed or now_us < self._next_us:
            return
        found = self._to_drop()
        if found is not None:
            file, remote = found
            self._begin(file, lambda: self._drop(file, remote), lambda size: self._has_dropped(file, remote, size))
            return
        if self._hydration is None or self._hydration[0] not in self._files:
            self._hydration = self._next_hydration()
        if self._hydration is not None:
            returning, hydration = self._hydration
            self._begin(returning, hydration.step, lambda size: self._has_stepped(returning, hydration, size))
        else:
            self._next_us = now_us + limits.HISTORY_PAUSE_US
            self._retries.forget_all_but({file.path for file in self._files})

    def _inner(self, file: NodeFile) -> str:
        return file.path.removeprefix(f"{self._files.folder}/")

    def _to_drop(self) -> tuple[NodeFile, RemoteNodeFile] | None:
        """A file that is to go, and what is to stand for it."""
        copied = None if self._shipping is None or not self._journal.leads else self._shipping.copied_files
        if copied is None or self._options.local_us is None:
            return None
        for file in self._files:
            shipped = copied.old.get(self._inner(file))
            if shipped is not None and may_drop(file, shipped) and self._retries.is_due(file.path):
                options, database_id = self._options, self._journal.meta.database_id
                return file, RemoteNodeFile(options.url, options.is_sealed, database_id, shipped.size, shipped.extents)
        return None

    def _is_to_return(self, file: NodeFile) -> bool:
        """Whether a file that lies in the object store should be on disk."""
        if self._options.local_us is None:
            return True
        if not self._journal.leads:
            return self._clock.monotonic_us() - self._led_us >= limits.HISTORY_FOLLOWS_US
        copied = None if self._shipping is None else self._shipping.copied_files
        if copied is None:  # it is not known yet
            return False
        if self._judged[0] is not copied:
            self._judged = copied, {}
        judged = self._judged[1]
        if file.path not in judged:  # kept, because it takes a look at the disk
            judged[file.path] = self._is_lacking(file, copied)
        return judged[file.path]

    def _is_lacking(self, file: NodeFile, copied: CopiedFiles) -> bool:
        """Whether the copy does not keep a file, or it is young."""
        shipped = copied.may_stay_away.get(self._inner(file))
        try:
            return shipped is None or not self._disk.describe(file.path).is_part_of(shipped)
        except (TidelogError, OSError):  # it is not there any more, or damaged: whoever reads the file is told
            return False

    def _next_hydration(self) -> tuple[NodeFile, Hydration] | None:
        for file in self._files:
            is_due = file.is_remote and file.is_needed and self._retries.is_due(file.path)
            if is_due and self._is_to_return(file):
                if self._disk.free_bytes(self._files.folder) < limits.HISTORY_FREE_BYTES_MIN + 2 * file.size_bytes:
                    self._failed(file, OSError(f"there is no space on the disk to fetch {file.path} back"))
                    continue
                try:
                    remote = self._disk.describe(file.path)
                    store = self._disk.blocks.store_of(remote, file.path)
                except (TidelogError, OSError) as error:
                    self._failed(file, error)
                    continue
                return file, Hydration(self._disk.local, file.path, remote, store, lambda: self._is_closed)
        return None

    # --- doing it -----------------------------------------------------------------------------------------------

    def _begin(self, file: NodeFile, work: Callable[[], int], done: Callable[[int], None]) -> None:
        """Run something on the thread, with the file pinned."""
        self._is_working = True
        file.pins += 1
        running = self._loop.run_in_executor(self._thread, work)

        def finish(ended: asyncio.Future[int]) -> None:
            self._is_working = False
            file.pins -= 1
            if ended.cancelled():
                return
            error = ended.exception()
            if error is None:
                self._retries.succeed(file.path)
                done(ended.result())
            elif isinstance(error, TidelogError | OSError):
                self._hydration = None
                self._failed(file, error)
            else:
                raise error

        running.add_done_callback(finish)

    def _drop(self, file: NodeFile, remote: RemoteNodeFile) -> int:
        """On the thread; 0: a snapshot on this disk needs more of it than was shipped."""
        local = self._disk.local
        if is_listed_beyond(local, self._files.folder, file.id, remote.size):
            return 0
        self._disk.forget(file.path)
        store = self._disk.blocks.store_of(remote, file.path)
        return drop_file(local, file.path, remote, store, lambda: self._is_closed)

    def _has_dropped(self, file: NodeFile, remote: RemoteNodeFile, size: int) -> None:
        if not size:
            self._retries.put_off(file.path)
            return
        file.is_remote = True
        self._judged[1].pop(file.path, None)
        file.size_bytes = remote.size
        self._dropped += 1
        self._dropped_bytes += size
        _LOG.info("%s lies only in the object store now (%d bytes)", file.path, size)

    def _has_stepped(self, file: NodeFile, hydration: Hydration, size: int) -> None:
        self._returned_bytes += size
        bandwidth = self._options.bandwidth
        self._next_us = self._clock.monotonic_us() + (limits.SECOND_US * size // bandwidth if bandwidth else 0)
        if hydration.is_whole:
            self._hydration = None
            self._disk.forget(file.path)
            self._returned += 1
            file.is_remote = False
            _LOG.info("%s is on this disk again", file.path)
        if not self._is_closed:
            self._loop.call_soon(self.tick)

    def _failed(self, file: NodeFile, error: BaseException) -> None:
        self._next_us = self._clock.monotonic_us() + limits.HISTORY_PAUSE_US
        if self._retries.fail(file.path, error):
            _LOG.warning("history stays where it is, for now: %s", error)

    def close(self) -> None:
        """Begin no more; what is under way ends after the call to the object store that it waits for."""
        self._is_closed = True
        self._thread.shutdown(wait=False)

    async def finish(self, seconds_max: float = math.inf) -> bool:
        """Wait for what is under way: nobody else may open the directory meanwhile. False: it has not ended by then."""
        deadline_s = self._loop.time() + seconds_max
        while self._is_working and self._loop.time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
        return not self._is_working
