"""The disk of this machine for tools that look at a data directory: files that lie only in an object store show, too.

What is read of those is kept in memory for a while: the data directory belongs to its server. The key of an encrypted
copy is in the file that `TIDELOG_SHIP_KEY_FILE` names, as for the server.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final

from tidelog import limits
from tidelog.ports import ObjectStore
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.system.memory_disk import MemoryDisk
from tidelog.system.ship_store import open_read_store

KEY_FILE_VARIABLE: Final = "TIDELOG_SHIP_KEY_FILE"


def whole_disk(folder: str | None = None) -> TieredDisk:
    """`folder`: a data directory in which files get second names."""
    cache = BlockCache(MemoryDisk(), "/history-cache", limits.HISTORY_CACHE_MEMORY_BYTES, Lock())
    return TieredDisk(SystemDisk(), RemoteBlocks(_open, cache, SystemClock(), Lock()), folder)


def _open(url: str, is_sealed: bool) -> ObjectStore:
    key_file = os.environ.get(KEY_FILE_VARIABLE)
    if is_sealed and not key_file:
        raise ValueError(f"the copy is encrypted: {KEY_FILE_VARIABLE} must name the file with its key")
    return open_read_store(url, key_file if is_sealed else None)
