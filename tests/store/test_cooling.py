"""Cooling of a store: node files go only when nothing that a power cut can bring back needs them."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from tests.store.changes import open_store, run
from tests.streams.cold_nodes import cool
from tests.streams.plain import filled
from tidelog import limits
from tidelog.journal.node_format import node_file_name
from tidelog.journal.snapshot import list_snapshots
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.disk import SimulatedDisk


def with_cold_nodes(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose stream `s` lies in node files that are full, with a snapshot that lists them."""
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 3)
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 1)
    store = open_store(disk, 1)
    for number in range(1, 10):
        run(store, [b"XADD", b"s", b"0-%d" % number, b"tag", b"t", b"entry", b"e"])
    cool(store)
    store.save()
    return store


def remove_files(store: Store) -> int:
    assert store.cooling is not None
    removed = store.cooling.begin_removal()()
    store.cooling.end_removal(removed)
    return len(removed)


def missing_files(disk: SimulatedDisk) -> list[str]:
    """Of those that complete snapshots list."""
    listed = [each for snapshot in list_snapshots(disk, "/data") for each in snapshot.point.node_files]
    paths = [f"/data/shard-{each.shard}/{node_file_name(each.id)}" for each in listed]
    return [path for path in paths if not disk.exists(path)]


def test_files_of_a_snapshot_stay_until_it_is_durably_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = with_cold_nodes(disk, monkeypatch)
    run(store, [b"DEL", b"s"])
    store.save()
    store.journal.retention = replace(store.journal.retention, snapshots_kept=1)
    disk.fail("sync_folder", errno.EIO, path_contains="/snapshots")
    with pytest.raises(OSError, match="EIO"):
        store.journal.remove_old_snapshots()  # after a power cut it is there again
    assert remove_files(store) > 0
    disk.crash("lose_all")
    assert missing_files(disk) == []


def test_a_start_needs_no_older_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lists is unknown, so no file goes; but nothing of it has to be read."""
    disk = SimulatedDisk()
    store = with_cold_nodes(disk, monkeypatch)
    run(store, [b"DEL", b"s"])
    store.save()
    store.journal.writer.sync()
    disk.kill()
    older, newest = list_snapshots(disk, "/data")
    assert older.point.node_files
    assert not newest.point.node_files
    disk.flip_bit(f"{older.path}/meta.json", 100)
    files = [name for name in disk.list("/data/shard-0") if name.startswith("nodes-")]
    again = open_store(disk, 1)
    assert again.database(0).size == 0
    assert [name for name in disk.list("/data/shard-0") if name.startswith("nodes-")] == files


def test_a_damaged_node_keeps_no_others_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was to be written once more, because its file is sparse."""
    disk = SimulatedDisk()
    store = with_cold_nodes(disk, monkeypatch)
    stream, cooling = store.database(0).peek(b"s"), store.cooling
    assert stream is not None
    assert cooling is not None
    hurt, sound = stream.sealed[:2]
    disk.flip_bit(hurt.place.file.path, 8 * (hurt.place.position + 20))
    run(store, [b"XADD", b"s", b"0-10", b"tag", b"t", b"entry", b"e"])
    stream.seal()
    hot = stream.sealed[-1]
    for node in (hurt, sound, hot):
        stream.line.add(node, also_cold=True)
    place = hurt.place, sound.place
    job = cooling.take()
    assert job is not None
    job.run()
    cooling.finish(job)
    assert [error.path for error in job.damage] == [hurt.place.file.path]
    assert (hurt.place is place[0], sound.place is place[1]) == (True, False)
    assert hot.is_cold
    assert cooling.take() is None


def test_a_start_needs_no_node_that_entries_were_deleted_from(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = with_cold_nodes(disk, monkeypatch)
    run(store, [b"XDEL", b"s", b"0-2"])
    store.journal.writer.write()
    store.journal.writer.sync()
    disk.kill()
    for name in disk.list("/data/shard-0"):
        if name.startswith("nodes-"):
            disk.flip_bit(f"/data/shard-0/{name}", 8 * 40)
    stream = open_store(disk, 1).database(0).peek(b"s")
    assert stream is not None
    assert stream.length == 8


def test_every_shard_has_its_turn() -> None:
    """Also if one has more all the time."""
    store = open_store(SimulatedDisk(), 3)
    cooling = store.cooling
    assert cooling is not None
    database = store.database(0)
    streams: dict[int, tuple[bytes, Stream]] = {}
    for number in range(100):
        key = b"k%d" % number
        streams.setdefault(store.owners[slot_of(key)], (key, Stream()))
    for key, stream in streams.values():
        database.put(key, stream)
        stream.get_in_line(database.cooling_line(key))
    shards = []
    for _ in range(6):
        for _, stream in streams.values():
            filled(5000, stream=stream)
        job = cooling.take()
        assert job is not None
        job.run()
        cooling.finish(job)
        shards.append(job.line.shard)
    assert shards == [0, 1, 2, 0, 1, 2]


def test_nodes_that_cannot_be_read_now_keep_no_others_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = with_cold_nodes(disk, monkeypatch)
    stream, cooling = store.database(0).peek(b"s"), store.cooling
    assert stream is not None
    assert cooling is not None
    away = stream.sealed[0]
    run(store, [b"XADD", b"s", b"0-10", b"tag", b"t", b"entry", b"e"])
    stream.seal()
    hot = stream.sealed[-1]
    for node in (away, hot):
        stream.line.add(node, also_cold=True)
    disk.fail("open", errno.EMFILE, path_contains=away.place.file.path)
    job = cooling.take()
    assert job is not None
    job.run()
    cooling.finish(job)
    assert [node for node, _ in job.unread] == [away]
    assert hot.is_cold
    place = away.place
    stream.line.add(away, also_cold=True)  # as the next pass does
    job = cooling.take()
    assert job is not None
    job.run()
    cooling.finish(job)
    assert away.place is not place


def test_nodes_of_a_job_that_ended_unexpectedly_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 3)
    store = open_store(SimulatedDisk(), 1)
    cooling = store.cooling
    assert cooling is not None
    for number in range(1, 10):
        run(store, [b"XADD", b"s", b"0-%d" % number, b"tag", b"t", b"entry", b"e"])
    list(cooling.look(is_pressed=True))
    job = cooling.take()
    assert job is not None
    cooling.give_up(job)
    list(cooling.look(is_pressed=True))
    again = cooling.take()
    assert again is not None
    assert set(again.nodes) == set(job.taken)
