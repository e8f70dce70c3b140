"""The copy in an object store that a command reads: opened, with its database found, or one clear error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.shipping.manifest import Manifest
    from tidelog.system.counted_store import CountedStore


def local_path(place: str) -> str | None:
    """The path of a folder on this machine; None: it is the URL of a bucket."""
    scheme, separator, rest = place.partition("://")
    if not separator:
        return place.rstrip("/") or "/"
    return (rest.rstrip("/") or "/") if scheme == "file" else None


def open_copy(
    url: str,
    key_file: str | None,
    *,
    bytes_per_s: int = 0,
    is_new: bool = False,
    on_bytes: Callable[[], None] | None = None,
) -> CountedStore:
    """The object store of a copy. `is_new`: it may be that nothing is there yet; otherwise a folder is not made."""
    from tidelog.system.counted_store import CountedStore
    from tidelog.system.ship_store import open_ship_store

    path = local_path(url)
    if path is not None and not is_new and not os.path.isdir(path):
        raise DataDirectoryError(f"{url} does not exist, or is no folder")
    try:
        return CountedStore(open_ship_store(url, key_file, bytes_per_s), on_bytes)
    except ValueError as error:
        raise DataDirectoryError(str(error)) from None


def no_copy(url: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"{url} has no copy of a database: `tidelog serve --ship-to` and `tidelog ship --to` make one"
    )


def newest_manifest(objects: CountedStore, url: str, database: str | None) -> Manifest:
    """Of the only database, or the one that is named."""
    from tidelog.shipping.manifest_log import ManifestLog, only_database

    database_id = only_database(objects, url, database)
    manifest = None if database_id is None else ManifestLog(objects, database_id).newest()
    if manifest is None:
        raise no_copy(url)
    return manifest
