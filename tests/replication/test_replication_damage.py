"""Damaged files: they cost a link, or a full sync, and never a process or data that is good."""

from __future__ import annotations

import errno

import pytest

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable, level, release_follower, value
from tidelog.journal.retention import RetentionLimits
from tidelog.testing.faults import Operation

SNAPSHOTS = f"{FOLDER}/snapshots"


def damage(machine: Machine, path: str, at: int) -> None:
    machine.disk.flip_bit(path, 8 * at)


def newest_snapshot(machine: Machine) -> str:
    return f"{SNAPSHOTS}/{machine.disk.list(SNAPSHOTS)[-1]}"


def test_a_damaged_description_of_a_snapshot_has_another_one_made() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.a.live.store.save()
    damage(world.a, f"{newest_snapshot(world.a)}/meta.json", 20)
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"1"
    assert len(world.a.disk.list(SNAPSHOTS)) == 1, "it took the place of the damaged one"
    world.a.stop()
    world.a.start()
    assert value(world.a, "x") == b"1"


def test_an_older_snapshot_takes_the_place_of_a_damaged_one() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.a.live.store.save()
    world.a.live.run("SET", "x", "2")
    world.a.live.store.save()
    before = world.a.disk.list(SNAPSHOTS)
    assert len(before) == 2
    damage(world.a, f"{newest_snapshot(world.a)}/meta.json", 20)
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"2"
    assert world.a.disk.list(SNAPSHOTS) == before


def test_a_leader_that_cannot_open_files_ends_the_link_alone() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.a.live.store.save()
    world.a.disk.fail("open", errno.EMFILE, path_contains="/snapshots/", times=5)
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"1"


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_server_that_cannot_read_its_journal_for_a_hello_ends_the_link_alone(
    name: str, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    """Both ends look where their own history ends. The follower knows why there is no link, whoever cannot read."""
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.b.kill()
    world.a.live.run("SET", "x", "2")
    world.b.start()
    {"a": world.a, "b": world.b}[name].disk.fail(operation, errno.EIO, path_contains="/shard-", times=5)
    world.loop.run(0.3)
    assert not is_stable(world.b)
    assert "simulated EIO" in world.b.live.replication.facts().link_error
    assert next(each.levelname for each in caplog.records if "simulated EIO" in each.message) == "ERROR"
    world.a.live.run("SET", "x", "3")
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"3"


def test_a_snapshot_that_has_rotted_never_takes_the_place_of_good_data() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "mine", "good")
    level(world, world.a, world.b)
    world.b.kill()
    move_past(world, "b")
    folder = f"{newest_snapshot(world.a)}/shard-0"
    damage(world.a, f"{folder}/{world.a.disk.list(folder)[0]}", 300)
    world.b.start()
    world.until(lambda: world.b.live.replication.facts().link_state == "sync")
    world.until(lambda: world.b.live.replication.facts().link_state != "sync")
    assert value(world.b, "mine") == b"good"
    assert not world.b.disk.exists(f"{FOLDER}/sync/complete")
    level(world, world.a, world.b)
    assert value(world.b, "key99") == b"x" * 1000
    assert world.a.live.replication.facts().full_syncs == 3, "the first, the damaged one, and that of a new snapshot"
    assert not world.b.disk.exists(f"{FOLDER}/sync")
    world.a.stop()
    world.a.start()
    assert value(world.a, "key99") == b"x" * 1000


def move_past(world: World, name: str) -> None:
    """Let the journal of a have a snapshot, and no longer what comes after a follower's position."""
    for number in range(100):
        world.a.live.run("SET", f"key{number}", "x" * 1000)
    journal = world.a.live.store.journal
    release_follower(world.a, name)
    journal.retention = RetentionLimits(bytes_max=0, snapshots_kept=1)
    world.a.live.store.save()
    assert journal.erase()


def test_a_rotten_frame_of_the_journal_costs_its_reader_a_full_sync() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "mine", "good")
    level(world, world.a, world.b)
    world.b.kill()
    for number in range(100):
        world.a.live.run("SET", f"key{number}", "x" * 1000)
    world.a.live.store.journal.writer.sync()
    rot(world.a)
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "key99") == b"x" * 1000
    assert value(world.b, "mine") == b"good"
    assert world.a.live.replication.facts().full_syncs == 1, "since it was started again"
    assert not [name for name in world.b.disk.list(FOLDER) if name.startswith("set-aside")]
    world.b.kill()
    world.a.live.run("SET", "mine", "better")
    world.b.start()
    level(world, world.a, world.b)
    assert world.a.live.replication.facts().full_syncs == 1, "what it lacks now can be read"


def test_a_follower_that_is_cut_off_again_and_again_takes_its_time() -> None:
    world = World()
    world.pair()
    world.b.kill()
    for number in range(100):
        world.a.live.run("SET", f"key{number}", "x" * 1000)
    world.b.start()

    def cut_off() -> bool:
        """Asked after each turn of a loop."""
        if world.b.live.replication.facts().link_state == "catch_up":
            for link in world.network.links_of(world.b.host):
                link.fail("Connection reset by peer")
        return False

    before = world.a.live.replication.facts().partial_syncs
    world.loop.run_until(cut_off, 60)
    assert 20 < world.a.live.replication.facts().partial_syncs - before < 60, "about 1.5 s lie between two"
    level(world, world.a, world.b)


def forget_memory(machine: Machine) -> None:
    """Let its journal be read from files."""
    machine.stop()
    machine.start()


def rot(machine: Machine) -> None:
    forget_memory(machine)
    damage(machine, middle_segment(machine), 5000)


def middle_segment(machine: Machine) -> str:
    folder = f"{FOLDER}/shard-0"
    names = [name for name in machine.disk.list(folder) if name.startswith("journal")]
    return f"{folder}/{names[len(names) // 2]}"
