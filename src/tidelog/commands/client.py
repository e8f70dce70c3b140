"""A client and its server as commands see them.

`server/session.py` and `server/engine.py` have the real ones. Commands of the kind CONNECTION get the client instead
of a transaction; through it they reach the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from tidelog.commands.parameters import Parameters
from tidelog.commands.slow_log import SlowLog
from tidelog.commands.subscriptions import Subscriptions
from tidelog.commands.table import Command, CommandTable
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.ids import Ts
from tidelog.ports import Clock
from tidelog.resp.encoder import Reply
from tidelog.store.store import Store

Queued = tuple[Command, Sequence[bytes]]
"""A command of a MULTI."""


class Replies(Enum):
    """Whether a client wants replies (CLIENT REPLY)."""

    ON = "on"
    OFF = "off"
    SKIP_NEXT = "skip next"
    """None to the command that is running, which said so, nor to the next."""
    SKIP = "skip"
    """None to the command that is running."""


class Clients(Protocol):
    """All connections."""

    def all(self) -> Sequence[Client]:
        """In the order in which they came."""

    def find(self, client_id: int) -> Client | None: ...

    def pause(self, ms: int, *, writes_only: bool) -> None:
        """Let commands wait. An earlier pause that lasts longer, or holds more, counts on."""

    def resume(self) -> None:
        """End a pause."""


class Server(Protocol):
    """What commands may ask of the whole server."""

    store: Store
    table: CommandTable
    clock: Clock
    subscriptions: Subscriptions
    slow_log: SlowLog
    parameters: Parameters

    @property
    def clients(self) -> Clients: ...

    @property
    def needs_password(self) -> bool: ...

    def is_password(self, password: bytes) -> bool:
        """Compare in constant time."""

    def run_transaction(self, client: Client, queued: Sequence[Queued]) -> Sequence[Reply]:
        """Run commands as one transaction; their replies."""

    def refusal_of(self, row: Command, arguments: Sequence[bytes]) -> str | None:
        """Why a command cannot run at the moment, as an error reply; None: it can."""

    def info(self, section: str) -> Mapping[str, object] | None:
        """The facts of one section of INFO; None: there is no such section."""

    def reset_statistics(self) -> None: ...

    def begin_snapshot(self) -> None:
        """Begin a snapshot, which goes on in the background; `CommandError` if there can be none now."""

    def save_snapshot(self) -> None:
        """Make a snapshot before anything else happens."""

    def save_last_snapshot(self) -> None:
        """The same before the server stops; one that is under way is given up for it."""

    @property
    def last_snapshot_s(self) -> int:
        """When the last snapshot was made, or the server started (seconds since 1970)."""

    def open_feed(self, client: Client, request: ChangeFeedRequest) -> None:
        """Let a connection have what changes; `ClientError` if it cannot."""

    def close_feed(self, client: Client) -> None:
        """It wants to know no more; fine if it never did."""

    def list_feeds(self) -> list[dict[str, Any]]: ...

    def kill_feed(self, number: int) -> bool:
        """End a feed; false if there is none of that number."""

    def acknowledge_feed(self, name: str, ts: Ts) -> None:
        """A named feed needs nothing at or below `ts` any more."""

    def unblock(self, client: Client, *, with_error: bool) -> bool:
        """Answer a client that waits as if its time were over, or with an error; false if it does not wait."""

    def sleep(self, seconds: float) -> None:
        """Do nothing at all."""

    def shut_down(self) -> None:
        """Stop in order, soon."""


class Client(Protocol):
    """One connection."""

    id: int
    protocol: int
    """2 or 3."""
    database: int
    """The selected one."""
    name: bytes
    is_authenticated: bool
    queued: list[Queued] | None
    """The commands of a MULTI; None: not in one."""
    queued_bytes: int
    """Of their arguments."""
    has_queue_error: bool
    """A command was refused while queueing: EXEC refuses them all."""
    watched: set[tuple[int, bytes]]
    """Database and key of what is watched."""
    channels: set[bytes]
    """Subscribed to, by name ..."""
    patterns: set[bytes]
    """... by pattern ..."""
    shard_channels: set[bytes]
    """... and with SSUBSCRIBE."""
    is_dirty: bool
    """Something that is watched has changed: EXEC does nothing."""
    closes_after_reply: bool
    replies: Replies
    is_plain: bool
    """Nothing is to be checked before it runs a command; kept by `state_changed`."""
    last_command: str
    is_unevictable: bool
    """CLIENT NO-EVICT: kept to be shown, since nobody is evicted."""
    peer: str
    """Its address."""
    local: str
    """The address that it came to."""
    is_local: bool
    """It is on this machine."""
    is_blocked: bool
    """A command of it waits for a key."""

    @property
    def server(self) -> Server: ...

    @property
    def is_listening(self) -> bool:
        """It is subscribed to something."""

    @property
    def age_s(self) -> int: ...

    @property
    def idle_s(self) -> int: ...

    @property
    def descriptor(self) -> int:
        """Of its socket; -1 if it has none any more."""

    @property
    def unsent_bytes(self) -> int:
        """Of replies that it has not taken yet."""

    def push(self, data: bytes) -> None:
        """Send a message that answers no command."""

    def state_changed(self) -> None:
        """To be called when one of the above has changed: it decides which path commands take."""

    def kill(self) -> None:
        """Cut the connection."""
