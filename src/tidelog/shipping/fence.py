"""The fence: of two servers that ship the same database, one is told so, and stops for good.

    manifest n + 1    put with create-only: of two that put it, one finds the other's in its place
    lease             the number of the manifest with which a shipper took over: every manifest of it has that
    lease-<number>    an object that says that a takeover has this number

Invariants:
- The manifest of a takeover and the one before it are never deleted: `lease-<number>` tells the sweep so, and is there
  first. A shipper that was replaced tries one of these two names next, and neither is ever free, even after years.
- A shipper that has not put a manifest for an hour by any clock looks for the newest one before it puts or deletes
  anything. It may have been stopped for days, and then other numbers have been free for long.
- A manifest that cannot be read was put by somebody else, such as a newer version.
- A store that lets a name be put twice has no fence, and nothing is shipped to it.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog import limits
from tidelog.errors import ShippingError, ShippingFenced, TidelogError
from tidelog.ports import Clock, ObjectStore
from tidelog.shipping.manifest import FORMAT, Manifest, pack
from tidelog.shipping.manifest_log import ManifestLog

_LEASE_NAME: Final = re.compile(r"lease-([0-9a-f]{16})")


def lease_name(number: int) -> str:
    return f"lease-{number:016x}"


def lease_number(name: str) -> int | None:
    """Of an object below its database that tells of a takeover; None: it is something else."""
    found = _LEASE_NAME.fullmatch(name)
    return int(found[1], 16) if found else None


class Fence:
    """Puts the manifests of one shipper."""

    def __init__(self, objects: ObjectStore, database_id: str, clock: Clock) -> None:
        self._objects = objects
        self._database_id = database_id
        self._clock = clock
        self._log = ManifestLog(objects, database_id)
        self.lease = -1
        """-1: it has none."""
        self.number = -1
        """Of the newest manifest."""
        self.made_us = 0
        """When that was put (monotonic)."""
        self._sure_us = 0, 0
        """When it was last known that nobody else has put one (monotonic, wall): machines that sleep stop one clock."""

    def newest(self) -> Manifest | None:
        """The newest manifest, whoever put it; None: there is none."""
        return self._log.newest()

    def begin(self) -> Manifest | None:
        """The newest manifest, for a takeover; None: there is none."""
        self.lease = -1
        self._sure_us = self._now_us()
        return self._log.newest()

    def take(self, manifest: Manifest) -> None:
        """Take over with a manifest that follows the newest one. `FileExistsError`: somebody else was quicker."""
        self._mark(manifest.number)
        if not self._is_sure(self._now_us()):
            raise ShippingError(f"taking over database {self._database_id} took too long: others may have, meanwhile")
        self._log.put(manifest)
        self.lease = manifest.lease
        self.refuse_if_replaced()
        self._confirm(manifest.number)

    def put(self, manifest: Manifest) -> bool:
        """Put the next manifest; whether it is new: there may be one that we have put, although we were told otherwise.

        `ShippingFenced`: somebody else has put it. After an `OSError` it may or may not be there.
        """
        self.refuse_if_replaced()
        is_new = True
        try:
            self._log.put(manifest)
        except FileExistsError:
            self._look_at(manifest.number)
            is_new = False
        self.refuse_if_replaced()  # that may have taken days
        self._confirm(manifest.number)
        return is_new

    def refuse_if_replaced(self) -> None:
        """`ShippingFenced` if somebody else may have taken over since we last knew, and has."""
        now_us = self._now_us()
        if self._is_sure(now_us):
            return
        lease, self.lease = self.lease, -1  # until it is known: whatever is raised here, nothing more is put
        try:
            newest = self._log.newest()
        except OSError:
            self.lease = lease
            raise
        except TidelogError as error:
            raise self._replaced("the newest manifest cannot be read") from error
        if newest is None or newest.lease != lease:
            raise self._replaced("there are manifests of another one" if newest else "the manifests are gone")
        self.lease = lease
        self._sure_us = now_us

    def _is_sure(self, now_us: tuple[int, int]) -> bool:
        return all(abs(now - sure) <= limits.SHIP_SURE_US for now, sure in zip(now_us, self._sure_us, strict=True))

    def _look_at(self, number: int) -> None:
        """There is a manifest of this number: ours, which was put although we were told otherwise, or another's."""
        lease, self.lease = self.lease, -1  # as above
        try:
            found = self._log.lease_of(number)
        except OSError:
            self.lease = lease
            raise
        except TidelogError as error:
            raise self._replaced(f"manifest {number} is not ours") from error
        if found != lease:
            raise self._replaced(f"manifest {number} is not ours")
        self.lease = lease

    def _replaced(self, sign: str) -> ShippingFenced:
        return ShippingFenced(
            f"database {self._database_id} was taken over by another server: {sign}. That one ships now, and this one "
            f"must not any more"
        )

    def _mark(self, number: int) -> None:
        """Say that a takeover is to have this number, and see that the store refuses a name that is there."""
        name, data = f"{self._database_id}/{lease_name(number)}", pack({"format": FORMAT, "lease": number})
        for _ in range(2):
            try:
                self._objects.put(name, [data])
            except FileExistsError:
                return
        raise ShippingError(
            f"the object store lets {name} be put twice: it ignores If-None-Match, so two servers could ship over each "
            f"other and lose the copy. Nothing is shipped to it; use a store with conditional puts"
        )

    def _confirm(self, number: int) -> None:
        """A manifest is there, and is ours."""
        self.number = number
        self._sure_us = self._now_us()
        self.made_us = self._sure_us[0]

    def _now_us(self) -> tuple[int, int]:
        return self._clock.monotonic_us(), self._clock.wall_us()
