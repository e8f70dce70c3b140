"""The manifests of a database in an object store, by their numbers: where readers begin.

    newest      list, then ask for the next by name: a listing may be late, a get by name is not
    put         create-only: of two shippers that put the same number, one is told so

A reader that has a manifest never lists again: it asks for the next number.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ports import ObjectStore
from tidelog.shipping.manifest import (
    NO_BASE,
    Base,
    Manifest,
    base_of,
    decode_base,
    decode_manifest,
    encode_manifest,
    manifest_name,
    manifest_number,
    read_lease,
)

_STEP_MAX: Final = 1 << 40
"""How far ahead the search for the newest looks at most: more numbers than there will ever be."""


def database_ids(objects: ObjectStore) -> list[str]:
    """The databases that lie in a store."""
    return [name for name in objects.folders("") if objects.list(f"{name}/manifest-")]


def only_database(objects: ObjectStore, url: str, wanted: str | None) -> str | None:
    """The database of a copy that is meant; None: there is none at all."""
    found = database_ids(objects)
    if wanted is not None:
        if wanted not in found:
            raise DataDirectoryError(f"{url} has no database {wanted}; it has {', '.join(found) or 'none'}")
        return wanted
    if len(found) > 1:
        raise DataDirectoryError(f"{url} has several databases, say which with --database: {', '.join(found)}")
    return found[0] if found else None


class ManifestLog:
    """The manifests of one database."""

    def __init__(self, objects: ObjectStore, database_id: str) -> None:
        self._objects = objects
        self.database_id = database_id
        self._base: tuple[str, Base] = "", NO_BASE
        """The one that was read last."""

    def newest(self) -> Manifest | None:
        """The newest manifest; None: there is none."""
        found = self._last_listed()
        # A listing may be late: also one that shows nothing.
        manifest = self.get(0 if found is None else found)
        if manifest is None and found is not None:
            raise Corruption(
                "it was listed and is gone: manifests are deleted only while there are newer ones",
                path=f"{self.database_id}/{manifest_name(found)}",
            )
        while manifest is not None and (after := self.get(manifest.number + 1)) is not None:
            manifest = after
        return manifest

    def _last_listed(self) -> int | None:
        """The highest number that a listing shows, found in steps that double and halve: there may be many."""
        last, step = self._first_after(-1), 1
        while last is not None and step:
            further = self._first_after(last + step)
            if further is not None:
                last, step = further, min(2 * step, _STEP_MAX)
            else:
                step //= 2
        return last

    def _first_after(self, number: int) -> int | None:
        """The highest number on the page of the listing that begins after a number."""
        prefix = f"{self.database_id}/"
        after = "" if number < 0 else prefix + manifest_name(number)
        numbers = (
            manifest_number(entry.name.removeprefix(prefix))
            for entry in self._objects.list(f"{prefix}manifest-", after)
        )
        return max((each for each in numbers if each is not None), default=None)

    def get(self, number: int) -> Manifest | None:
        """One of them; None: it is not there, or no more."""
        name = f"{self.database_id}/{manifest_name(number)}"
        try:
            data = self._objects.get(name)
        except FileNotFoundError:
            return None
        base = base_of(data, name)
        if base and self._base[0] != base:
            path = f"{self.database_id}/{base}"
            self._base = base, decode_base(self._objects.get(path), path)
        manifest = decode_manifest(data, name, self._base[1] if base else NO_BASE)
        if manifest.number != number or manifest.database_id != self.database_id:
            raise Corruption("it is the manifest of another database, or has another number", path=name)
        return manifest

    def lease_of(self, number: int) -> int | None:
        """That of the shipper that has put a manifest; None: it is not there. Its base is not read, and may be gone."""
        name = f"{self.database_id}/{manifest_name(number)}"
        try:
            return read_lease(self._objects.get(name), name)
        except FileNotFoundError:
            return None

    def put(self, manifest: Manifest) -> None:
        """`FileExistsError`: there is one of this number. After another `OSError` it may or may not be there."""
        data = encode_manifest(manifest)
        self._objects.put(f"{self.database_id}/{manifest_name(manifest.number)}", [data])
