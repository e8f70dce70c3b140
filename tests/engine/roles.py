"""A server as a leader or a follower, as a test wants it: what replication tells the engine, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine.engine import Engine
from tidelog.engine.surroundings import ServerReplication
from tidelog.ids import Ts
from tidelog.ports import NetworkAddress
from tidelog.replication.facts import FollowerFacts, ReplicationFacts
from tidelog.replication.message import LinkRole
from tidelog.replication.replication import Replication

READ_ONLY: Final = "READONLY You can't write against a read only replica."
NO_REPLICAS: Final = "NOREPLICAS Not enough good replicas to write."
MASTER_DOWN: Final = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."


class FollowerWait:
    """Somebody waits until so many followers have confirmed a ts."""

    def __init__(self, ts: Ts, count: int, is_durable: bool, done: Callable[[], None]) -> None:
        self.ts = ts
        self.count = count
        self.is_durable = is_durable
        self.done = done


class HandMadeRole:
    """The role of an engine, changed by hand."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.role = LinkRole.LEADER
        self.leader: NetworkAddress | None = None
        self.is_link_up = True
        self.write_refusal: str | None = None
        self.read_refusal: str | None = None
        self.written: list[Ts] = []
        """For each follower, how much of the history it has ..."""
        self.durable: list[Ts] = []
        """... and how much of that is durable."""
        self.waits: list[FollowerWait] = []
        self.followers: list[FollowerFacts] = []
        self.fail_overs: list[tuple[NetworkAddress | None, int, bool]] = []
        self.published: list[tuple[bytes, bytes, bool]] = []
        engine.replication = self

    # --- what the engine asks -----------------------------------------------------------------------------------

    def follow(self, address: NetworkAddress) -> None:
        self.role, self.leader = LinkRole.FOLLOWER, address
        self.refuse(READ_ONLY)

    def lead(self) -> None:
        self.role, self.leader = LinkRole.LEADER, None
        self._engine.store.is_follower = False
        self.refuse(None)

    def confirmed_count(self, ts: Ts, *, is_durable: bool) -> int:
        return sum(reached >= ts for reached in (self.durable if is_durable else self.written))

    def wait(self, ts: Ts, count: int, *, is_durable: bool, done: Callable[[], None]) -> Callable[[], None]:
        made = FollowerWait(ts, count, is_durable, done)
        self.waits.append(made)
        return lambda: self.waits.remove(made)

    def fail_over(self, target: NetworkAddress | None, timeout_ms: int, *, is_forced: bool) -> None:
        self.fail_overs.append((target, timeout_ms, is_forced))

    def abort_fail_over(self) -> bool:
        was_under_way = bool(self.fail_overs)
        self.fail_overs.clear()
        return was_under_way

    def tick(self) -> None: ...

    def facts(self) -> ReplicationFacts:
        return ReplicationFacts(
            role=self.role,
            leader=self.leader,
            is_link_up=self.role is LinkRole.FOLLOWER and self.is_link_up,
            link_state="connected" if self.is_link_up else "connect",
            followers=self.followers,
            failover_state="waiting-for-sync" if self.fail_overs else "no-failover",
            applied_ts=self._engine.store.journal.writer.last_ts,
        )

    def publish(self, channel: bytes, payload: bytes, *, is_sharded: bool) -> None:
        self.published.append((channel, payload, is_sharded))

    # --- what a test does ---------------------------------------------------------------------------------------

    def refuse(self, writes: str | None, reads: str | None = None) -> None:
        self.write_refusal, self.read_refusal = writes, reads
        self._engine.role_changed()

    def confirm(self, *, written: list[Ts], durable: list[Ts] | None = None) -> None:
        """So much has each follower now."""
        self.written, self.durable = written, durable if durable is not None else self.durable
        for wait in self.waits[:]:
            if self.confirmed_count(wait.ts, is_durable=wait.is_durable) >= wait.count:
                wait.done()


def fits(replication: Replication) -> ServerReplication:
    """The real one has all that this has: the type checker says so."""
    return replication
