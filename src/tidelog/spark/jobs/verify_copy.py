"""The audit of a copy in an object store: of everything that is shipped.

    manifests    each decodes, and follows the one before it
    objects      each that a manifest of the last day names is there, with the size and the digest that it says
    lineages     of the newest manifest: frames, marks, checksums, blobs, snapshots, node files, as `jobs/verify` does

Objects that a manifest names stay for a day after it. So what only older manifests name may be gone, and is not looked
for. Meanwhile the shipper goes on deleting what it announced a day before: that is no damage either, unless the pinned
manifest names it. Objects that nobody names are counted: the shipper's sweep removes them.

Executors read; the driver lists, and holds the names of all objects. Damage is named with its object, with the file
that this is a part of, and the position in that file. One manifest is pinned, so a server may go on shipping meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, TidelogError
from tidelog.journal.verify import VerifyReport
from tidelog.ports import ObjectStore
from tidelog.shipping.fence import lease_name
from tidelog.shipping.lineage import Lineage, ShippedExtent, new_digest
from tidelog.shipping.manifest import Manifest, manifest_name, manifest_number, unpack
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.spark.copies.address import ROOT, HistoryAddress, open_objects
from tidelog.spark.jobs.verify import Proof, Task, audit_in_parallel

_RUN_MANIFESTS: Final = 200
"""Manifests that one task decodes."""
_GROUP_BYTES: Final = 64 * limits.MIB
_GROUP_OBJECTS: Final = 200
"""What one task reads."""


class NamedObject(NamedTuple):
    """An object, as a manifest names it."""

    name: str
    size: int
    """-1: the manifest does not say."""
    digest: str
    """"": it is a base, a lease, or a list of what goes, which proves itself."""


class ManifestRun(NamedTuple):
    """Manifests that are there, one after the other."""

    numbers: tuple[int, ...]
    before: int | None
    """The one before them, which they are compared with."""
    since_us: int
    """Objects of those that were made before are not looked for."""


class ObjectGroup(NamedTuple):
    """Objects to read."""

    objects: tuple[NamedObject, ...]


CopyTask = ManifestRun | ObjectGroup


class Damage(NamedTuple):
    """What is wrong, and where."""

    object: str
    problem: str
    path: str = ""
    """The file in its lineage that the object is a part of."""
    position: int | None = None
    """In that file; without a file: in the object."""

    def __str__(self) -> str:
        place = f" ({self.path}{'' if self.position is None else f', position {self.position}'})" if self.path else ""
        at = f", position {self.position}" if self.position is not None and not self.path else ""
        return f"{self.object}{at}{place}: {self.problem}"


class Missing(NamedTuple):
    """An object that is not there, which is damage unless it was to be deleted."""

    name: str
    damage: Damage


class CopyProof(NamedTuple):
    """The result of a task."""

    damage: tuple[Damage, ...] = ()
    missing: tuple[Missing, ...] = ()
    named: tuple[NamedObject, ...] = ()
    """Of a run of manifests: the objects that they name ..."""
    going: tuple[str, ...] = ()
    """... and those among them that list what is to be deleted."""
    size_bytes: int = 0
    """Of a group: what was read."""


RunCopyTasks = Callable[[Sequence[CopyTask]], Sequence[CopyProof]]
RunLineageTasks = Callable[[str, Sequence[Task]], Sequence[Proof]]
"""The same for the audit of a lineage, by its name."""


@dataclass(slots=True)
class LineageReport:
    """What was found in one lineage."""

    name: str
    audit: VerifyReport | None
    """None: its first snapshot is still being shipped."""


@dataclass(slots=True)
class CopyReport:
    """The outcome of an audit."""

    database_id: str
    manifest: int
    """The newest."""
    manifests: int = 0
    objects: int = 0
    """That are named and were read ..."""
    bytes: int = 0
    """... and what they hold."""
    announced: int = 0
    """Objects that will be deleted, as a manifest says."""
    unnamed: int = 0
    """Objects that nobody names ..."""
    unnamed_bytes: int = 0
    """... and what they hold."""
    lineages: list[LineageReport] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.damage


# --- on the driver ------------------------------------------------------------------------------------------------


def audit_copy(
    address: HistoryAddress,
    run_tasks: RunCopyTasks,
    run_lineage: RunLineageTasks,
    *,
    frames: int = limits.SPARK_PARTITION_FRAMES,
) -> CopyReport:
    """Audit a copy. `address` has its newest manifest pinned."""
    objects, newest = address.open_copy()
    report = CopyReport(newest.database_id, newest.number)
    there = dict(_listed(objects, f"{newest.database_id}/"))
    numbers = sorted(number for name in there if (number := manifest_number(name)) is not None)
    numbers = [number for number in numbers if number <= newest.number]
    report.manifests = len(numbers)
    since_us = newest.made_us - limits.SHIP_NOTICE_US
    runs = [
        ManifestRun(tuple(numbers[at : at + _RUN_MANIFESTS]), numbers[at - 1] if at else None, since_us)
        for at in range(0, len(numbers), _RUN_MANIFESTS)
    ]
    named: dict[str, NamedObject] = {}
    missing: list[Missing] = []
    announced = _Announced(objects, newest)
    for proof in run_tasks(runs):
        report.damage += proof.damage
        missing += proof.missing
        announced.add(proof.going)
        for each in proof.named:
            known = named.setdefault(each.name, each)
            if known != each:
                report.damage.append(Damage(each.name, "manifests say different things of it"))
    for proof in run_tasks(list(_grouped(named.values()))):
        report.damage += proof.damage
        missing += proof.missing
        report.bytes += proof.size_bytes
    report.damage += [each.damage for each in missing if not announced.may_be_gone(each.name)]
    report.objects = len(named)
    _count_unnamed(report, announced.by_newest, there, named)
    for lineage in newest.lineages:
        audit = None
        if lineage.begins_ts is not None and lineage.ends:
            run_its = lambda tasks, name=lineage.name: run_lineage(name, tasks)  # noqa: E731
            audit = _audit_lineage(address, lineage, run_its, frames, report)
        report.lineages.append(LineageReport(lineage.name, audit))
    report.damage = _placed(newest.lineages, report.damage)
    return report


def _audit_lineage(
    address: HistoryAddress,
    lineage: Lineage,
    run_tasks: Callable[[Sequence[Task]], Sequence[Proof]],
    frames: int,
    report: CopyReport,
) -> VerifyReport | None:
    try:
        audit = audit_in_parallel(address, run_tasks, lineage=lineage.name, frames=frames)
    except (TidelogError, OSError) as error:
        report.damage.append(Damage(lineage.name, f"the lineage cannot be read: {error}"))
        return None
    for problem in audit.problems:
        report.damage.append(_of_lineage(lineage, problem))
    return audit


def _of_lineage(lineage: Lineage, problem: Corruption) -> Damage:
    """Damage of a file, with the object that those bytes are in."""
    path = problem.path.removeprefix(f"{ROOT}/")
    at = problem.position
    if at is None and problem.frame is not None:
        at = problem.frame * lineage.geometry.frame_bytes
    extents = [each for each in lineage.file(path).extents if at is None or each.position <= at < each.end]
    name = extents[0].object if extents else lineage.name
    return Damage(name, problem.problem, path, at)


def _placed(lineages: Iterable[Lineage], damage: Sequence[Damage]) -> list[Damage]:
    """With the files that damaged objects are parts of. What is wrong in one place is said once."""
    places: dict[str, tuple[str, ShippedExtent]] = {}
    for lineage in lineages:
        for path, file in lineage.files.items():
            for extent in file.extents:
                places[extent.object] = path, extent
    found: dict[tuple[str, str, int | None], Damage] = {}
    for each in damage:
        if not each.path and each.object in places:
            path, extent = places[each.object]
            each = each._replace(path=path, position=extent.position + (each.position or 0))
        found.setdefault((each.object, each.path, each.position), each)
    return list(found.values())


def _listed(objects: ObjectStore, prefix: str) -> Iterator[tuple[str, int]]:
    """All objects of a database with their sizes."""
    after = ""
    while page := objects.list(prefix, after):
        for entry in page:
            yield entry.name.removeprefix(prefix), entry.size
        after = page[-1].name


def _grouped(named: Iterable[NamedObject]) -> Iterator[ObjectGroup]:
    group: list[NamedObject] = []
    size = 0
    for each in named:
        group.append(each)
        size += max(each.size, 0)
        if size >= _GROUP_BYTES or len(group) >= _GROUP_OBJECTS:
            yield ObjectGroup(tuple(group))
            group, size = [], 0
    if group:
        yield ObjectGroup(tuple(group))


class _Announced:
    """What manifests of the last day say will be deleted. The newest no longer says it of what is being deleted."""

    def __init__(self, objects: ObjectStore, newest: Manifest) -> None:
        self._objects = objects
        self._prefix = f"{newest.database_id}/"
        self._needed = {each.name for each in named_objects(newest)}
        self._lists: set[str] = set()
        self._names: set[str] = set()
        self.add(going.object for going in newest.going)
        self.by_newest = frozenset(self._names)

    def add(self, lists: Iterable[str]) -> None:
        """Objects that list names."""
        for each in lists:
            if each not in self._lists:
                self._lists.add(each)
                try:
                    self._names.update(_going_names(self._objects, self._prefix + each))
                except (OSError, TidelogError):
                    continue  # it is told of as one of the objects

    def may_be_gone(self, name: str) -> bool:
        return name in self._names and name not in self._needed


def _count_unnamed(
    report: CopyReport, announced: Set[str], there: Mapping[str, int], named: Mapping[str, NamedObject]
) -> None:
    for name, size in there.items():
        if name in announced:
            report.announced += 1
        elif name not in named and manifest_number(name) is None:
            report.unnamed += 1
            report.unnamed_bytes += size


# --- in a task ----------------------------------------------------------------------------------------------------


def prove_copy_numbered(numbered: tuple[int, CopyTask], *, address: HistoryAddress) -> tuple[int, CopyProof]:
    """The same, with the number that says which task it was."""
    return numbered[0], prove_copy(numbered[1], address)


def prove_copy(task: CopyTask, address: HistoryAddress) -> CopyProof:
    """What an executor does."""
    objects = open_objects(address.url, address.storage, address.key)
    prefix = f"{address.database_id}/"
    if isinstance(task, ManifestRun):
        return _prove_manifests(objects, address.database_id, task)
    damage: list[Damage] = []
    missing: list[Missing] = []
    size = 0
    for each in task.objects:
        try:
            size += _prove_object(objects, prefix, each)
        except Corruption as error:
            damage.append(Damage(each.name, error.problem, position=error.position))
        except FileNotFoundError:
            missing.append(Missing(each.name, Damage(each.name, "a manifest names it, and it is not there")))
        except OSError as error:
            damage.append(Damage(each.name, f"it cannot be read: {error.strerror or error}"))
    return CopyProof(tuple(damage), tuple(missing), size_bytes=size)


def _prove_object(objects: ObjectStore, prefix: str, named: NamedObject) -> int:
    name = prefix + named.name
    if not named.digest:
        data = objects.get(name)
        unpack(data, named.name)
        return len(data)
    digest = new_digest()
    for at in range(0, named.size, limits.SHIPPED_BLOCK_BYTES):
        wanted = min(limits.SHIPPED_BLOCK_BYTES, named.size - at)
        data = objects.read(name, at, wanted)
        if len(data) != wanted:
            raise Corruption(f"it ends here, and should have {named.size} bytes", position=at + len(data))
        digest.update(data)
    size = objects.size(name)
    if size != named.size:
        raise Corruption(f"it has {size} bytes, and should have {named.size}", position=named.size)
    if digest.hexdigest() != named.digest:
        raise Corruption("its digest is wrong")
    return size


def _prove_manifests(objects: ObjectStore, database_id: str, run: ManifestRun) -> CopyProof:
    log = ManifestLog(objects, database_id)
    damage: list[Damage] = []
    missing: list[Missing] = []
    named: dict[str, NamedObject] = {}
    going: set[str] = set()
    before: Manifest | None = None
    made_us = 0
    """When the newest of those before was made."""
    last = run.before
    for number in ([] if run.before is None else [run.before]) + list(run.numbers):
        is_ours = number != run.before
        if last is not None and number > last + 1:
            before = None
            if made_us >= run.since_us:  # older ones are deleted, except for those of takeovers
                lost = map(manifest_name, range(last + 1, number))
                problem = "it is missing, and later manifests are there"
                missing += [Missing(name, Damage(name, problem)) for name in lost]
        last = number
        name = manifest_name(number)
        try:
            manifest = log.get(number)
        except FileNotFoundError as error:
            if is_ours and (base := _needed_base(objects, f"{database_id}/{name}", run.since_us)):
                missing.append(Missing(base, Damage(name, f"its base is not there ({error})")))
            before = None
            continue
        except (Corruption, OSError) as error:
            problem = error.problem if isinstance(error, Corruption) else f"it cannot be read: {error}"
            if is_ours:
                damage.append(Damage(name, problem))
            before = None
            continue
        if manifest is None:  # deleted just now
            before = None
            continue
        made_us = manifest.made_us
        if not is_ours:
            before = manifest
            continue
        if before is not None and (problem := _does_not_follow(before, manifest)):
            damage.append(Damage(name, problem))
        before = manifest
        if manifest.made_us >= run.since_us:
            named.update({each.name: each for each in named_objects(manifest)})
            going.update(each.object for each in manifest.going)
        if manifest.lease == number:
            named[lease_name(number)] = NamedObject(lease_name(number), -1, "")
    return CopyProof(tuple(damage), tuple(missing), tuple(named.values()), tuple(going))


def _does_not_follow(before: Manifest, after: Manifest) -> str:
    """Why a manifest cannot be the next after another; "": it can be."""
    if after.lease < before.lease or after.lease > after.number:
        return f"its lease is {after.lease}, and that of the manifest before it is {before.lease}"
    if before.lease != after.lease and after.lease != after.number:
        return f"it has the lease of manifest {after.lease}, which another shipper did not have"
    known = {lineage.name: lineage for lineage in before.lineages}
    for lineage in after.lineages:
        older = known.get(lineage.name)
        if older is not None and lineage.ts < older.ts:
            return f"lineage {lineage.name} ends at ts {lineage.ts}, and ended at {older.ts} before"
    return ""


def named_objects(manifest: Manifest) -> Iterator[NamedObject]:
    """All objects that a manifest names."""
    extents = itertools.chain.from_iterable(
        file.extents for lineage in manifest.lineages for file in lineage.files.values()
    )
    for extent in extents:
        yield NamedObject(extent.object, extent.size, extent.digest)
    if manifest.base:
        yield NamedObject(manifest.base, -1, "")
    for going in manifest.going:
        yield NamedObject(going.object, -1, "")


def _needed_base(objects: ObjectStore, name: str, since_us: int) -> str:
    """The base that a manifest names; "": the manifest is older, and its base may be gone, or it has gone itself."""
    try:
        members = unpack(objects.get(name), name)
    except FileNotFoundError:
        return ""
    return str(members["base"]) if members["made_us"] >= since_us else ""


def _going_names(objects: ObjectStore, name: str) -> list[str]:
    names: list[str] = unpack(objects.get(name), name)["names"]
    return names
