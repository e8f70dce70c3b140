"""Ships a store that is served, and reads what lies only in object stores, as the configuration says."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock, get_ident
from typing import Final

from tidelog import limits
from tidelog.journal.journal import Journal
from tidelog.ports import Clock, Disk, ObjectStore
from tidelog.server.configuration import ServerConfig
from tidelog.server.history import HistoryOptions, ServerHistory
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.shipping import ServerShipping
from tidelog.server.turns import Turns
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.shipper import Shipper
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.store.store import Store

HISTORY_CACHE: Final = "history-cache"
"""The folder of a data directory with blocks of files that lie in an object store."""
OpenStore = Callable[[str, str | None, int], ObjectStore]
"""Opens the object store of a URL; with the file of a key, and bytes a second."""


def absolute_place(url: str) -> str:
    """Where a copy lies, for descriptions that are read in other working directories, too."""
    return url if "://" in url or not url else os.path.abspath(url)


def set_up_copies(lasting: LastingParts, disk: TieredDisk, open_store: OpenStore) -> None:
    """Let every store that is served be shipped, and its node files lie where they should."""
    lasting.make_shipping = partial(make_shipping, lasting, disk, open_store)
    lasting.make_history = partial(make_history, lasting, disk)


def make_shipping(
    lasting: LastingParts, disk: Disk, open_store: OpenStore, journal: Journal, turns: Turns
) -> ServerShipping | None:
    """None: nobody asked for that."""
    config = lasting.config
    if config.ship_to is None:
        return None
    objects = open_store(config.ship_to, config.ship_key_file, config.ship_bandwidth)

    def make_shipper() -> Shipper:
        return Shipper(disk, config.data, journal.meta, objects, lasting.clock, config.ship_keep_us)

    return ServerShipping(
        lasting.loop, journal, turns, lasting.clock, config.ship_to, make_shipper, config.local_history_us
    )


def make_history(
    lasting: LastingParts, disk: TieredDisk, store: Store, shipping: ServerShipping | None
) -> ServerHistory | None:
    """What sees to it that node files lie where the configuration says. None: the store has none."""
    config = lasting.config
    if store.cooling is None:
        return None
    options = HistoryOptions(
        config.local_history_us,
        config.history_bandwidth,
        absolute_place(config.ship_to or ""),
        config.ship_key_file is not None,
    )
    parts = disk, store.journal, store.cooling.files, shipping, lasting.clock
    return ServerHistory(lasting.loop, *parts, options)


def make_tiered_disk(config: ServerConfig, local: Disk, clock: Clock, open_store: OpenStore) -> TieredDisk:
    """The disk of a server, which shows what of its history lies in object stores. The thread that calls is the loop's:
    it never waits for one of them."""
    loop_thread = get_ident()
    threads = ThreadPoolExecutor(limits.HISTORY_FETCHES_AT_ONCE, thread_name_prefix="history-ahead")

    def later(call: Callable[[], None]) -> None:
        threads.submit(call).add_done_callback(lambda done: done.result())  # a bug is told by the thread

    cache = BlockCache(local, f"{config.data}/{HISTORY_CACHE}", config.history_cache, Lock())
    blocks = RemoteBlocks(
        lambda url, is_sealed: open_remote(open_store, url, config.ship_key_file, is_sealed=is_sealed),
        cache,
        clock,
        Lock(),
        lambda: get_ident() != loop_thread,
        later,
    )
    return TieredDisk(local, blocks, config.data)


def open_remote(open_store: OpenStore, url: str, key_file: str | None, *, is_sealed: bool) -> ObjectStore:
    """The object store that a file lies in. `OSError`, `ValueError`: it cannot be opened."""
    if is_sealed and key_file is None:
        raise ValueError("the copy is encrypted: name the file with its key (--ship-key-file)")
    return open_store(url, key_file if is_sealed else None, 0)
