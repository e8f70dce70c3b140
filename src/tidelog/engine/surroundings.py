"""What the engine asks of the server around it: the process, and the parts that are made by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

from tidelog.engine.metrics import SnapshotFacts
from tidelog.errors import ApplyFailed
from tidelog.ids import Ts
from tidelog.ports import NetworkAddress
from tidelog.replication.facts import ReplicationFacts
from tidelog.replication.message import LinkRole


class ServerProcess(Protocol):
    """What the engine asks of the process that it runs in."""

    def shut_down(self) -> None:
        """Stop in order, soon."""

    def fail(self, error: ApplyFailed) -> NoReturn:
        """Stop at once: nothing may be written or answered any more."""

    def sleep(self, seconds: float) -> None:
        """Do nothing at all, and let everyone wait (DEBUG SLEEP)."""

    def facts(self, section: str) -> Mapping[str, object] | None:
        """A section of INFO; None: there is no such section."""


class Snapshots(Protocol):
    """Makes snapshots: on demand, and by itself as the journal grows."""

    last_s: int
    """When the last one was made, or the server started (seconds since 1970)."""

    @property
    def facts(self) -> SnapshotFacts: ...

    def begin(self) -> None:
        """Begin one, which goes on in the background; `CommandError` if there can be none now."""

    def save(self) -> None:
        """Make one before anything else happens."""

    def save_last(self) -> None:
        """Make one before the server stops; one that is under way is given up for it."""


class ServerReplication(Protocol):
    """The server as a leader or a follower (`replication/`)."""

    @property
    def role(self) -> LinkRole: ...

    @property
    def leader(self) -> NetworkAddress | None:
        """Whom it follows; None: it leads."""

    @property
    def write_refusal(self) -> str | None:
        """Why writes are refused, as an error reply; None: they are taken. Whoever changes this, `read_refusal` or the
        role calls `Engine.role_changed`."""

    @property
    def read_refusal(self) -> str | None:
        """Why data may not be read, as an error reply; None: it may."""

    def follow(self, address: NetworkAddress) -> None:
        """Follow another server. It is durable when it returns; the link comes later."""

    def lead(self) -> None:
        """Follow nobody any more. It is durable when it returns."""

    def confirmed_count(self, ts: Ts, *, is_durable: bool) -> int:
        """How many followers have written everything up to `ts`, or have made it durable."""

    def wait(self, ts: Ts, count: int, *, is_durable: bool, done: Callable[[], None]) -> Callable[[], None]:
        """Call `done` once that many followers have confirmed `ts`; what is returned gives up waiting."""

    def fail_over(self, target: NetworkAddress | None, timeout_ms: int, *, is_forced: bool) -> None:
        """Hand over to a follower, or to the one that is furthest; `ClientError` if that is impossible."""

    def abort_fail_over(self) -> bool:
        """False: there is none."""

    def facts(self) -> ReplicationFacts: ...

    def tick(self) -> None:
        """Look whether anything has changed, such as what an operator has set."""

    def publish(self, channel: bytes, payload: bytes, *, is_sharded: bool) -> None:
        """A message of pub/sub was published here: the followers of a leader get it, after the data before it."""
