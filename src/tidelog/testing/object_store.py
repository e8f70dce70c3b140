"""A simulated object store: a bucket in memory, and clients of it to which different things go wrong.

    bucket = SimulatedBucket(clock, Random(seed))
    shipper, other = bucket.client("shipper"), bucket.client("other")
    shipper.faults.put_after = 0.1

What a real bucket may do to its clients happens here on demand, by chance from one seed or at a call that a test names:

- A put fails before it had an effect, after it, or has its effect later, when its sender has long given up.
- Other calls fail; nobody can reach the bucket (`SimulatedBucket.is_down`), or one client cannot
  (`SimulatedObjectStore.is_cut_off`).
- A listing is late: it lacks objects that were put just now, and shows some that were deleted. `get` never is late.

A bucket also watches its clients. No name is put again after its object was deleted, because a reader that still knows
the old one would read the new one; and no object has the name of a folder. Whoever does it gets an `AssertionError`,
which the bucket remembers in case that it is swallowed: call `check` at the end.

Time comes from a clock, and goes on only when the test says so. Nothing is shared between threads but the objects.
"""

from __future__ import annotations

import errno as errnos
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Final, Literal, NamedTuple

from tidelog import limits
from tidelog.ports import Chunk, Clock, ObjectEntry
from tidelog.system.object_names import (
    check_object_folder,
    check_object_name,
    check_object_part,
    check_object_prefix,
)

ObjectOperation = Literal["put", "read", "get", "size", "list", "folders", "delete"]
FaultMoment = Literal["before", "after", "later"]
"""When a call fails, seen from its effect. Only puts have one later; after a call that changes nothing is before it."""

_ERRNOS: Final = (errnos.EIO, errnos.ETIMEDOUT, errnos.EACCES)
"""What calls fail with by chance; the last only before they have an effect."""


@dataclass(slots=True)
class ObjectFaults:
    """How likely calls of one client fail, from 0 to 1."""

    put_before: float = 0.0
    put_after: float = 0.0
    put_later: float = 0.0
    delete_before: float = 0.0
    delete_after: float = 0.0
    read: float = 0.0
    """Also `get` and `size`."""
    list: float = 0.0
    """Also `folders`."""

    def clear(self) -> None:
        for field in fields(self):
            setattr(self, field.name, 0.0)


class ObjectChange(NamedTuple):
    """One that had its effect, whatever its client was told."""

    at_us: int
    client: str
    operation: Literal["put", "delete"]
    name: str
    size: int


