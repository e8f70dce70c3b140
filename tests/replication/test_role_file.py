"""What a server stores about its role, when that changes."""

from __future__ import annotations

from random import Random

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable
from tidelog.ports import NetworkAddress
from tidelog.replication.message import LinkRole
from tidelog.replication.role_file import COPY_PORT, RoleFile, StoredRole, demoted, promoted, read_role
from tidelog.testing.clock import SimulatedClock

COPY: NetworkAddress = ("s3://bucket/copy", COPY_PORT)
SERVER: NetworkAddress = ("host", 6399)
FOLLOWS_COPY = StoredRole(LinkRole.FOLLOWER, COPY, server_id="id")


def follow(stored: StoredRole, leader: NetworkAddress) -> StoredRole:
    return demoted(stored, leader, "id", SimulatedClock(), Random(1))


def lead(stored: StoredRole) -> StoredRole:
    return promoted(stored, SimulatedClock(), Random(2))


def test_who_was_promoted_from_a_copy_stays_a_database_of_its_own() -> None:
    """Its journal may still have the id of the copy: there was no space for another."""
    promoted_once = lead(FOLLOWS_COPY)
    assert promoted_once.database_id
    assert lead(follow(promoted_once, SERVER)).database_id == promoted_once.database_id


def test_who_followed_a_copy_and_then_a_server_is_not_the_database_of_the_copy() -> None:
    assert lead(follow(FOLLOWS_COPY, SERVER)).database_id


def test_who_follows_a_copy_again_becomes_another_database_each_time() -> None:
    first = lead(FOLLOWS_COPY)
    again = promoted(follow(first, COPY), SimulatedClock(), Random(3))
    assert again.database_id not in ("", first.database_id)


def test_who_follows_servers_only_stays_what_it_is() -> None:
    assert lead(follow(StoredRole(), SERVER)).database_id == ""


def stored_id(machine: Machine) -> str:
    stored = read_role(machine.disk, FOLDER)
    assert stored is not None
    return stored.database_id


def test_a_leader_that_goes_on_with_what_is_here_says_which_database_it_is() -> None:
    world = World()
    world.a.start()
    world.b.disk.make_folder(FOLDER)
    role = StoredRole(LinkRole.FOLLOWER, world.a.address, server_id="id", database_id="db0-of-its-own")
    RoleFile(world.b.disk, FOLDER).store(role)
    world.b.start()
    assert stored_id(world.b) == "db0-of-its-own"
    world.until(lambda: is_stable(world.b))
    assert stored_id(world.b) == ""
    world.b.live.replication.lead()
    meta = world.a.live.store.journal.meta
    assert world.b.live.store.journal.meta.database_id == meta.database_id
