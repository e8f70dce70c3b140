"""Repair of node files: no node that is whole is lost, and those that are lost are named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.store.changes import open_store, run, state
from tests.store.cold import KEYS, fill, listed, made, node_paths
from tidelog.errors import Corruption, NodeLost
from tidelog.journal.node_format import examine_nodes
from tidelog.journal.repair import RepairReport, repair
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.snapshot import list_snapshot_paths
from tidelog.journal.verify import verify
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.type_table import operation_table
from tidelog.streams.stream import Stream
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

TABLE = operation_table()


def mended(disk: SimulatedDisk, *, dry_run: bool = False) -> RepairReport:
    return repair(disk, "/data", dry_run=dry_run, table=TABLE)


def with_one_snapshot() -> SimulatedDisk:
    """The journal before it is erased: nothing takes its place."""
    disk = SimulatedDisk()
    store = made(disk)
    store.journal.retention = RetentionLimits(bytes_max=0, snapshots_kept=1)
    run(store, [b"SET", b"k", b"v" * 5000])
    run(store, [b"SET", b"k2", b"v" * 5000])
    store.save()
    assert store.journal.erase()
    store.journal.close()
    disk.kill()
    return disk


def places(disk: SimulatedDisk, path: str) -> list[int]:
    file = disk.open(path, "read")
    found = [each.position for each in examine_nodes(file, file.size())]
    file.close()
    return found


def read_all(disk: SimulatedDisk) -> tuple[int, int]:
    """How many nodes can be read after a start, and how many are lost."""
    store = open_store(disk, 2)
    sound = lost = 0
    for key in KEYS:
        stream = store.database(0).find(key)
        assert isinstance(stream, Stream)
        for node in stream.sealed:
            try:
                assert node.read().num_rows == node.count
                sound += 1
            except NodeLost:
                lost += 1
    store.journal.close()
    return sound, lost


@pytest.mark.parametrize("where", [20, 0, 3, 5])
def test_one_damaged_node_is_given_up_and_named(where: int) -> None:
    disk = with_one_snapshot()
    path = node_paths(disk)[0]
    before = disk.read_file(path)
    disk.flip_bit(path, 8 * (places(disk, path)[1] + where))
    rotten = disk.read_file(path)
    dry = mended(disk, dry_run=True)
    assert disk.read_file(path) == rotten
    report = mended(disk)
    assert report.actions == dry.actions
    [lost] = [action for action in report.actions if "give up" in action]
    assert "entries" in lost
    assert "of stream" in lost
    assert disk.read_file(f"/data/set-aside-1/{path.removeprefix('/data/')}") == rotten
    assert len(disk.read_file(path)) == len(before)
    disk.crash("lose_all")
    assert read_all(disk) == (5, 1)
    found = verify(disk, "/data", TABLE)
    assert found.is_sound
    assert found.lost_nodes == 1
    assert not mended(disk).was_needed
    copy_newest_snapshot(disk, "/data", "/backup")


def test_a_missing_file_costs_what_was_in_it() -> None:
    disk = with_one_snapshot()
    path = node_paths(disk)[0]
    count = len(places(disk, path))
    disk.remove(path)
    with pytest.raises(Corruption, match="missing"):
        open_store(disk, 2)
    disk.kill()
    report = mended(disk)
    assert len([action for action in report.actions if "give up" in action]) == count
    assert read_all(disk) == (6 - count, count)


def test_a_file_that_is_cut_short_keeps_what_is_left() -> None:
    disk = with_one_snapshot()
    path = node_paths(disk)[0]
    [*_, last] = places(disk, path)
    disk.write_file(path, disk.read_file(path)[: last + 50])
    assert mended(disk).was_needed
    assert read_all(disk) == (5, 1)


def test_an_older_snapshot_that_does_not_need_the_node_takes_over() -> None:
    disk = SimulatedDisk()
    store = made(disk)
    assert store.cooling is not None
    store.cooling.files.close()
    fill(store, 1)
    store.save()
    known = state(store)
    store.journal.close()
    disk.kill()
    [old, newest] = list_snapshot_paths(disk, "/data")
    ids = {each.id for each in listed(disk)}
    [path, *_] = [each for each in node_paths(disk) if int(each[-20:-4], 16) == max(ids, key=lambda i: _age(disk, i))]
    disk.flip_bit(path, 8 * 100)
    report = mended(disk)
    assert not [action for action in report.actions if "give up" in action]
    assert list_snapshot_paths(disk, "/data") == [old]
    assert disk.exists(f"/data/set-aside-1/snapshots/{newest.rpartition('/')[2]}")
    assert disk.exists(f"/data/set-aside-1/{path.removeprefix('/data/')}")
    disk.kill()
    assert state(open_store(disk, 2)) == known


def _age(disk: SimulatedDisk, file_id: int) -> int:
    """1: only the newest snapshot lists it."""
    from tidelog.journal.snapshot import list_snapshots

    first = list_snapshots(disk, "/data")[0]
    return int(file_id not in {each.id for each in first.point.node_files})


def test_what_stays_lost_goes_with_the_stream() -> None:
    disk = with_one_snapshot()
    path = node_paths(disk)[0]
    disk.flip_bit(path, 8 * (places(disk, path)[0] + 20))
    mended(disk)
    store = open_store(disk, 2)
    for key in KEYS:
        run(store, [b"DEL", key])
    for number in range(3):
        run(store, [b"SET", b"n", b"%d" % number])
        store.save()
    store.journal.close()
    open_store(disk, 2).journal.close()
    assert not disk.exists(path)
    assert verify(disk, "/data", TABLE).lost_nodes == 0


# --- crashes ----------------------------------------------------------------------------------------------------


def rot(disk: SimulatedDisk) -> None:
    path = node_paths(disk)[0]
    disk.flip_bit(path, 8 * (places(disk, path)[1] + 20))


def rot_both(disk: SimulatedDisk) -> None:
    """One node of each file."""
    for path in node_paths(disk):
        disk.flip_bit(path, 8 * (places(disk, path)[0] + 20))


def lose_file(disk: SimulatedDisk) -> None:
    disk.remove(node_paths(disk)[0])
    disk.sync_folder("/data/shard-0")
    disk.sync_folder("/data/shard-1")


def cut_short(disk: SimulatedDisk) -> None:
    path = node_paths(disk)[0]
    disk.write_file(path, disk.read_file(path)[: places(disk, path)[-1] + 50])


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("hurt", [rot, rot_both, lose_file, cut_short])
def test_a_crash_at_any_step_is_made_good_by_the_next_repair(
    hurt: Callable[[SimulatedDisk], None], *, is_power_cut: bool
) -> None:
    disk = with_one_snapshot()
    hurt(disk)
    found = {path: disk.read_file(path) for path in node_paths(disk)}
    whole = disk.clone()
    given_up = {action for action in mended(whole).actions if "give up" in action}
    assert given_up
    repaired = {path: whole.read_file(path) for path in node_paths(whole)}
    outcome = read_all(whole.clone())
    steps = whole.operations - disk.operations
    assert steps > 5
    for step in range(1, steps + 1):
        torn = disk.clone(step)
        torn.crash_after(step)
        with pytest.raises(SimulatedCrash):
            mended(torn)
        torn.crash() if is_power_cut else torn.kill()
        again = mended(torn)
        assert {action for action in again.actions if "give up" in action} <= given_up, step
        torn.crash("lose_all")
        assert {path: torn.read_file(path) for path in node_paths(torn)} == repaired, step
        for path, data in found.items():
            if data != repaired[path]:
                inner = path.removeprefix("/data/")
                asides = [f"/data/{name}/{inner}" for name in torn.list("/data") if name.startswith("set-aside-")]
                assert data in [torn.read_file(each) for each in asides if torn.exists(each)], step
        assert not [name for shard in ("shard-0", "shard-1") for name in torn.list(f"/data/{shard}") if ".new" in name]
        assert not mended(torn).was_needed
        assert read_all(torn) == outcome, step
