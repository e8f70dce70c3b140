"""`--restore-from`: an empty data directory is filled from a copy before it is opened, as the same database.

A machine that lost its disk comes back by itself. The server that shipped last may still live, cut off from here, and
its clients with it; so nothing is done before no manifest has come for `--restore-wait`. If one comes while files are
fetched, all that was fetched counts for nothing, and the wait begins anew. If that server wakes up later all the same,
one of the two stops: the old one, if this one has taken over by then (`shipping.fence`), and this one otherwise
(`shipping.succession`).

`--restore-lazy` leaves node files where they are: the server begins to serve, reads them from there, and fetches them
in the background (`history`).

A copy without any database is no error: the first start of a server that is always started with this option finds one.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final

from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.journal import layout
from tidelog.ports import Clock, Disk, ObjectStore
from tidelog.server.configuration import ServerConfig
from tidelog.server.ship_target import OpenStore, absolute_place
from tidelog.shipping.fetch import LeftBehind, RunAll, bytes_to_fetch, fetch_directory, write_restored
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog, only_database
from tidelog.shipping.moments import lineage_at
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.store.new_directory import count_for_nothing
from tidelog.store.restore import restore
from tidelog.store.store import Store

_LOG: Final = logging.getLogger("tidelog")
_ROOT: Final = "/shipped"


OnFetched = Callable[[int, int], None]
"""Is told how many bytes are there of how many, on any thread."""


def restore_first(
    config: ServerConfig,
    disk: Disk,
    clock: Clock,
    open_store: OpenStore,
    fetch_all: RunAll,
    on_fetched: OnFetched = lambda _done, _total: None,
) -> None:
    """Fill the data directory if it is empty and the configuration says from where. On a thread: it takes its time."""
    if config.restore_from is None or config.replicaof is not None or not _is_empty(disk, config.data):
        return
    try:
        found = _find(config, config.restore_from, open_store)
        if found is None:
            _LOG.warning("%s has no database yet: the server begins an empty one", config.restore_from)
            return
        objects, database_id = found
        log = ManifestLog(objects, database_id)
        left = None
        if config.restore_lazy:
            left = LeftBehind(absolute_place(config.restore_from), config.ship_key_file is not None)
        while True:
            manifest = _wait_for_quiet(log, config.restore_wait_us, clock)
            _fill(disk, config.data, objects, manifest, clock, fetch_all, left, on_fetched)
            if log.lease_of(manifest.number + 1) is None:
                break
            _LOG.warning("another server has shipped while its copy was fetched: waiting until it does not")
            count_for_nothing(disk, config.data)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{config.data} cannot be restored from {config.restore_from}: {error}") from error
    _LOG.warning("restored %s from %s, manifest %d", config.data, config.restore_from, manifest.number)


def _find(config: ServerConfig, url: str, open_store: OpenStore) -> tuple[ObjectStore, str] | None:
    """The store, and which database of it is meant; None: there is none yet, nor perhaps the folder."""
    try:
        objects = open_store(url, config.ship_key_file, 0)
    except FileNotFoundError as error:
        if error.filename == config.ship_key_file:
            raise
        return None
    database_id = only_database(objects, url, config.database)
    return None if database_id is None else (objects, database_id)


def _is_empty(disk: Disk, folder: str) -> bool:
    """Whether there is no data: nothing, or a restore that did not finish."""
    if not disk.exists(folder):
        return True
    names = disk.list(folder)
    return layout.RESTORING in names or not set(names) - {layout.LOCK}


def _wait_for_quiet(log: ManifestLog, wait_us: int, clock: Clock) -> Manifest:
    """The newest manifest, once none has come for so long.

    One that is old already, by the clock of this machine, needs no such wait; but clocks differ, and a server that
    lives says so every ten seconds: that is waited for in any case.
    """
    manifest = log.newest()
    assert manifest is not None
    age_us = clock.wall_us() - manifest.made_us
    quiet_us = min(wait_us, max(wait_us - age_us, 2 * limits.SHIP_BEAT_US))
    since_us = clock.monotonic_us()
    told_us: int | None = None
    while clock.monotonic_us() - since_us < quiet_us:
        time.sleep(min(limits.SHIP_EVERY_S, quiet_us / 1e6))
        if (after := log.get(manifest.number + 1)) is not None:
            manifest, since_us, quiet_us = after, clock.monotonic_us(), wait_us
            if told_us is None or since_us - told_us >= limits.RESTORE_TOLD_US:
                told_us = since_us
                _LOG.warning(
                    "another server still ships database %s (manifest %d): waiting until it does not for %d s. If "
                    "that server is to go on, let this one follow it, with --replicaof HOST:PORT in the place of "
                    "--restore-from, or read-only with --follow-from",
                    manifest.database_id,
                    manifest.number,
                    wait_us // limits.SECOND_US,
                )
    return manifest


class _Progress:
    """What of a copy is here, for the log and for whoever asks the server. For many threads."""

    def __init__(self, total: int, clock: Clock, on_fetched: OnFetched) -> None:
        self._total = total
        self._clock = clock
        self._on_fetched = on_fetched
        self._done = 0
        self._told_us = clock.monotonic_us()
        on_fetched(0, total)

    def add(self, size: int) -> None:
        self._done += size  # two threads at once may lose a block: it is for people
        self._on_fetched(self._done, self._total)
        now_us = self._clock.monotonic_us()
        if now_us - self._told_us >= limits.RESTORE_PROGRESS_US:
            self._told_us = now_us
            percent = 100 * self._done // max(1, self._total)
            _LOG.info("restoring: %d of %d MB, %d %%", self._done // 10**6, self._total // 10**6, min(100, percent))


def _fill(
    disk: Disk,
    target: str,
    objects: ObjectStore,
    manifest: Manifest,
    clock: Clock,
    fetch_all: RunAll,
    left: LeftBehind | None,
    on_fetched: OnFetched,
) -> None:
    lineage, until = lineage_at(manifest, None)
    if until == lineage.ts:
        progress = _Progress(bytes_to_fetch(lineage, left), clock, on_fetched)
        fetch_directory(disk, target, objects, manifest, lineage, fetch_all, progress.add, left)
        return
    # The lineage that goes on after it has no snapshot yet: what is still history of this one has to be cut out.
    source = ShippedDisk(objects, manifest.database_id, lineage, _ROOT)
    store = Store(clock, random.Random())
    restore(disk, store, _ROOT, target, until=until, source_disk=source, database_id=manifest.database_id)
    write_restored(disk, target, manifest)
