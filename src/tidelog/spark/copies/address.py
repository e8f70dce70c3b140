"""Where history lies that is read without a server, and how it is opened.

    copy              URL/<database id>/manifest-…: what a server ships with --ship-to
    data directory    a folder with `meta.json`, or a URL that fsspec knows; also a snapshot or a backup

The driver finds out which of them it is, and pins the newest manifest of a copy by its number. Executors open that
manifest by name, and never list. A manifest and all that it refers to stay for a day, so a query may take that long.

A key is read from its file on the driver only, and travels to the executors inside of the reader that Spark pickles.
Nothing shows it: it is in no option, so Spark's plans and its UI do not have it, and its `repr` is its id.

Options `storage.*` go to whatever opens the URL: to `obstore` for a copy (`storage.region`), to fsspec otherwise.
Without them, each process takes credentials from its own environment, as other tools do (`AWS_…`).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import ClientError, DataDirectoryError, EnvironmentFault
from tidelog.journal.layout import META
from tidelog.ports import Disk, ObjectStore
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog, only_database
from tidelog.shipping.sealed_store import SealedStore
from tidelog.shipping.sealing_key import SealingKey
from tidelog.shipping.shipped_disk import Fetched, Scratch, ShippedDisk
from tidelog.spark.options import BadOption, Options
from tidelog.spark.remote_disk import disk_of
from tidelog.system.key_file import read_sealing_key
from tidelog.system.object_store import open_object_store

ROOT: Final = "/shipped"
"""The folder that a lineage is shown in."""
_SCHEMES: Final = ("s3", "gs", "az", "file", "")
"""Those of object stores; the last is a path."""
_OPENED_MAX: Final = 4
"""Copies that a process keeps open. Manifests may be large."""


class OpenedCopy(NamedTuple):
    """A copy, at one manifest."""

    objects: ObjectStore
    manifest: Manifest

    def lineage(self, name: str) -> Lineage:
        for each in self.manifest.lineages:
            if each.name == name:
                return each
        raise DataDirectoryError(f"manifest {self.manifest.number} has no lineage {name}")

    def disk(self, name: str, scratch: Scratch | None = None) -> ShippedDisk:
        """A lineage as the data directory `ROOT`. `scratch`: everything will be read twice."""
        return ShippedDisk(
            *(self.objects, self.manifest.database_id, self.lineage(name), ROOT, _fetch_ahead, None, scratch),
            ahead_blocks=limits.SPARK_AHEAD_BLOCKS,
        )


@dataclass(frozen=True)
class HistoryAddress:
    """Where history lies. It travels to the executors."""

    url: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    database_id: str = ""
    """Of a copy; "": it is a data directory."""
    manifest: int = 0
    """Of a copy: the number of the manifest that is read."""
    key: SealingKey | None = field(default=None, repr=False)

    @property
    def is_copy(self) -> bool:
        return bool(self.database_id)

    def open_copy(self) -> OpenedCopy:
        """The pinned manifest, by its name. Kept for the tasks that follow in the same process."""
        known = self.url, tuple(sorted(self.storage.items())), self.database_id, self.manifest
        key_id = b"" if self.key is None else self.key.id
        opened = _OPENED.get((known, key_id))
        if opened is None:
            objects = open_objects(self.url, self.storage, self.key)
            manifest = ManifestLog(objects, self.database_id).get(self.manifest)
            if manifest is None:
                raise DataDirectoryError(
                    f"manifest {self.manifest} of {self.url} is gone: what is not the newest is kept for a day. "
                    "Run the query again"
                )
            opened = _OPENED[known, key_id] = OpenedCopy(objects, manifest)
            while len(_OPENED) > _OPENED_MAX:
                _OPENED.popitem(last=False)
        return opened

    def open_folder(self, lineage: str = "", scratch: Scratch | None = None) -> tuple[Disk, str]:
        """The disk and the folder of a lineage, or of the data directory that this is."""
        if self.is_copy:
            return self.open_copy().disk(lineage, scratch), ROOT
        return disk_of(self.url, self.storage)


_THREADS: Final[dict[int, ThreadPoolExecutor]] = {}
"""By the process: Spark forks those that run tasks."""


def _fetch_ahead(call: Callable[[], bytes]) -> Fetched:
    threads = _THREADS.get(os.getpid())
    if threads is None:
        threads = _THREADS[os.getpid()] = ThreadPoolExecutor(limits.SPARK_FETCHES_AT_ONCE, "fetching")
    return threads.submit(call)


_OPENED: Final[OrderedDict[tuple[object, bytes], OpenedCopy]] = OrderedDict()


def open_objects(url: str, storage: Mapping[str, str], key: SealingKey | None) -> ObjectStore:
    try:
        objects = open_object_store(url, storage)
    except ValueError as error:
        raise BadOption(str(error)) from None
    return objects if key is None else SealedStore(objects, key, os.urandom)


def take_address(options: Options, url: str, *, must_be_copy: bool = False) -> HistoryAddress:
    """What the options say, and what lies there now. On the driver."""
    storage = options.prefixed("storage.")
    database_id, key_file = options.text("database_id"), options.text("ship_key_file")
    return find_history(url, storage, database_id, key_file, must_be_copy=must_be_copy)


def find_history(
    url: str,
    storage: Mapping[str, str],
    database_id: str | None = None,
    key_file: str | None = None,
    *,
    must_be_copy: bool = False,
) -> HistoryAddress:
    """What lies at a URL, pinned at its newest manifest if it is a copy. On the driver."""
    key = None if key_file is None else _read_key(key_file)
    try:
        found = _find_copy(url, storage, database_id, key)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{url} cannot be read: {error}") from error
    if found is not None:
        return found
    if must_be_copy:
        raise DataDirectoryError(f"{url} is no copy: `--ship-to` makes one")
    if database_id is not None or key is not None:
        raise DataDirectoryError(f"{url} is no copy: database_id and ship_key_file are for copies in object stores")
    return HistoryAddress(url, storage)


def _find_copy(
    url: str, storage: Mapping[str, str], database_id: str | None, key: SealingKey | None
) -> HistoryAddress | None:
    scheme, separator, rest = url.partition("://")
    scheme, path = (scheme, rest) if separator else ("", url)
    if scheme not in _SCHEMES:
        return None
    if scheme in ("", "file"):
        # Before the store is opened: that makes a folder which is missing.
        if storage or not os.path.isdir(path) or os.path.exists(f"{path}/{META}"):
            return None
    else:
        try:
            objects = open_object_store(url, storage)
        except ValueError:
            return None  # options of fsspec's, which reads data directories
        if any(entry.name == META for entry in objects.list(META)):
            return None
    objects = open_objects(url, storage, key)
    found = only_database(objects, url, database_id)
    if found is None:
        return None
    newest = ManifestLog(objects, found).newest()
    if newest is None:
        return None
    return HistoryAddress(url, storage, found, newest.number, key)


def _read_key(path: str) -> SealingKey:
    try:
        return read_sealing_key(path)
    except (OSError, ValueError) as error:
        raise ClientError(f"ship_key_file={path!r}: {error}") from None
