"""The role of a server, durable in its data directory: `role.json`.

    role        leader or follower
    leader      whom it follows: [host, port], or [url, -1] of a copy in an object store
    server_id   of whoever has this directory, drawn when it first follows: a leader tells followers apart by it
    followers   who has followed it, [host, port, server_id]: after a crash, a leader asks them whether they have more
    handed_over [ts, epoch] if it has handed over to the server that it follows (FAILOVER): what that server must have
                before it is told to lead, and the newest epoch then. Once there is a newer one, it has led
    database_id which database the directory is if it leads: its own, since what it had came out of a copy.
                The journal has it before an epoch begins; the next start sees to that if the process dies in between.
                A follower keeps it until whom it follows goes on with what is here, and does not speak for a copy
    is_of_copy  what is here came out of a copy in an object store, perhaps by way of servers that it followed: if it is
                promoted, it becomes a database of its own. It stays as long as `database_id` does
    is_deposed  it came back as leader and heard of a newer epoch: it takes no writes until it is told what it is

A directory without the file belongs to a leader. What the file says is durable before anybody is told of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Ts
from tidelog.journal.directory import new_database_id
from tidelog.journal.layout import ROLE, read_json, write_json
from tidelog.ports import Clock, Disk, NetworkAddress, Random
from tidelog.replication.message import LinkRole

_NAMES: Final = {LinkRole.LEADER: "leader", LinkRole.FOLLOWER: "follower"}


COPY_PORT: Final = -1
"""In the address of a leader that is a copy in an object store, whose URL stands in the place of the host. No command
can name such a port: a copy is followed because an option says so."""


def is_copy(leader: NetworkAddress) -> bool:
    return leader[1] == COPY_PORT


def leader_text(leader: NetworkAddress) -> str:
    """Whom a server follows, for people."""
    return leader[0] if is_copy(leader) else f"{leader[0]}:{leader[1]}"


class FollowerName(NamedTuple):
    """By which a leader knows a follower. Two that are behind one address, as with NAT, differ in their ids."""

    host: str
    port: int
    server_id: str

    @property
    def address(self) -> NetworkAddress:
        """Where clients find it, as it says."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port} {self.server_id}"


class Handover(NamedTuple):
    """A leader has handed over to one of its followers."""

    ts: Ts
    """The follower had everything up to here, which is all unless it was forced."""
    epoch: int
    """The newest that the leader knew."""


@dataclass(frozen=True, slots=True)
class StoredRole:
    """What the file says."""

    role: LinkRole = LinkRole.LEADER
    leader: NetworkAddress | None = None
    followers: tuple[FollowerName, ...] = ()
    is_deposed: bool = False
    server_id: str = ""
    """Empty: it has never followed."""
    handed_over: Handover | None = None
    """Only of a follower: to the server that it follows."""
    database_id: str = ""
    """Its own, of one that was promoted with the history of a copy; empty: the directory is what it was."""
    is_of_copy: bool = False
    """Whom it followed last was a copy, or said that its history is that of one."""

    @property
    def came_from_copy(self) -> bool:
        return self.is_of_copy or (self.leader is not None and is_copy(self.leader))


def read_role(disk: Disk, folder: str) -> StoredRole | None:
    """None: nobody ever said what the server of this directory is."""
    path = f"{folder}/{ROLE}"
    if not disk.exists(path):
        return None
    members = read_json(disk, path)
    try:
        role = next(role for role, name in _NAMES.items() if name == members["role"])
        leader = _address(members["leader"]) if members["leader"] is not None else None
        followers = tuple(map(_follower, members["followers"]))
        handed_over = None if members["handed_over"] is None else _handover(members["handed_over"])
        server_id = str(members["server_id"])
        is_deposed, database_id = bool(members["is_deposed"]), str(members.get("database_id", ""))
        is_of_copy = bool(members.get("is_of_copy", False))
        stored = StoredRole(role, leader, followers, is_deposed, server_id, handed_over, database_id, is_of_copy)
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise Corruption(f"it makes no sense ({error!r})", path=path) from None
    if (stored.role is LinkRole.FOLLOWER) != (stored.leader is not None):
        raise Corruption("it names a leader to follow if, and only if, it is a follower's", path=path)
    return stored


def draw_server_id(random: Random) -> str:
    return f"{random.randrange(2**64):016x}"


def demoted(
    stored: StoredRole,
    leader: NetworkAddress,
    server_id: str,
    handed_over: Handover | None = None,
) -> StoredRole:
    """What a server stores that follows from now on; `server_id`: what it has said to others, or a new one. Which
    database it would be without its leader stays, until that says otherwise."""
    return StoredRole(
        LinkRole.FOLLOWER,
        leader,
        stored.followers,
        server_id=server_id,
        handed_over=handed_over,
        database_id=stored.database_id,
        is_of_copy=stored.came_from_copy,
    )


def promoted(stored: StoredRole, clock: Clock, random: Random) -> StoredRole:
    """What a server stores that leads from now on. One whose history came out of a copy becomes a database of its own:
    whoever made the copy may go on with it, and nobody else may ship over that."""
    database_id = stored.database_id
    if stored.came_from_copy:
        database_id = new_database_id(clock, lambda: random.randrange(2**63))
    return StoredRole(LinkRole.LEADER, None, stored.followers, server_id=stored.server_id, database_id=database_id)


def _address(value: Any) -> NetworkAddress:
    host, port = value
    return str(host), int(port)


def _follower(value: Any) -> FollowerName:
    host, port, server_id = value
    return FollowerName(str(host), int(port), str(server_id))


def _handover(value: Any) -> Handover:
    ts, epoch = value
    return Handover(Ts(int(ts)), int(epoch))


class RoleFile:
    """The file of an open data directory."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{ROLE}"
        self.stored = read_role(disk, folder) or StoredRole()

    def store(self, stored: StoredRole) -> None:
        """Durable when it returns. `OSError`: the role stays as it is."""
        try:
            self._write(stored)
        except OSError:
            with suppress(OSError):  # it may be in place already, and must not come true after the next crash
                self._write(self.stored)
            raise
        self.stored = stored

    def _write(self, stored: StoredRole) -> None:
        write_json(
            self._disk,
            self._path,
            {
                "role": _NAMES[stored.role],
                "leader": None if stored.leader is None else list(stored.leader),
                "followers": [list(each) for each in stored.followers],
                "is_deposed": stored.is_deposed,
                "server_id": stored.server_id,
                "database_id": stored.database_id,
                "is_of_copy": stored.is_of_copy,
                "handed_over": None if stored.handed_over is None else list(stored.handed_over),
            },
        )

    def add_follower(self, follower: FollowerName) -> None:
        """Remember one; the newest are kept."""
        if follower not in self.stored.followers:
            kept = (*self.stored.followers, follower)[-limits.FOLLOWERS_KNOWN_MAX :]
            self.store(replace(self.stored, followers=kept))

    def forget_follower(self, follower: FollowerName) -> None:
        if follower in self.stored.followers:
            kept = tuple(each for each in self.stored.followers if each != follower)
            self.store(replace(self.stored, followers=kept))

    def server_id(self, random: Random) -> str:
        """The one that is stored, or a new one."""
        return self.stored.server_id or draw_server_id(random)
