"""A full sync of a server whose streams lie in node files: they come along, proved, or nothing is replaced."""

from __future__ import annotations

import pytest

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable, level, sync_bytes_left, value
from tests.store.changes import state
from tests.store.cold import fill, listed, node_paths
from tidelog import limits
from tidelog.errors import LinkMisused
from tidelog.ids import Lsn, Ts
from tidelog.replication.landing import Landing
from tidelog.replication.message import FullSync, SyncFile, SyncReason
from tidelog.streams.stream import Stream
from tidelog.testing.network import Route


def world_of(nodes: int = 2) -> World:
    """A leader with cold nodes and a snapshot, and nothing else."""
    world = World()
    world.a.start()
    fill(world.a.live.store, nodes)
    world.a.live.write()
    world.a.live.store.save()
    return world


class Nobody:
    """Is told how a full sync lands, and does not mind."""

    def landing_went_on(self) -> None:
        return

    def landing_failed(self, error: Exception) -> None:
        raise error


def cold_nodes(machine: Machine) -> int:
    database = machine.live.store.database(0)
    streams = [database.find(key) for key in database.all_keys()]
    return sum(node.is_cold for stream in streams if isinstance(stream, Stream) for node in stream.sealed)


def test_nodes_come_as_they_lie_on_disk() -> None:
    world = world_of()
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert state(world.b.live.store) == state(world.a.live.store)
    assert cold_nodes(world.b) == cold_nodes(world.a) == 6
    assert {path: world.b.disk.read_file(path) for path in node_paths(world.b.disk, FOLDER)} == {
        path: world.a.disk.read_file(path)[: each.length]
        for each in listed(world.a.disk, FOLDER)
        for path in node_paths(world.a.disk, FOLDER)
        if f"{each.id:016x}" in path
    }
    world.b.crash("lose_all")
    world.b.start()
    level(world, world.a, world.b)
    assert state(world.b.live.store) == state(world.a.live.store)


def test_only_what_the_snapshot_needs_is_sent() -> None:
    world = world_of()
    [before] = listed(world.a.disk, FOLDER)
    fill(world.a.live.store, 1)
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert state(world.b.live.store) == state(world.a.live.store)
    [path] = [path for path in node_paths(world.b.disk, FOLDER) if f"{before.id:016x}" in path]
    assert len(world.b.disk.read_file(path)) == before.length < len(world.a.disk.read_file(path))


def test_pinned_files_stay_while_they_are_sent() -> None:
    """The leader drops the streams, and the snapshot that listed their nodes, in the middle of the sync."""
    world = world_of()
    store, [path] = world.a.live.store, node_paths(world.a.disk, FOLDER)
    assert store.cooling is not None
    pinned = store.journal.pin_snapshot()
    assert pinned is not None
    store.cooling.files.close()
    world.a.live.run("FLUSHALL")
    for number in range(3):
        world.a.live.run("SET", "x", str(number))
        store.save()
    world.a.disk.rename(pinned.snapshot.path, "elsewhere")  # not even a snapshot on disk lists it
    store.cooling.end_removal(store.cooling.begin_removal()())
    [(name, size)] = [each for each in pinned.files if "/nodes-" in each[0]]
    file = pinned.open(name)
    assert file.read(0, size) == world.a.disk.read_file(path)
    file.close()
    pinned.release()
    pinned.release()
    store.cooling.end_removal(store.cooling.begin_removal()())
    assert not world.a.disk.exists(path), "nobody needs it any more"


@pytest.mark.parametrize("end", ["link", "process"])
def test_a_sync_goes_on_after_the_files_that_are_whole(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 500)
    monkeypatch.setattr(limits, "REPLICATION_PUMP_BYTES", 1000)
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 2000)
    world = world_of(4)
    assert len(listed(world.a.disk, FOLDER)) > 3
    world.network.route = Route(delay_us=1000, bytes_per_s=20_000)
    world.network.buffer_bytes = 1000
    world.b.start(world.a.address)
    left = sync_bytes_left(world.b)
    world.until(lambda: 0 < left() < 5_000)
    whole = f"{FOLDER}/sync/shard-0"
    names = [name for name in world.b.disk.list(whole) if name.startswith("nodes-")]
    assert len(names) > 1
    if end == "link":
        for link in world.network.links_of(world.b.host):
            link.fail("Connection reset by peer")
    else:
        world.b.kill()
        world.b.start()
    left = sync_bytes_left(world.b)
    world.until(lambda: world.b.live.replication.facts().link_state == "sync")
    world.until(lambda: left() > 0)
    assert left() < 9_000, "most of it is here"
    level(world, world.a, world.b)
    assert state(world.b.live.store) == state(world.a.live.store)


def test_a_damaged_node_never_replaces_good_data_and_the_leader_is_told() -> None:
    world = world_of()
    snapshot = world.a.live.store.journal.newest_snapshot
    assert snapshot is not None
    [path] = node_paths(world.a.disk, FOLDER)
    world.a.disk.flip_bit(path, 8 * 700)
    world.b.start()
    world.b.live.run("SET", "mine", "good")
    world.b.live.store.journal.writer.sync()
    world.b.live.replication.follow(world.a.address)
    world.until(lambda: world.b.live.replication.facts().link_state == "sync")
    world.until(lambda: snapshot.path in world.a.live.store.journal._pins.damaged)
    world.loop.run(0.5)
    assert value(world.b, "mine") == b"good"
    assert not world.b.disk.exists(f"{FOLDER}/sync/complete")
    assert not is_stable(world.b)
    world.a.live.run("DEL", "orders", "clicks", "trades")  # nobody needs the damaged node any more
    world.a.live.store.save()
    level(world, world.a, world.b)
    assert value(world.b, "mine") is None


def test_a_missing_node_file_makes_the_leader_send_an_older_snapshot() -> None:
    world = world_of()
    old = node_paths(world.a.disk, FOLDER)
    store = world.a.live.store
    assert store.cooling is not None
    store.cooling.files.close()
    fill(store, 1)
    world.a.live.write()
    store.save()
    [path] = [path for path in node_paths(world.a.disk, FOLDER) if path not in old]
    world.a.disk.remove(path)
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert world.b.live.run("XLEN", "orders") == 450
    assert len(world.a.live.store.journal._pins.damaged) == 1


def test_a_node_file_of_a_shard_that_is_not_there_is_refused() -> None:
    world = World()
    world.b.start()
    landing = Landing(world.b.disk, FOLDER, world.b.clock, lambda _: True, world.b.live.worker)
    landing.begin(FullSync(SyncReason.EMPTY, Ts(5), (Lsn(0),), 2, 100), "", Nobody())
    landing.take(SyncFile(0, "shard-0/nodes-0000000000000001.bin", 50, 0))
    with pytest.raises(LinkMisused, match="a shard that the snapshot does not have"):
        landing.take(SyncFile(1, "shard-1/nodes-0000000000000001.bin", 50, 0))
