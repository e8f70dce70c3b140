"""A full sync lands by a thread: the loop never waits for the disk, and nothing counts before it is durable."""

from __future__ import annotations

import errno

import pytest

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable, level, value
from tidelog import limits
from tidelog.journal.layout import META
from tidelog.journal.verify import verify
from tidelog.replication.landing import Landing
from tidelog.testing.disk import CRASH_STYLES, CrashStyle, SimulatedCrash
from tidelog.testing.network import Route

LARGE = bytes(range(256)) * 24
KEYS = 40


def landing_of(machine: Machine) -> Landing:
    landing = machine.live.replication._landing
    assert landing is not None
    return landing


def world_of(work_s: float = 0.05, *, has_old: bool = True) -> World:
    """A leader with some data, and a server with data of its own, whose thread takes so long."""
    world = World()
    world.a.start()
    for number in range(KEYS):
        world.a.live.run("SET", f"key{number}", "x" * 1000)
    world.b.work_s = work_s
    if has_old:
        world.b.start()
        world.b.live.run("SET", "old", "1")
        world.b.live.store.journal.writer.sync()
    return world


def follow(world: World) -> None:
    world.b.live.replication.follow(world.a.address)


def expect_all(world: World) -> None:
    level(world, world.a, world.b)
    assert value(world.b, f"key{KEYS - 1}") == b"x" * 1000
    assert value(world.b, "old") is None
    store = world.b.live.store
    store.journal.writer.sync()
    assert verify(world.b.disk.clone(1), FOLDER, store.types.operations).is_sound
    assert not world.b.disk.exists(f"{FOLDER}/sync")


def test_the_loop_does_nothing_on_disk_while_files_arrive() -> None:
    world = world_of(work_s=1000)
    follow(world)
    world.loop.run(0.5)
    before = world.b.disk.operations
    world.until(lambda: world.b.live.replication.facts().link_state == "sync")
    world.until(lambda: landing_of(world.b).bytes_left == 0)
    world.loop.run(0.2)
    assert world.b.disk.operations == before
    assert value(world.b, "old") == b"1"


def test_a_server_serves_what_it_had_until_all_has_landed() -> None:
    world = world_of(work_s=2)
    follow(world)
    world.until(lambda: world.b.live.replication.facts().link_state == "sync")
    for _ in range(20):
        world.loop.run(0.1)
        assert value(world.b, "old") == b"1"
    expect_all(world)


def test_the_link_waits_for_a_thread_that_does_not_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANDING_WAITING_BYTES_MAX", 5000)
    monkeypatch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 1000)
    monkeypatch.setattr(limits, "REPLICATION_PUMP_BYTES", 2000)
    world = world_of(work_s=0.5)
    world.network.buffer_bytes = 4000
    follow(world)
    most = 0

    def has_landed() -> bool:
        nonlocal most
        landing = world.b.live.replication._landing
        most = max(most, 0 if landing is None else landing._queue.waiting_bytes)
        return is_stable(world.b) and world.b.live.last_ts == world.a.live.last_ts

    world.until(has_landed, 200)
    assert 5000 <= most < 5000 + 2 * limits.REPLICATION_PIECE_BYTES_MAX
    assert most < 20_000
    expect_all(world)


def test_what_happens_meanwhile_lands_beside_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_STAGED_BYTES_MIN", 3000)
    monkeypatch.setattr(limits, "REPLICATION_LONG_BYTES", 400)
    monkeypatch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 700)
    monkeypatch.setattr(limits, "REPLICATION_PUMP_BYTES", 1000)
    world = world_of(work_s=0.01)
    world.network.route = Route(1000, 0, 50_000.0)
    follow(world)
    world.until(lambda: 0 < world.b.live.replication.facts().sync_bytes_left < 30_000)
    world.a.live.run("SET", "meanwhile", "1")
    world.a.live.run("SET", "large", LARGE)
    world.a.live.run("HSET", "hash", "field", LARGE, "other", "small")
    expect_all(world)
    assert world.b.live.replication.facts().own_full_syncs == 1
    assert value(world.b, "meanwhile") == b"1"
    assert value(world.b, "large") == LARGE
    assert world.b.live.run("HGET", "hash", "field") == LARGE


def test_a_link_that_ends_while_the_thread_works_is_taken_up_by_the_next() -> None:
    world = world_of(work_s=1)
    world.network.route = Route(1000, 0, 20_000.0)
    follow(world)
    for _ in range(3):
        world.until(lambda: world.b.live.replication.facts().sync_bytes_left > 0)
        world.loop.run(1.3)
        for link in world.network.links_of(world.b.host):
            link.fail("Connection reset by peer")
        world.until(lambda: world.b.live.replication.facts().sync_bytes_left == 0)
    expect_all(world)