class _Stored:
    """An object. Which of two puts made it shows by which of these is there: equal bytes may be one and the same."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data: Final = data


class _LatePut(NamedTuple):
    due_us: int
    client: str
    name: str
    data: bytes


@dataclass(slots=True)
class _PlannedFault:
    operation: ObjectOperation
    moment: FaultMoment
    errno: int
    name_contains: str
    countdown: int
    """Calls of this kind until it strikes; 1 is the next."""
    times: int
    """How many calls it then strikes."""


class SimulatedBucket:
    """What all clients of one store see."""

    def __init__(self, clock: Clock, rng: Random, *, listing_late_us: int = 0, put_late_us: int = 60_000_000) -> None:
        self.clock: Final = clock
        self.rng: Final = rng
        """Draws every fate."""
        self.listing_late_us = listing_late_us
        """At most so long after a put or a delete, a listing does not show it."""
        self.put_late_us = put_late_us
        """At most so long after it failed, a put of the moment "later" has its effect."""
        self.is_down = False
        """Every call of every client fails, before its effect."""
        self.history: Final[list[ObjectChange]] = []
        self.violations: Final[list[str]] = []
        """What clients did that they must not do."""
        self._objects: Final[dict[str, _Stored]] = {}
        self._listed_from_us: Final[dict[str, int]] = {}
        self._listed_until_us: Final[dict[str, tuple[int, int]]] = {}
        """Deleted objects that are still listed: until when, and their size."""
        self._deleted: Final[set[str]] = set()
        self._late_puts: Final[list[_LatePut]] = []

    def client(self, name: str = "client") -> SimulatedObjectStore:
        """Another client, which nothing happens to until its faults are set."""
        return SimulatedObjectStore(self, name)

    # --- what is in it ------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of the objects that exist, in order."""
        self.settle()
        return sorted(self._objects)

    def contents(self, name: str) -> bytes | None:
        self.settle()
        found = self._objects.get(name)
        return None if found is None else found.data

    def damage(self, name: str, data: bytes) -> None:
        """Put other bytes into an object, or make one, behind the back of everybody; no client can."""
        self._objects[name] = _Stored(data)

    def check(self) -> None:
        """`AssertionError` if a client did something that it must not do."""
        self.settle()
        if self.violations:
            raise AssertionError("; ".join(self.violations))

    def settle(self) -> None:
        """Give the late puts their effect that are due."""
        now_us = self.clock.monotonic_us()
        due = [late for late in self._late_puts if late.due_us <= now_us]
        for late in due:
            self._late_puts.remove(late)
            self.create(late.client, late.name, late.data)

    # --- for clients --------------------------------------------------------------------------------------------

    def create(self, client: str, name: str, data: bytes) -> bool:
        """Make an object, unless there is one of this name."""
        if name in self._deleted and name not in self._objects:
            self._complain(f"{client} put {name} again, which had been deleted")
        stored = _Stored(data)
        if self._objects.setdefault(name, stored) is not stored:
            return False
        parts = name.split("/")
        folders = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if any(folder in self._objects for folder in folders) or any(
            other.startswith(f"{name}/") for other in self._objects
        ):
            self._complain(f"{client} put {name}, and one of these names is the folder of the other")
        now_us = self.clock.monotonic_us()
        self._listed_from_us[name] = now_us + self._lateness_us()
        self.history.append(ObjectChange(now_us, client, "put", name, len(data)))
        return True

    def create_later(self, client: str, name: str, data: bytes) -> None:
        due_us = self.clock.monotonic_us() + 1 + self.rng.randrange(max(1, self.put_late_us))
        self._late_puts.append(_LatePut(due_us, client, name, data))

    def remove(self, client: str, name: str) -> None:
        stored = self._objects.pop(name, None)
        if stored is not None:
            size = len(stored.data)
            now_us = self.clock.monotonic_us()
            self._deleted.add(name)
            if self._listed_from_us.pop(name, 0) <= now_us and (lateness_us := self._lateness_us()):
                self._listed_until_us[name] = now_us + lateness_us, size
            self.history.append(ObjectChange(now_us, client, "delete", name, size))

    def find(self, name: str) -> bytes:
        found = self._objects.get(name)
        if found is None:
            raise FileNotFoundError(errnos.ENOENT, "there is no such object", name)
        return found.data

    def listed(self) -> dict[str, int]:
        """Names and sizes as a listing shows them now."""
        now_us = self.clock.monotonic_us()
        for name, (until_us, _) in list(self._listed_until_us.items()):
            if until_us <= now_us:
                del self._listed_until_us[name]
        shown = {name: size for name, (_, size) in self._listed_until_us.items()}
        for name, stored in list(self._objects.items()):
            if self._listed_from_us.get(name, 0) <= now_us:
                shown[name] = len(stored.data)
        return shown

    def _lateness_us(self) -> int:
        return self.rng.randrange(self.listing_late_us + 1) if self.listing_late_us else 0

    def _complain(self, violation: str) -> None:
        self.violations.append(violation)
        raise AssertionError(violation)


