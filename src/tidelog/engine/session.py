"""The state of one client: everything that decides what happens to its next command.

    state       begins with                       the next command
    ----------  --------------------------------  -------------------------------------------------------------
    stranger    connecting, where a password is   is refused with NOAUTH unless its row says `no_auth`
                needed; RESET
    queueing    MULTI; ends with EXEC, DISCARD,   is queued, except those in `_AT_ONCE_IN_MULTI`
                RESET
    monitoring  MONITOR; ends with RESET          is refused if it concerns keys or sends messages
    listening   SUBSCRIBE and its like,           in RESP2 is refused, except those in `_WHILE_LISTENING`: other
                CHANGEFEED                        replies could be taken for messages
    muted       CLIENT REPLY OFF or SKIP          runs, and its reply is dropped
    blocked     a command that waits for a key,   is held until the wait is over
                a wrong password
    staging     a command with a large value      is held until the value is written
    closing     QUIT, CLIENT KILL, a bad request  is never run

The states are independent: a client may be queueing and listening at once. A client in none of them is *plain*: its
commands need no check, and those that have a hot form take the hot path.

Every change of state is a method of `Session`. Those that may turn a plain client into another, or back, end with
`state_changed`, through which the connection learns which path its commands take from now on. Two sets have a second
owner, because it finds clients by them: `Subscriptions` keeps the channels and patterns, the store the watched keys.

How bytes come and go is the connection's own state (`server/connection.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.table import Command, HandlerKind
from tidelog.ids import Ts
from tidelog.resp.encoder import ReplyPart

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.feeding import SessionSink
    from tidelog.engine.fetching import Fetch
    from tidelog.engine.staging import StagedCommand

_AT_ONCE_IN_MULTI: Final = frozenset(["EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"])
"""Commands that run inside MULTI instead of being queued."""

_NOT_IN_MULTI: Final = frozenset(["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"])
"""Commands that are refused inside MULTI, beside those with the flag `no_multi`."""

_NOT_OF_MONITORS: Final = frozenset(
    ["PUBLISH", "SPUBLISH", "CHANGEFEED", "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"]
)
"""Commands that are refused to a client that monitors, beside those of the keyspace."""

_WHILE_LISTENING: Final = frozenset(
    [
        *("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        *("PING", "QUIT", "RESET", "FEED|ACK"),
    ]
)

Queued = tuple[Command, Sequence[bytes]]
"""A command of a MULTI."""


class Replies(Enum):
    """Whether a client wants replies (CLIENT REPLY)."""

    ON = "on"
    OFF = "off"
    SKIP_NEXT = "skip next"
    """No reply to the command that is running (CLIENT REPLY SKIP itself), nor to the next one."""
    SKIP = "skip"
    """No reply to the command that is running."""


def _nowhere(_data: bytes | memoryview) -> None:
    """The client is gone."""


class Session(ABC):
    """One client. A connection of the server is one; so is anything else that runs commands in a client's name."""

    __slots__ = (
        "answered_ts",
        "becomes_link",
        "begun_ts",
        "channels",
        "closes_after_reply",
        "command_count",
        "database",
        "engine",
        "feed_sink",
        "fetch",
        "has_queue_error",
        "has_sent_large",
        "id",
        "is_authenticated",
        "is_blocked",
        "is_clogged",
        "is_dirty",
        "is_local",
        "is_monitor",
        "is_plain",
        "is_slow",
        "is_unevictable",
        "last_command",
        "leaves_no_trace",
        "library_name",
        "library_version",
        "local",
        "long_reply",
        "name",
        "patterns",
        "peer",
        "protocol",
        "queued",
        "queued_bytes",
        "replies",
        "shard_channels",
        "staging",
        "watched",
        "write",
    )

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.id = engine.sessions.next_id()
        self.peer = ""
        """The client's address ..."""
        self.local = ""
        """... and the address that it connected to."""
        self.is_local = False
        """The client runs on this machine."""
        self.name = b""
        self.protocol = 2
        """The version of RESP: 2 or 3."""
        self.database = 0
        """The selected database."""
        self.is_authenticated = not engine.password.is_needed
        self.begun_ts = Ts(-1)
        """The newest transaction when the commands began to run that are running ..."""
        self.answered_ts = Ts(0)
        """... and when the client was last answered: WAIT waits for what it may have seen or done, not for others."""
        self.queued: list[Queued] | None = None
        """The commands of a MULTI; None: the client is not in one."""
        self.queued_bytes = 0
        """The size of their arguments."""
        self.has_queue_error = False
        """A command was refused while queueing, so EXEC refuses them all."""
        self.watched: set[tuple[int, bytes]] = set()
        """Database and key of everything that is watched."""
        self.is_dirty = False
        """A watched key has changed, so EXEC does nothing."""
        self.channels: set[bytes] = set()
        """Subscribed with SUBSCRIBE ..."""
        self.patterns: set[bytes] = set()
        """... PSUBSCRIBE ..."""
        self.shard_channels: set[bytes] = set()
        """... and SSUBSCRIBE."""
        self.feed_sink: SessionSink | None = None
        """Where the events of the client's change feed go; None: it has no feed."""
        self.write: Callable[[bytes | memoryview], None] = _nowhere
        """Sends bytes of a feed, at once."""
        self.is_clogged = False
        """The client does not take what is sent to it; `feed_sink.go_on` is called when it does."""
        self.is_monitor = False
        """MONITOR: the client is shown all commands."""
        self.replies = Replies.ON
        self.is_blocked = False
        """A command of this client waits for a key, or for the reply to a wrong password."""
        self.has_sent_large = False
        """The client has sent a large argument: its commands are looked through for more."""
        self.staging: StagedCommand | None = None
        """The command that waits for its large values to be written; None: none does."""
        self.fetch: Fetch | None = None
        """The command that waits for cold nodes, or is about to run with them; None: there is none."""
        self.long_reply: list[ReplyPart] = []
        """The reply of the command that was just run, in parts, if it is long."""
        self.closes_after_reply = False
        self.becomes_link = False
        """With its last reply, the connection is handed over to replication instead of being closed."""
        self.is_unevictable = False
        """CLIENT NO-EVICT: kept to be shown. No client is ever evicted."""
        self.leaves_no_trace = False
        """CLIENT NO-TOUCH: what it does is no use of a key (OBJECT IDLETIME)."""
        self.library_name = b""
        """CLIENT SETINFO: kept to be shown ..."""
        self.library_version = b""
        """... as this."""
        self.last_command = ""
        self.is_slow = False
        """Its newest command took longer than a turn of the loop may: what it sends next waits for its go."""
        self.command_count = 0
        """Commands of this client that were run."""
        self.is_plain = False
        """Nothing has to be checked before a command is run. `state_changed` keeps it up to date."""

    @property
    def host(self) -> str:
        """The client's address without the port."""
        return self.peer.rpartition(":")[0]

    @property
    def source(self) -> str:
        """Where its commands come from, as MONITOR has it."""
        return f"unix:{self.local.removesuffix(':0')}" if self.local.startswith("/") else self.peer

    # --- what the state means for a command ---------------------------------------------------------------------

    @property
    def is_listening(self) -> bool:
        return bool(self.channels or self.patterns or self.shard_channels or self.feed_sink)

    @property
    def is_inside_event(self) -> bool:
        """An event of its feed is being sent, so nothing else can be."""
        return self.feed_sink is not None and self.feed_sink.is_inside_event

    @property
    def needs_no_check(self) -> bool:
        """The client is in none of the states that forbid, queue or mute a command."""
        return (
            self.queued is None
            and self.is_authenticated
            and not self.is_listening
            and self.replies is Replies.ON
            and not (self.leaves_no_trace or self.is_monitor)
        )

    def refusal_of(self, row: Command) -> str | None:
        """Why the state forbids a command, as an error reply; None: it does not, or `listening_refusal_of` says why."""
        if self.queued is not None and ("no_multi" in row.flags or row.name in _NOT_IN_MULTI):
            return "ERR Command not allowed inside a transaction"
        if not self.is_authenticated and "no_auth" not in row.flags:
            return "NOAUTH Authentication required."
        return None

    def listening_refusal_of(self, row: Command) -> str | None:
        """The same for a client that listens or monitors. In Redis that counts only after refusals of writes."""
        if self.protocol == 2 and self.is_listening and row.name not in _WHILE_LISTENING:
            own = "" if self.feed_sink is None else "FEED ACK / "
            return (
                f"ERR Can't execute '{row.name.lower()}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / {own}PING / QUIT / "
                f"RESET are allowed in this context"
            )
        if self.is_monitor and (row.kind is not HandlerKind.CONNECTION or row.name in _NOT_OF_MONITORS):
            return "ERR Replica can't interact with the keyspace"
        return None

    def queues(self, row: Command) -> bool:
        """Whether a command waits for EXEC instead of running now."""
        return self.queued is not None and row.name not in _AT_ONCE_IN_MULTI

    def takes_reply(self) -> bool:
        """Whether the reply that was just made is wanted. Counts down CLIENT REPLY SKIP."""
        if self.replies is Replies.ON:
            return True
        if self.replies is Replies.SKIP_NEXT:
            self.replies = Replies.SKIP
        elif self.replies is Replies.SKIP:
            self.set_replies(Replies.ON)
        return False

    # --- changes of state ---------------------------------------------------------------------------------------

    def authenticate(self) -> None:
        self.is_authenticated = True
        self.state_changed()

    def select(self, database: int) -> None:
        self.database = database
        self.state_changed()

    def speak(self, protocol: int) -> None:
        """Use a version of the protocol from the next reply on."""
        self.protocol = protocol
        self.state_changed()

    def set_replies(self, replies: Replies) -> None:
        self.replies = replies
        self.state_changed()

    def leave_no_trace(self, is_wanted: bool) -> None:
        self.leaves_no_trace = is_wanted
        self.state_changed()

    def begin_multi(self) -> None:
        self.queued = []
        self.queued_bytes = 0
        self.has_queue_error = False
        self.state_changed()

    def queue(self, row: Command, arguments: Sequence[bytes]) -> bool:
        """Keep a command for EXEC, unless that will run none; false if it would be more than a client may keep."""
        assert self.queued is not None
        if self.has_queue_error or self.is_dirty:
            return True
        self.queued_bytes += sum(map(len, arguments))
        if self.queued_bytes > limits.QUEUED_BYTES_MAX:
            return False
        self.queued.append((row, arguments))
        return True

    def fail_multi(self) -> None:
        """A command was refused while queueing."""
        self.has_queue_error = True

    def end_multi(self) -> None:
        """EXEC or DISCARD: neither commands nor watched keys are kept."""
        self.queued = None
        self.queued_bytes = 0
        self.unwatch()

    def watch(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.engine.store.watch(self, self.database, key)
        self.state_changed()

    def unwatch(self) -> None:
        self.engine.store.unwatch(self)
        self.state_changed()

    def begin_monitoring(self) -> None:
        self.engine.monitors.add(self)
        self.is_monitor = True
        self.state_changed()

    def begin_feed(self, sink: SessionSink) -> None:
        self.feed_sink = sink
        self.state_changed()

    def end_feed(self) -> None:
        self.feed_sink = None
        self.state_changed()

    def set_blocked(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked

    def close_after_reply(self) -> None:
        """Run no more commands, and close once the replies so far are sent."""
        self.closes_after_reply = True

    def become_link(self) -> None:
        """The client is a server that wants to follow this one (TSYNC)."""
        self.becomes_link = True
        self.close_after_reply()

    def leave(self) -> None:
        """The client listens to nothing, monitors nothing, watches nothing and waits for no thread any more."""
        if self.staging is not None:
            self.staging.give_up()
            self.staging = None
        self.leave_fetch()
        self.engine.store.unwatch(self)
        self.engine.subscriptions.forget(self)
        self.is_monitor = False
        self.engine.monitors.forget(self)
        self.engine.feeding.forget(self)

    def leave_fetch(self) -> None:
        """The command that needed cold nodes has run, on whatever path, or is not going to."""
        if self.fetch is not None and self.engine.fetching is not None:
            self.engine.fetching.release(self)

    def reset(self) -> None:
        """As if newly connected."""
        self.queued = None
        self.queued_bytes = 0
        self.replies = Replies.ON
        self.is_unevictable = self.leaves_no_trace = False
        self.protocol, self.database, self.name = 2, 0, b""
        self.is_authenticated = not self.engine.password.is_needed
        self.leave()
        self.state_changed()

    # --- the connection's part ----------------------------------------------------------------------------------

    @abstractmethod
    def state_changed(self) -> None:
        """Choose the path that commands take from now on."""

    @abstractmethod
    def push(self, data: bytes) -> None:
        """Send a message that answers no command."""

    @property
    @abstractmethod
    def is_inside_reply(self) -> bool:
        """A long reply is being sent: events wait for its end."""

    @abstractmethod
    def unblock(self, reply: bytes) -> None:
        """The command that waited has its reply."""

    @abstractmethod
    def run_again(self, command: list[bytes]) -> None:
        """The command that waited is run as if it had only just come; `command`: with the time that it has left."""

    @abstractmethod
    def end_pause(self) -> None:
        """A pause is over: run what it held back."""

    @abstractmethod
    def end_staging(self) -> None:
        """A thread has written large values, or read cold nodes, or could not: run the command that waited for it."""

    @abstractmethod
    def close(self) -> None:
        """Close once everything that was sent has been taken."""

    @abstractmethod
    def kill(self) -> None:
        """Close at once, whatever has not been taken yet."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """The size of replies and messages that the client has not taken yet."""

    @property
    @abstractmethod
    def backlog_bytes(self) -> int:
        """The size of what the client has sent and was not run yet."""

    @property
    @abstractmethod
    def descriptor(self) -> int:
        """The number of its socket; -1 if it has none any more."""

    @property
    @abstractmethod
    def age_s(self) -> int: ...

    @property
    @abstractmethod
    def idle_s(self) -> int: ...
