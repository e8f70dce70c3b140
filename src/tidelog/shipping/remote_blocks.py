"""Reads parts of node files that lie in object stores, block by block, through a cache on disk.

    read --in memory, or in the cache--> the bytes
         --not there--> fetched, kept in the cache

A block is not proved before it is kept: its object has one digest, of all of it. A reader that proves what it reads and
finds it damaged has the blocks forgotten, and reads once more (`forget`).

A read that fails is a `HistoryAway`, which names the file and the store. For a moment after it, other reads that would
have to fetch from that store fail at once with the same words: if each waited for its own deadline, those in line would
wait for minutes.

There is a thread that may never wait for an object store: the loop's. A read there of what is not in the cache fails,
and what it wants is fetched on another thread, so that the same read works a little later.

Calls may come from any thread.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption, HistoryAway
from tidelog.ports import Clock, ObjectStore
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.lineage import ShippedExtent
from tidelog.shipping.remote_file import RemoteNodeFile

_LOG: Final = logging.getLogger("tidelog")

OpenRemote = Callable[[str, bool], ObjectStore]
"""Opens the object store of a URL; whether what it holds is encrypted. `OSError`, `ValueError`: it cannot."""


class RemoteBlocks:
    """The blocks of all files that are away."""

    def __init__(
        self,
        open_store: OpenRemote,
        cache: BlockCache,
        clock: Clock,
        lock: AbstractContextManager[object],
        may_wait: Callable[[], bool] = lambda: True,
        later: Callable[[Callable[[], None]], None] = lambda _call: None,
    ) -> None:
        """`may_wait`: whether this is a thread that may; `later` runs a call on one."""
        self._open_store = open_store
        self._cache = cache
        self._clock = clock
        self._lock = lock
        self._may_wait = may_wait
        self._later = later
        self._stores: dict[tuple[str, bool], ObjectStore] = {}
        self._down: dict[str, tuple[int, str]] = {}
        """By URL: until when it counts as down (monotonic), and why."""
        self._recent: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._doubted: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Blocks that were fetched again because what was read of them was damaged: they are not a third time."""
        self._under_way: set[tuple[str, int]] = set()
        """What is fetched for threads that may not wait."""
        self.hit_count = 0
        """Reads of blocks that were in the cache ..."""
        self.fetched_count = 0
        """... blocks that were fetched ..."""
        self.fetched_bytes = 0
        """... with so many bytes ..."""
        self.failure_count = 0
        """... and reads that failed."""

    @property
    def cache_bytes(self) -> int:
        return self._cache.size_bytes

    def store_of(self, remote: RemoteNodeFile, path: str) -> ObjectStore:
        """The store that has a file. `HistoryAway`: it cannot be opened."""
        key = remote.url, remote.is_sealed
        store = self._stores.get(key)
        if store is None:
            try:
                store = self._stores[key] = self._open_store(*key)
            except (OSError, ValueError) as error:
                raise self._away(remote, path, f"which cannot be opened: {error}") from error
        return store

    def read(self, remote: RemoteNodeFile, path: str, position: int, length: int) -> bytes:
        """Bytes of a file; fewer only at its end."""
        end = min(position + length, remote.size)
        found: list[bytes] = []
        at = position
        size = limits.SHIPPED_BLOCK_BYTES
        for extent in remote.extents:
            stop = min(end, extent.end)
            while extent.position <= at < stop:
                block, offset = divmod(at - extent.position, size)
                part = self._block(remote, path, extent, block)[offset : offset + stop - at]
                if not part:
                    raise Corruption(f"its object {extent.object} in {remote.url} is too short", path=path, position=at)
                found.append(part)
                at += len(part)
        return found[0] if len(found) == 1 else b"".join(found)

    def forget(self, remote: RemoteNodeFile, position: int, length: int) -> bool:
        """What was read there is damaged: keep it no longer. False: it was fetched again already, or never came."""
        is_news = False
        size = limits.SHIPPED_BLOCK_BYTES
        for extent in remote.extents:
            start, stop = max(position, extent.position), min(position + length, extent.end)
            name = f"{remote.database_id}/{extent.object}"
            for block in range((start - extent.position) // size, -(-(stop - extent.position) // size)):
                key = name, block
                with self._lock:
                    if start >= stop or key in self._doubted:
                        continue
                    self._doubted[key] = None
                    while len(self._doubted) > limits.HISTORY_DOUBTED_BLOCKS_MAX:
                        self._doubted.popitem(last=False)
                    self._recent.pop(key, None)
                self._cache.forget(*key)
                is_news = True
        return is_news

    def _block(self, remote: RemoteNodeFile, path: str, extent: ShippedExtent, block: int) -> bytes:
        name = f"{remote.database_id}/{extent.object}"
        key = name, block
        with self._lock:
            data = self._recent.get(key)
        if data is None:
            data = self._cache.get(name, block)
        if data is None:
            if not self._may_wait():
                self._fetch_later(remote, path, extent, block)
                raise self._away(remote, path, "and this command cannot wait for it: it is being fetched, try again")
            data = self._fetch(remote, path, extent, block)
        else:
            self.hit_count += 1
        self._keep(key, data)
        return data

    def _keep(self, key: tuple[str, int], data: bytes) -> None:
        with self._lock:
            self._recent[key] = data
            self._recent.move_to_end(key)
            while len(self._recent) > limits.HISTORY_CACHE_OPEN_BLOCKS:
                self._recent.popitem(last=False)

    def _fetch_later(self, remote: RemoteNodeFile, path: str, extent: ShippedExtent, first: int) -> None:
        """Fetch a block, and some that follow it, on other threads. They stay in memory for a while, too."""
        count = -(-extent.size // limits.SHIPPED_BLOCK_BYTES)
        for block in range(first, min(first + limits.HISTORY_AHEAD_BLOCKS, count)):
            key = f"{remote.database_id}/{extent.object}", block
            with self._lock:
                if key in self._under_way or key in self._recent or len(self._under_way) >= limits.HISTORY_AHEAD_BLOCKS:
                    continue
                self._under_way.add(key)
            self._later(partial(self._fetch_ahead, remote, path, extent, block))

    def _fetch_ahead(self, remote: RemoteNodeFile, path: str, extent: ShippedExtent, block: int) -> None:
        key = f"{remote.database_id}/{extent.object}", block
        try:
            data = self._cache.get(*key)
            self._keep(key, self._fetch(remote, path, extent, block) if data is None else data)
        except (HistoryAway, Corruption) as error:
            _LOG.info("what was asked for before has not come: %s", error)  # whoever asks again is told
        finally:
            with self._lock:
                self._under_way.discard(key)

    def _fetch(self, remote: RemoteNodeFile, path: str, extent: ShippedExtent, block: int) -> bytes:
        until_us, reason = self._down.get(remote.url, (0, ""))
        if self._clock.monotonic_us() < until_us:
            raise self._away(remote, path, reason)
        store = self.store_of(remote, path)
        name, start = f"{remote.database_id}/{extent.object}", block * limits.SHIPPED_BLOCK_BYTES
        length = min(limits.SHIPPED_BLOCK_BYTES, extent.size - start)
        try:
            data = store.read(name, start, length)
        except FileNotFoundError:
            self.failure_count += 1
            raise Corruption(f"it lies in {remote.url}, where its object {name} is gone", path=path) from None
        except OSError as error:
            reason = f"which does not give it: {error}"
            if self._clock.monotonic_us() - until_us > limits.HISTORY_DOWN_US or not until_us:
                _LOG.warning("reads of history that lies only in the object store %s fail: %s", remote.url, error)
            self._down[remote.url] = self._clock.monotonic_us() + limits.HISTORY_DOWN_US, reason
            raise self._away(remote, path, reason) from error
        self.fetched_count += 1
        self.fetched_bytes += len(data)
        if len(data) == length:
            self._cache.put(name, block, data)
        return data

    def _away(self, remote: RemoteNodeFile, path: str, reason: str) -> HistoryAway:
        self.failure_count += 1
        return HistoryAway(f"{path} lies in the object store {remote.url}, {reason}")