class SimulatedObjectStore:
    """`ports.ObjectStore`, as one client has it."""

    def __init__(self, bucket: SimulatedBucket, name: str) -> None:
        self.bucket: Final = bucket
        self.name: Final = name
        self.faults: Final = ObjectFaults()
        self.is_cut_off = False
        """Every call fails, before its effect."""
        self.watch: Callable[[ObjectOperation, str, Literal["before", "after"]], None] | None = None
        """Called before each call that does not fail by then, and after its effect, with the name or prefix. It may let
        time pass, do something with another client, or raise what it likes, such as `SimulatedCrash`."""
        self._planned: Final[list[_PlannedFault]] = []

    def fail(
        self,
        operation: ObjectOperation,
        moment: FaultMoment = "before",
        errno: int = errnos.EIO,
        *,
        after: int = 1,
        times: int = 1,
        name_contains: str = "",
    ) -> None:
        """Let the next call of a kind fail, or a later one (`after`), or several in a row (`times`)."""
        self._planned.append(_PlannedFault(operation, moment, errno, name_contains, after, times))

    # --- ports.ObjectStore --------------------------------------------------------------------------------------

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        check_object_name(name)
        data = b"".join(chunks)
        fault = self._begin("put", name)
        if fault is not None and fault[0] == "later":
            self.bucket.create_later(self.name, name, data)
            raise _error(fault[1], name)
        is_created = self.bucket.create(self.name, name, data)
        self._end("put", name, fault)
        if not is_created:
            raise FileExistsError(errnos.EEXIST, "there is such an object", name)

    def read(self, name: str, position: int, length: int) -> bytes:
        check_object_name(name)
        check_object_part(position, length)
        self._begin("read", name)
        data = self.bucket.find(name)[position : position + length]
        self._end("read", name, None)
        return data

    def get(self, name: str) -> bytes:
        check_object_name(name)
        self._begin("get", name)
        data = self.bucket.find(name)
        self._end("get", name, None)
        return data

    def size(self, name: str) -> int:
        check_object_name(name)
        self._begin("size", name)
        size = len(self.bucket.find(name))
        self._end("size", name, None)
        return size

    def folders(self, prefix: str) -> list[str]:
        check_object_folder(prefix)
        self._begin("folders", prefix)
        below = [name[len(prefix) :] for name in self.bucket.listed() if name.startswith(prefix)]
        self._end("folders", prefix, None)
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def delete(self, name: str) -> None:
        check_object_name(name)
        fault = self._begin("delete", name)
        self.bucket.remove(self.name, name)
        self._end("delete", name, fault)

    # --- faults -------------------------------------------------------------------------------------------------

    def _begin(self, operation: ObjectOperation, name: str) -> tuple[FaultMoment, int] | None:
        """Raise if the call fails before its effect; otherwise say how it fails at its end."""
        self.bucket.settle()
        if self.bucket.is_down or self.is_cut_off:
            raise _error(errnos.ETIMEDOUT, name)
        fault = self._planned_fault(operation, name) or self._drawn_fault(operation)
        if fault is not None and (fault[0] == "before" or operation not in ("put", "delete")):
            raise _error(fault[1], name)
        if self.watch is not None:
            self.watch(operation, name, "before")
        return fault

    def _end(self, operation: ObjectOperation, name: str, fault: tuple[FaultMoment, int] | None) -> None:
        if self.watch is not None:
            self.watch(operation, name, "after")
        if fault is not None:
            raise _error(fault[1], name)

    def _planned_fault(self, operation: ObjectOperation, name: str) -> tuple[FaultMoment, int] | None:
        found = None
        for planned in list(self._planned):
            if planned.operation != operation or planned.name_contains not in name:
                continue
            if planned.countdown > 1:
                planned.countdown -= 1
            elif found is None:
                found = planned.moment, planned.errno
                planned.times -= 1
                if not planned.times:
                    self._planned.remove(planned)
        return found

    def _drawn_fault(self, operation: ObjectOperation) -> tuple[FaultMoment, int] | None:
        """One draw a call that can fail, so that a run stays the same as long as its calls do."""
        faults = self.faults
        chances: list[tuple[float, FaultMoment]]
        if operation == "put":
            chances = [(faults.put_before, "before"), (faults.put_after, "after"), (faults.put_later, "later")]
        elif operation == "delete":
            chances = [(faults.delete_before, "before"), (faults.delete_after, "after")]
        else:
            chances = [(faults.list if operation in ("list", "folders") else faults.read, "before")]
        if not any(chance for chance, _ in chances):
            return None
        drawn = self.bucket.rng.random()
        for chance, moment in chances:
            if drawn < chance:
                return moment, self.bucket.rng.choice(_ERRNOS if moment == "before" else _ERRNOS[:-1])
            drawn -= chance
        return None

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        check_object_prefix(prefix)
        if after:
            check_object_name(after)
        self._begin("list", prefix)
        shown = sorted(self.bucket.listed().items())
        found = [ObjectEntry(name, size) for name, size in shown if name > after and name.startswith(prefix)]
        self._end("list", prefix, None)
        return found[: limits.OBJECTS_LISTED_MAX]


def _error(errno: int, name: str) -> OSError:
    return OSError(errno, f"simulated {errnos.errorcode[errno]}", name)