def test_files_of_a_snapshot_that_is_no_longer_sent_do_not_stay() -> None:
    """Though the link that began with another one was over before the thread came to it."""
    world = world_of(work_s=1)
    world.network.route = Route(1000, 0, 20_000.0)
    follow(world)
    for number, wait_s in enumerate((1.3, 0.1)):
        world.until(lambda: world.b.live.replication.facts().sync_bytes_left > 0)
        world.loop.run(wait_s)
        if not number:
            world.a.live.run("SET", "more", "1")
            world.a.live.store.save()
        for link in world.network.links_of(world.b.host):
            link.fail("Connection reset by peer")
        world.until(lambda: world.b.live.replication.facts().sync_bytes_left == 0)
    expect_all(world)
    assert len(world.b.disk.list(f"{FOLDER}/snapshots")) == 1


def test_another_leader_in_the_middle_of_it() -> None:
    """With a snapshot of the same name: what the thread still does for the one must not end up in the other."""
    world = world_of(work_s=1)
    world.c.start(world.a.address)
    world.until(lambda: is_stable(world.c))
    level(world, world.a, world.c)
    for machine in (world.a, world.c):
        machine.live.store.save()
    follow(world)
    world.until(lambda: world.b.live.replication.facts().sync_bytes_left > 0)
    world.loop.run(0.5)
    world.b.live.replication.follow(world.c.address)
    expect_all(world)


def test_a_server_that_is_to_lead_in_the_middle_of_it_keeps_what_it_has() -> None:
    world = world_of(work_s=1)
    follow(world)
    world.until(lambda: world.b.live.replication.facts().sync_bytes_left > 0)
    world.loop.run(0.7)
    world.b.live.replication.lead()
    world.b.live.run("SET", "new", "1")
    world.loop.run(10)
    assert value(world.b, "old") == b"1"
    world.b.kill()
    world.b.start()
    assert value(world.b, "new") == b"1"
    assert not world.b.disk.exists(f"{FOLDER}/sync")


def test_no_change_of_role_takes_away_what_is_about_to_be_loaded() -> None:
    """From the moment on when it is complete, it counts."""
    world = world_of()
    follow(world)
    world.until(lambda: not world.b.live.is_open)
    world.b.live.replication.follow(world.c.address)
    world.until(lambda: world.b.live.is_open)
    assert value(world.b, f"key{KEYS - 1}") == b"x" * 1000


@pytest.mark.parametrize("style", CRASH_STYLES)
def test_a_crash_at_any_moment_leaves_the_old_or_the_new(style: CrashStyle) -> None:
    operations = 0
    while True:
        operations += 3
        world = world_of(work_s=0.01)
        follow(world)
        world.b.disk.crash_after(operations)
        try:
            world.loop.run(3)
        except SimulatedCrash:
            world.b.crash(style)
        else:
            break
        world.b.start()
        found = value(world.b, "old"), value(world.b, f"key{KEYS - 1}")
        assert found in [(b"1", None), (None, b"x" * 1000)], operations
        expect_all(world)
    assert operations > 50


def test_without_space_it_is_tried_again() -> None:
    world = world_of(work_s=0.01)
    world.b.disk.capacity_bytes = world.b.disk.used_bytes + 20_000
    follow(world)
    world.loop.run(5)
    assert "cannot be stored" in world.b.live.replication.facts().link_error
    assert value(world.b, "old") == b"1"
    world.b.disk.capacity_bytes = None
    expect_all(world)


def test_an_fsync_that_fails_does_not_count() -> None:
    world = world_of(work_s=0.01)
    world.b.disk.fail("sync", errno.EIO, path_contains="/sync/", times=3)
    follow(world)
    expect_all(world)


def test_files_that_are_not_what_came_are_sent_again() -> None:
    world = world_of(work_s=0.01)
    world.network.route = Route(1000, 0, 50_000.0)
    follow(world)
    landing = landing_of(world.b)
    world.until(lambda: any(file.is_whole for file in landing._files.values()))
    for link in world.network.links_of(world.b.host):
        link.fail("Connection reset by peer")
    folder = f"{FOLDER}/sync/snapshots/{world.b.disk.list(f'{FOLDER}/sync/snapshots')[0]}"
    assert landing._files[META].is_whole
    file = world.b.disk.open(f"{folder}/{META}", "write")
    file.write(0, [b"not what came"])
    file.close()
    expect_all(world)


def test_a_process_goes_on_with_what_another_has_finished() -> None:
    world = world_of(work_s=0.01, has_old=False)
    world.network.route = Route(1000, 0, 50_000.0)
    world.b.start(world.a.address)
    world.until(lambda: world.b.disk.exists(f"{FOLDER}/sync/progress.json") and bool(landing_of(world.b)._files))
    world.until(lambda: any(file.is_whole for file in landing_of(world.b)._files.values()))
    whole = [name for name, file in landing_of(world.b)._files.items() if file.is_whole]
    world.b.crash("lose_all")
    world.b.start()
    files = landing_of(world.b)._files
    assert sorted(name for name in files if files[name].is_whole) == sorted(whole)
    expect_all(world)
