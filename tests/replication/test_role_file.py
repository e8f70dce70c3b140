"""What a server stores of its role, and what becomes of it when it is promoted or follows another."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable, level
from tidelog.errors import ReplicationError
from tidelog.ids import Ts
from tidelog.journal.layout import ROLE, read_json, write_json
from tidelog.ports import NetworkAddress
from tidelog.replication.message import HistoryPosition, LeaderHello, LinkRole
from tidelog.replication.origin import HistoryOrigin
from tidelog.replication.role_file import COPY_PORT, RoleFile, StoredRole, demoted, promoted, read_role
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

COPY: NetworkAddress = ("s3://bucket/copy", COPY_PORT)
SERVER: NetworkAddress = ("host", 6399)
FOLLOWS_COPY = StoredRole(LinkRole.FOLLOWER, COPY, server_id="id")
FOLLOWS_SERVER = StoredRole(LinkRole.FOLLOWER, SERVER, server_id="id")
FOLLOWS_FOLLOWER = StoredRole(LinkRole.FOLLOWER, SERVER, server_id="id", is_of_copy=True)


def follow(stored: StoredRole, leader: NetworkAddress) -> StoredRole:
    return demoted(stored, leader, "id")


def lead(stored: StoredRole, seed: int = 2) -> StoredRole:
    return promoted(stored, SimulatedClock(), Random(seed))


# --- roles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stored",
    [FOLLOWS_COPY, FOLLOWS_FOLLOWER, follow(FOLLOWS_COPY, SERVER)],
    ids=["of a copy", "of a follower of a copy", "told to follow a server that it has not met"],
)
def test_whoever_has_the_history_of_a_copy_becomes_a_database_of_its_own(stored: StoredRole) -> None:
    """And stays that. Its journal may still have the id of the copy: there was no space for another."""
    leader = lead(stored)
    assert leader.database_id
    assert not leader.came_from_copy
    assert lead(follow(leader, SERVER), seed=3).database_id == leader.database_id


@pytest.mark.parametrize("again", [follow(lead(FOLLOWS_COPY), COPY), follow(FOLLOWS_FOLLOWER, COPY)])
def test_who_follows_a_copy_again_becomes_another_database_each_time(again: StoredRole) -> None:
    assert lead(again, seed=3).database_id not in ("", again.database_id)


@pytest.mark.parametrize("stored", [FOLLOWS_SERVER, follow(StoredRole(), SERVER)])
def test_who_follows_servers_only_stays_what_it_is(stored: StoredRole) -> None:
    assert lead(stored).database_id == ""


@pytest.mark.parametrize("stored", [FOLLOWS_FOLLOWER, follow(lead(FOLLOWS_COPY), SERVER)])
def test_it_comes_back_from_the_file_also_from_that_of_an_earlier_version(stored: StoredRole) -> None:
    disk = SimulatedDisk()
    disk.make_folder("/data")
    RoleFile(disk, "/data").store(stored)
    assert RoleFile(disk, "/data").stored == stored
    members = read_json(disk, f"/data/{ROLE}")
    del members["is_of_copy"], members["database_id"]
    write_json(disk, f"/data/{ROLE}", members)
    assert RoleFile(disk, "/data").stored == FOLLOWS_SERVER


# --- what leaders say -------------------------------------------------------------------------------------------


def hello(*, is_of_copy: bool) -> LeaderHello:
    return LeaderHello("1" * 32, LinkRole.FOLLOWER, HistoryPosition(Ts(0), ()), is_of_copy=is_of_copy)


def no_news() -> None:
    pytest.fail("nobody has said that the history is that of a copy")


def role_file(stored: StoredRole) -> tuple[SimulatedDisk, RoleFile]:
    disk = SimulatedDisk()
    disk.make_folder("/data")
    file = RoleFile(disk, "/data")
    file.store(stored)
    return disk, file


def test_who_speaks_for_a_copy_is_believed_at_once_and_who_does_not_when_its_history_goes_on() -> None:
    disk, file = role_file(FOLLOWS_SERVER)
    news: list[bool] = []
    origin = HistoryOrigin(file, lambda: news.append(file.stored.is_of_copy))
    origin.meet(hello(is_of_copy=True))
    origin.meet(hello(is_of_copy=True))
    origin.go_on(hello(is_of_copy=True))
    assert RoleFile(disk, "/data").stored.is_of_copy
    assert news == [True], "told once, when it is stored"
    origin.meet(hello(is_of_copy=False))
    assert origin.is_of_copy, "a full sync that does not land changes nothing"
    origin.go_on(hello(is_of_copy=False))
    assert not RoleFile(disk, "/data").stored.is_of_copy

    disk.fail("write", errno.ENOSPC, times=None)
    with pytest.raises(ReplicationError, match="cannot be stored"):
        origin.meet(hello(is_of_copy=True))


def test_without_space_it_goes_on_and_would_be_a_database_of_its_own() -> None:
    disk, file = role_file(FOLLOWS_FOLLOWER)
    disk.fail("write", errno.ENOSPC, times=None)
    HistoryOrigin(file, no_news).go_on(hello(is_of_copy=False))
    assert file.stored == FOLLOWS_FOLLOWER


def test_an_id_of_its_own_that_the_journal_does_not_have_is_that_of_a_copy_for_others() -> None:
    leader = lead(FOLLOWS_COPY)
    for stored in (leader, follow(leader, SERVER)):
        origin = HistoryOrigin(role_file(stored)[1], no_news)
        assert origin.speaks_for_copy("of the copy")
        assert not origin.speaks_for_copy(leader.database_id)
    assert HistoryOrigin(role_file(FOLLOWS_FOLLOWER)[1], no_news).speaks_for_copy("of the copy")
    assert not HistoryOrigin(role_file(FOLLOWS_SERVER)[1], no_news).speaks_for_copy("any")


# --- servers ----------------------------------------------------------------------------------------------------


def stored_role(machine: Machine) -> StoredRole:
    stored = read_role(machine.disk, FOLDER)
    assert stored is not None
    return stored


def start_with(machine: Machine, stored: StoredRole) -> None:
    machine.disk.make_folder(FOLDER)
    RoleFile(machine.disk, FOLDER).store(stored)
    machine.start()


def test_a_leader_that_goes_on_with_what_is_here_says_which_database_it_is() -> None:
    world = World()
    world.a.start()
    role = StoredRole(LinkRole.FOLLOWER, world.a.address, server_id="id", database_id="db0-of-its-own")
    start_with(world.b, role)
    assert stored_role(world.b).database_id == "db0-of-its-own"
    world.until(lambda: is_stable(world.b))
    assert stored_role(world.b).database_id == ""
    world.b.live.replication.lead()
    meta = world.a.live.store.journal.meta
    assert world.b.live.store.journal.meta.database_id == meta.database_id


def test_followers_hear_that_the_history_is_that_of_a_copy_when_their_leader_does() -> None:
    """Also those that are linked to it by then."""
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b, world.c)
    database_id = world.a.live.store.journal.meta.database_id
    assert not stored_role(world.c).is_of_copy
    world.a.stop()
    start_with(world.a, StoredRole(LinkRole.FOLLOWER, ("nobody", 1), server_id="id", is_of_copy=True))
    world.until(lambda: stored_role(world.b).is_of_copy and stored_role(world.c).is_of_copy)
    world.c.live.replication.lead()
    assert world.c.live.store.journal.meta.database_id == stored_role(world.c).database_id != database_id
