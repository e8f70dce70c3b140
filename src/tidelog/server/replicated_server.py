"""What replication asks of a running server (`replication/server.py`)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from tidelog.ids import Ts
from tidelog.ports import Disk, LinkOwner, Network, NetworkAddress, NetworkLink, Random
from tidelog.replication.message import Publication
from tidelog.replication.replication import Replication
from tidelog.replication.role_file import (
    COPY_PORT,
    RoleFile,
    demoted,
    is_copy,
    leader_text,
    read_role,
)
from tidelog.server.copy_caller import CopyCaller
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.link_call import LeaderCaller
from tidelog.server.served_store import ServedStore
from tidelog.server.ship_target import OpenStore
from tidelog.store.store import Store
from tidelog.store.type_table import TypeTable, value_types

_LOG: Final = logging.getLogger("tidelog")


class ReloadingProcess(Protocol):
    """The process: it has the store that is served, and can replace it."""

    @property
    def served(self) -> ServedStore: ...

    @property
    def port(self) -> int | None: ...

    def reload(self, prepare: Callable[[], None], feed_error: str = "") -> None: ...


class ServerOfReplication:
    """`replication.server.ReplicatedServer` for the process and the store that it serves now."""

    def __init__(self, process: ReloadingProcess, lasting: LastingParts) -> None:
        self._process = process
        self._lasting = lasting

    @property
    def store(self) -> Store:
        return self._process.served.store

    def write(self) -> None:
        self._process.served.write_received()

    def begin_epoch(self, above: Ts) -> None:
        served = self._process.served
        served.turns.commit.sync_now()  # an fsync may be under way
        served.store.journal.begin_epoch(secrets.randbits(63), above)

    def reload(self, prepare: Callable[[], None], feed_error: str) -> None:
        self._process.reload(prepare, feed_error)

    def begin_snapshot(self) -> None:
        self._process.served.begin_snapshot()

    def role_changed(self) -> None:
        self._process.served.engine.role_changed()

    def hold_writes(self, ms: int) -> None:
        self._process.served.engine.gate.hold_writes(ms)

    def deliver(self, publication: Publication) -> None:
        channel, payload, is_sharded = publication
        subscriptions = self._lasting.subscriptions
        (subscriptions.publish_shard if is_sharded else subscriptions.publish)(channel, payload)
        self._lasting.replication.pass_on(publication)


def make_replication(
    process: ReloadingProcess,
    lasting: LastingParts,
    disk: Disk,
    random: Random,
    network: Network,
    open_store: OpenStore,
    make_scratch: Callable[[], Disk],
) -> Replication:
    """The replication of a process, with the role that its data directory has."""
    config = lasting.config
    if config.replicaof is not None:
        _set_first_role(disk, config.data, config.replicaof, random)
    elif config.follow_from is not None:
        _set_first_role(disk, config.data, (config.follow_from, COPY_PORT), random)
    caller = LeaderCaller(network, lambda: lasting.leader_password.secret)
    copies = CopyCaller(lasting, open_store, make_scratch)

    def connect(address: NetworkAddress, owner: LinkOwner) -> NetworkLink:
        return (copies if is_copy(address) else caller).connect(address, owner)

    return Replication(
        ServerOfReplication(process, lasting),
        disk,
        config.data,
        lasting.clock,
        lasting.loop,
        lasting.replication_worker,
        random,
        connect,
        lasting.replication_options,
        TypeTable(value_types()).operations.is_known,
        port=lambda: process.port or 0,
    )


def _set_first_role(disk: Disk, folder: str, leader: NetworkAddress, random: Random) -> None:
    """`--replicaof` counts until a command changes the role: otherwise the next start would undo a failover.

    So does `--follow-from`. No command names a copy, so another URL than before is followed.
    """
    stored = read_role(disk, folder)
    was_copy = stored is not None and stored.leader is not None and is_copy(stored.leader)
    if stored is None or (was_copy and is_copy(leader) and stored.leader != leader):
        disk.make_folder(folder)
        file = RoleFile(disk, folder)
        file.store(demoted(file.stored, leader, file.server_id(random)))
    elif stored.leader != leader:
        now = "leads" if stored.leader is None else f"follows {leader_text(stored.leader)}"
        option = "follow-from" if is_copy(leader) else "replicaof"
        _LOG.warning(
            "%s %s does not count: the role was changed since, and this server %s", option, leader_text(leader), now
        )
