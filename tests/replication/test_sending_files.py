"""The files of a snapshot, on the leader: read in pieces, and closed whenever the link ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.replication.simulated_server import Machine
from tests.replication.test_replication import World, is_stable, level, sync_bytes_left
from tidelog import limits
from tidelog.testing.network import Route


def open_snapshot_files(machine: Machine) -> list[str]:
    return [file.path for file in machine.disk._process.files if "/snapshots/" in file.path]


def has_come(left: Callable[[], int], goal: int) -> bool:
    return 0 < left() < goal


def test_a_full_sync_that_is_interrupted_leaves_no_file_open() -> None:
    """In a compiled build, a generator that is dropped does not reach its `finally`."""
    world = World()
    world.network.route = Route(delay_us=1000, bytes_per_s=1_000_000)
    world.a.start()
    for number in range(1000):
        world.a.live.run("SET", f"key{number}", "x" * 3000)
    world.a.live.store.save()
    world.b.start(world.a.address)
    left = sync_bytes_left(world.b)
    for goal in (2_500_000, 2_000_000):
        world.until(partial(has_come, left, goal))
        assert open_snapshot_files(world.a)
        for link in world.network.links_of(world.b.host):
            link.fail("Connection reset by peer")
        world.until(lambda: not world.a.live.replication.followers.links)
        assert not open_snapshot_files(world.a)
    level(world, world.a, world.b)


def test_what_the_follower_has_already_is_read_in_slices() -> None:
    world = World()
    world.network.route = Route(delay_us=1000, bytes_per_s=5_000_000)
    world.a.start()
    for number in range(1000):
        world.a.live.run("SET", f"key{number}", "x" * 3000)
    world.a.live.store.save()
    world.b.start(world.a.address)
    left = sync_bytes_left(world.b)
    world.until(lambda: 0 < left() < 700_000)
    for link in world.network.links_of(world.b.host):
        link.fail("Connection reset by peer")
    most = read_bytes = 0

    def is_level() -> bool:
        """Asked after each turn of a loop."""
        nonlocal most, read_bytes
        before, read_bytes = read_bytes, sum(world.a.disk.bytes_read_by_path.values())
        most = max(most, read_bytes - before)
        return is_stable(world.b) and world.b.live.last_ts == world.a.live.last_ts

    read_bytes = sum(world.a.disk.bytes_read_by_path.values())
    world.until(is_level)
    assert world.a.live.replication.facts().full_syncs == 2, "it was taken up again"
    assert 0 < most < 2 * limits.REPLICATION_PUMP_BYTES
