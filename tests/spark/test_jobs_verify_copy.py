"""The audit of a copy finds whatever is wrong with it, and names the object."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.command_line import invoke
from tests.spark.shipped_copies import CopyPlace, Recorded, place, succeed
from tests.spark.test_shipped_streams import Streams
from tidelog import limits
from tidelog.ports import ObjectEntry
from tidelog.shipping.manifest import Going, manifest_number, pack
from tidelog.spark.copies.address import find_history
from tidelog.spark.jobs.verify import Proof, Task, prove
from tidelog.spark.jobs.verify_copy import CopyProof, CopyReport, CopyTask, audit_copy, prove_copy

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 100)
    monkeypatch.setattr(limits, "HOT_NODES_KEPT", 1)


def audit(place: CopyPlace, meanwhile: Callable[[int], None] = lambda _step: None) -> CopyReport:
    """`meanwhile` is called before manifests are read (0), and before objects are (1)."""
    address = find_history(place.url, place.storage)
    steps = itertools.count()

    def run_tasks(tasks: Sequence[CopyTask]) -> list[CopyProof]:
        meanwhile(next(steps))
        return [prove_copy(task, address) for task in tasks]

    def run_lineage(lineage: str, tasks: Sequence[Task]) -> list[Proof]:
        return [prove(task, address, lineage) for task in tasks]

    return audit_copy(address, run_tasks, run_lineage, frames=3)


def filled(place: CopyPlace, *, lineages: int = 2) -> Recorded:
    """With snapshots, node files, and a server that took over."""
    made: Recorded = Streams(place.objects(), 2)
    made.begin()
    for _ in range(3):
        made.change(25)
        made.ship()
    assert isinstance(made, Streams)
    made.write("cold", 3000)
    made.cool()
    made.save()
    made.change(20)
    made.ship()
    for _ in range(lineages - 1):
        made = succeed(made)
        made.begin()
        made.settle()
        made.change(20)
        made.ship()
    return made


def test_a_sound_copy(place: CopyPlace) -> None:
    shipped = filled(place)
    prefix = f"{shipped.newest.database_id}/"
    shipped.objects.put(f"{prefix}nobody-knows", [b"12345"])
    report = audit(place)

    assert report.damage == []
    assert report.manifests == shipped.newest.number + 1
    assert (report.unnamed, report.unnamed_bytes) == (1, 5)
    named = [name for name, _ in everything(shipped) if manifest_number(name.removeprefix(prefix)) is None]
    assert report.objects == len(named) - 1
    assert len(report.lineages) == 2
    assert all(each.audit is not None and each.audit.is_sound for each in report.lineages)
    assert report.lineages[0].audit is not None
    assert report.lineages[0].audit.nodes > 0
    assert sum(shard.transactions for shard in report.lineages[0].audit.shards) > 60


def everything(shipped: Recorded) -> list[ObjectEntry]:
    found: list[ObjectEntry] = []
    while page := shipped.objects.list(f"{shipped.newest.database_id}/", found[-1].name if found else ""):
        found += page
    return found


def overwrite(shipped: Recorded, name: str, data: bytes) -> None:
    """What nobody does to a copy."""
    shipped.objects.delete(name)
    shipped.objects.put(name, [data])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_damaged_is_found(place: CopyPlace, seed: int) -> None:
    require_found(place, seed)


@pytest.mark.parametrize("seed", range(4, 12))
def test_whatever_is_damaged_in_a_folder_is_found(tmp_path: Path, seed: int) -> None:
    require_found(CopyPlace(str(tmp_path / "objects"), {}), seed)


def require_found(place: CopyPlace, seed: int) -> None:
    shipped = filled(place)
    rng = random.Random(seed)
    newest = shipped.newest
    names = [entry.name for entry in everything(shipped)]
    names.remove(f"{newest.database_id}/manifest-{newest.number:016x}")
    name = rng.choice(names)
    short = name.removeprefix(f"{newest.database_id}/")
    data = bytearray(shipped.objects.get(name))
    match seed % 4:
        case 0:
            shipped.objects.delete(name)
        case 1:
            overwrite(shipped, name, bytes(data[: rng.randrange(len(data))]))
        case 2 if "manifest-" not in short and "base." not in short:  # those end where their zlib stream ends
            overwrite(shipped, name, bytes(data + b"x"))
        case _:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            overwrite(shipped, name, bytes(data))
    is_base = short == newest.base
    if is_base:  # then the newest manifest cannot be opened
        with pytest.raises(Exception, match="base"):
            audit(place)
        return
    report = audit(place)
    assert not report.is_sound
    assert any(damage.object == short for damage in report.damage), (short, report.damage)
    files = {
        extent.object: file_path
        for lineage in newest.lineages
        for file_path, file in lineage.files.items()
        for extent in file.extents
    }
    if short in files:
        assert any(damage.path == files[short] for damage in report.damage), report.damage


def test_what_is_lawfully_deleted_meanwhile_is_no_damage(place: CopyPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHIPPED_MERGED_COUNT", 3)
    shipped = place.shipped()
    shipped.begin()
    for hour in range(27):
        shipped.change(5)
        shipped.ship()
        if hour % 6 == 5:
            shipped.save()
        while shipped.shipper.work():
            pass
        shipped.clock.advance(limits.HOUR_US)
        shipped.ship()
    before = {entry.name for entry in everything(shipped)}

    def delete(step: int) -> None:
        if step == 1:
            shipped.clock.advance(3 * limits.HOUR_US)
            while shipped.shipper.work():
                pass
            shipped.ship()

    report = audit(place, delete)
    gone = before - {entry.name for entry in everything(shipped)}
    assert any("/piece-" in name for name in gone)
    assert report.damage == []


def test_what_is_deleted_unlawfully_is_damage_though_it_was_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that goes although the newest manifest names it."""
    place = CopyPlace(str(tmp_path / "objects"), {})
    shipped = filled(place, lineages=1)
    [name, *_] = [extent for each in shipped.newest.lineages for extent in each.objects()]
    listed = {"format": 1, "names": [name, "piece-of-nobody"]}
    prefix = f"{shipped.newest.database_id}/"
    shipped.objects.put(f"{prefix}going.0-99", [pack(listed)])
    shipped.shipper._upkeep.going.append(Going("going.0-99", shipped.clock.wall_us(), 2))
    shipped.shipper.put_manifest()
    report = audit(place, lambda step: shipped.objects.delete(prefix + name) if step == 0 else None)
    assert [each.object for each in report.damage if "is not there" in each.problem] == [name]


def test_the_command(spark: SparkSession, place: CopyPlace) -> None:
    shipped = filled(place, lineages=1)
    storage = [word for name, value in place.storage.items() for word in ("--storage", f"{name}={value}")]
    done = invoke("pipeline", "verify", place.url, *storage, "--json")
    assert done.status == 0, done.stderr
    assert done.objects[-1]["sound"] is True
    assert done.objects[-1]["manifest"] == shipped.newest.number
    text = invoke("pipeline", "verify", place.url, *storage)
    assert "sound" in text.stdout

    [name] = [entry.name for entry in everything(shipped) if entry.name.endswith("manifest-0000000000000001")]
    shipped.objects.delete(name)
    done = invoke("pipeline", "verify", place.url, *storage, "--json")
    assert done.status == 1
    problems = [each for each in done.objects if each.get("object") == "manifest-0000000000000001"]
    assert "missing" in problems[0]["problem"]
    assert invoke("pipeline", "verify", f"{place.url}-nothing", *storage).status == 2
