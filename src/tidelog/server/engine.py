"""The engine: runs the commands of connections, one transaction each, and turns replies into bytes.

    hot        a handful of commands on one key, which most traffic consists of: bytes in, bytes out (`hot`)
    general    everything else: find the row, check what the connection may do, let the handler decide, apply, encode

A write is refused before anything of it happens if the journal takes no writes at the moment or memory is full. So that
this is known in time, a batch that is full is written before a command and after it: none is turned away, or finds the
disk full, once it was applied. A bug in a handler is answered with an error, and nothing happened. A bug while applying
or journaling ends the process: state and journal may differ, and a restart brings back the journal's.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

from tidelog import limits
from tidelog.commands.blocking import WouldBlock
from tidelog.commands.client import Client, Queued, Replies
from tidelog.commands.dispatch import explain, find_command, internal_error, run_command
from tidelog.commands.parameters import Parameters
from tidelog.commands.slow_log import SlowLog
from tidelog.commands.subscriptions import Subscriptions
from tidelog.commands.table import Command, CommandTable, Kind
from tidelog.commands.transactions import discard_for, queue
from tidelog.errors import ApplyFailed, CommandError, JournalFailed, JournalFull
from tidelog.ports import Clock
from tidelog.resp.encoder import QUEUED, ErrorReply, Reply, Wire, encode, encode_error
from tidelog.server.blocking import Blocking
from tidelog.server.clients import Clients
from tidelog.server.hot import NOTHING_HOT, HotPath
from tidelog.server.metrics import Metrics, SnapshotFacts
from tidelog.server.run import HotCommands
from tidelog.store.store import Store
from tidelog.store.transaction import Transaction

if TYPE_CHECKING:
    from tidelog.feeds.feed import ChangeFeedRequest
    from tidelog.ids import Ts
    from tidelog.server.feeding import Feeding
    from tidelog.server.session import Session

_LOG: Final = logging.getLogger("tidelog")

_IN_MULTI_AT_ONCE: Final = frozenset(["EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"])
"""Commands that are run and not queued inside MULTI."""

_NOT_IN_MULTI: Final = frozenset(["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"])
"""Commands that are refused inside MULTI, beside those with the flag `no_multi`."""

_WHILE_LISTENING: Final = frozenset(
    [
        *("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        *("PING", "QUIT", "RESET", "FEED|ACK"),
    ]
)
"""Commands of a RESP2 connection that listens: its other replies could be taken for messages."""

_HOT_US_MAX: Final = 1000
"""With a slow log that wants to know of less, there are no hot commands: they are not timed one by one."""

BLOCKED: Final = b"(it waits)"
"""This very object in the place of a reply: the client waits, and gets one later."""

_OF_HTTP: Final = frozenset([b"post", b"host:"])
"""What a browser that was lured here says first. It is cut off before it comes to the commands in its request."""


class Process(Protocol):
    """What the engine asks of the process that it runs in."""

    def shut_down(self) -> None:
        """Stop in order, soon."""

    def fail(self, error: ApplyFailed) -> NoReturn:
        """Stop at once: nothing may be written or answered any more."""


class Snapshots(Protocol):
    """Who makes snapshots."""

    last_s: int
    """When the last one was made (seconds since 1970)."""

    @property
    def is_under_way(self) -> bool: ...

    @property
    def facts(self) -> SnapshotFacts: ...

    def begin(self) -> None: ...

    def save(self) -> None: ...

    def save_last(self) -> None:
        """Before the server stops; one that is under way is given up for it."""


class Engine:
    """Runs commands. One thread."""

    def __init__(
        self,
        store: Store,
        table: CommandTable,
        clock: Clock,
        clients: Clients,
        metrics: Metrics,
        process: Process,
        password: bytes | None = None,
    ) -> None:
        self.store = store
        self.table = table
        self.clock = clock
        self.clients = clients
        self.metrics = metrics
        self.subscriptions = Subscriptions()
        self.slow_log = SlowLog()
        self.parameters = Parameters()
        self.facts: Callable[[str], Mapping[str, object] | None] = lambda _section: None
        """What INFO shows."""
        self.snapshots: Snapshots | None = None
        self.feeding: Feeding | None = None
        self.blocking = Blocking(self)
        self._process = process
        self._password = password
        self._is_out_of_memory = False
        self._hot: dict[tuple[int, int, bool, bool], HotCommands] = {}
        self._started_s = clock.wall_us() // 1_000_000

    @property
    def needs_password(self) -> bool:
        return self._password is not None

    def is_password(self, password: bytes) -> bool:
        return self._password is not None and hmac.compare_digest(password, self._password)

    def is_plain(self, client: Client) -> bool:
        """Whether nothing is to be checked of a connection before it runs a command."""
        return (
            client.queued is None
            and client.is_authenticated
            and not client.is_listening
            and client.replies is Replies.ON
            and self.clients.pause_now is None
        )

    def hot_commands(self, client: Client) -> HotCommands:
        """The hot commands of a connection; none if it is not plain."""
        if not self.is_plain(client) or 0 <= self.slow_log.threshold_us < _HOT_US_MAX:
            return NOTHING_HOT
        wanted = client.database, client.protocol, not self._is_out_of_memory, not client.watched
        if wanted not in self._hot:
            path = HotPath(self.store, client.database, client.protocol)
            self._hot[wanted] = path.commands(writes=wanted[2], transactions=wanted[3])
        return self._hot[wanted]

    @property
    def is_out_of_memory(self) -> bool:
        return self._is_out_of_memory

    def set_out_of_memory(self, is_out: bool) -> None:
        """From now on, refuse what takes memory, or no longer."""
        if is_out != self._is_out_of_memory:
            self._is_out_of_memory = is_out
            self.clients.states_changed()

    # --- commands -----------------------------------------------------------------------------------------------

    def execute(self, client: Session, arguments: Sequence[bytes]) -> bytes | None:
        """The general path: run one command; its reply, `BLOCKED`, or None if it has to wait (CLIENT PAUSE)."""
        began_s = perf_counter()
        self._make_room()
        try:
            row = find_command(self.table, arguments)
            if not client.is_plain:
                self._check(client, row)
            if row.kind is Kind.WRITE and (self._is_out_of_memory or self.store.refusal is not None):
                refusal = self.refusal_of(row, arguments)
                if refusal is not None:
                    raise CommandError(refusal)
        except CommandError as error:
            return self._refuse(client, arguments, str(error))
        if not client.is_plain:
            if self.clients.pause_now is not None and self._must_wait(client, row, arguments):
                return None
            if client.queued is not None and row.name not in _IN_MULTI_AT_ONCE:
                if not queue(client, row, arguments):
                    _LOG.warning("cut off %s: its MULTI is too large", client.peer)
                    client.kill()
                return QUEUED
        client.last_command = row.name
        try:
            if row.kind is Kind.CONNECTION:
                reply = self._run_connection(row, client, arguments)
            else:
                reply = self._run(client, row, arguments)
                if client.is_blocked:
                    return BLOCKED
        except ApplyFailed as error:
            self._process.fail(error)
        if self.store.signals:
            self.blocking.serve()
        self._note(client, row, arguments, reply, perf_counter() - began_s)
        return self.encode(row, reply, client.protocol)

    def _check(self, client: Client, row: Command) -> None:
        """Whether a connection may run a command as things are."""
        if client.queued is not None and ("no_multi" in row.flags or row.name in _NOT_IN_MULTI):
            raise CommandError("ERR Command not allowed inside a transaction")
        if not client.is_authenticated and "no_auth" not in row.flags:
            raise CommandError("NOAUTH Authentication required.")
        if client.protocol == 2 and client.is_listening and row.name not in _WHILE_LISTENING:
            raise CommandError(
                f"ERR Can't execute '{row.name.lower()}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                f"RESET are allowed in this context"
            )

    def _run(self, client: Session, row: Command, arguments: Sequence[bytes]) -> Reply:
        """Run a command of the keyspace as a transaction; None if its client has begun to wait."""
        while True:
            transaction = self.store.begin(client.database)
            try:
                reply = run_command(row, transaction, arguments)
            except WouldBlock as wait:
                self.commit(transaction)
                if not self.store.signals:
                    self.blocking.add(client, row, wait)
                    return None
                self.blocking.serve()  # what it changed is for others, and what they change may be for it
                continue
            self.commit(transaction)
            return reply

    def refusal_of(self, row: Command, arguments: Sequence[bytes]) -> str | None:
        if not row.writes(arguments):
            return None
        if self._is_out_of_memory and "denyoom" in row.flags:
            return "OOM command not allowed when used memory > 'maxmemory'."
        return None if self.store.refusal is None else f"MISCONF {self.store.refusal}"

    def _refuse(self, client: Client, arguments: Sequence[bytes], error: str) -> bytes:
        if arguments[0].lower() in _OF_HTTP:
            _LOG.warning("cut off %s, which speaks HTTP: somebody may be luring a browser here", client.peer)
            client.kill()
            return b""
        if arguments[0].upper() == b"EXEC":  # as Redis has it: whatever is in its way, the transaction is over
            error = discard_for(client, error)
        elif client.queued is not None:
            client.has_queue_error = True
        self.metrics.count_error(error)
        return encode_error(error)

    def _must_wait(self, client: Client, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether a pause holds a command."""
        if self.is_held(row, arguments) or row.name in ("PUBLISH", "SPUBLISH"):
            return True
        return row.name == "EXEC" and any(queued.writes(words) for queued, words in client.queued or ())

    def is_held(self, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether a command of the keyspace has to wait for the end of a pause."""
        pause = self.clients.pause_now
        return pause is not None and (not pause.writes_only or row.writes(arguments))

    def cannot_serve(self, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether somebody who waits with a command has to wait on, as things are."""
        if self.store.refusal is None and not self._is_out_of_memory and self.clients.pause_now is None:
            return False
        return self.refusal_of(row, arguments) is not None or self.is_held(row, arguments)

    def _run_connection(self, row: Command, client: Client, arguments: Sequence[bytes]) -> Reply:
        try:
            return row.handler(client, arguments)
        except CommandError as error:
            return ErrorReply(str(error))
        except ApplyFailed:
            raise
        except Exception as error:
            return internal_error(row, error)

    def _make_room(self) -> None:
        """Write a batch that is full before the turn ends. If that fails, writes are refused from here on."""
        writer = self.store.journal.writer
        if writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            with contextlib.suppress(JournalFull, JournalFailed):  # the end of the turn says so
                writer.write()

    def commit(self, transaction: Transaction) -> None:
        """Journal what was applied."""
        try:
            self.store.commit(transaction)
        except Exception as error:
            raise ApplyFailed(f"a transaction could not be journaled: {explain(error)}") from error
        self._make_room()

    def _note(self, client: Client, row: Command, arguments: Sequence[bytes], reply: Reply, took_s: float) -> None:
        """Remember what was slow or went wrong."""
        if type(reply) is ErrorReply:
            self.metrics.count_error(reply.message)
        slow_log = self.slow_log
        if took_s * 1e6 >= slow_log.threshold_us >= 0 and "skip_slowlog" not in row.flags:
            slow_log.add(client, row, arguments, self.clock.wall_us() // 1_000_000, int(took_s * 1e6))

    def encode(self, row: Command, reply: Reply, protocol: int) -> bytes:
        try:
            return encode(reply, protocol)
        except Exception as error:
            return encode(internal_error(row, error), protocol)

    # --- transactions -------------------------------------------------------------------------------------------

    def run_transaction(self, client: Client, queued: Sequence[Queued]) -> list[Reply]:
        """EXEC: all of them in one transaction."""
        transaction = self.store.begin(client.database)
        replies = [self._run_queued(row, client, transaction, arguments) for row, arguments in queued]
        self.commit(transaction)
        return replies

    def _run_queued(self, row: Command, client: Client, transaction: Transaction, arguments: Sequence[bytes]) -> Reply:
        began_s = perf_counter()
        client.last_command = row.name
        if row.kind is Kind.CONNECTION:
            reply = self._run_connection(row, client, arguments)
            transaction.database = self.store.database(client.database)  # SELECT inside MULTI
        else:
            try:
                reply = run_command(row, transaction, arguments)
            except WouldBlock as wait:
                reply = wait.timed_out  # inside a transaction nobody waits
        self._note(client, row, arguments, reply, perf_counter() - began_s)
        return Wire(self.encode(row, reply, client.protocol))  # HELLO inside MULTI changes how later ones look

    # --- what commands ask of the server ------------------------------------------------------------------------

    def info(self, section: str) -> Mapping[str, object] | None:
        return self.facts(section)

    def reset_statistics(self) -> None:
        self.metrics.reset()
        self.clients.reset_count()
        self.store.expired_count = 0
        self.subscriptions.message_count = self.subscriptions.delivery_count = 0

    def open_feed(self, client: Client, request: ChangeFeedRequest) -> None:
        self._feeding().open(cast("Session", client), request)

    def list_feeds(self) -> list[dict[str, Any]]:
        return self._feeding().list()

    def kill_feed(self, number: int) -> bool:
        return self._feeding().kill(number)

    def acknowledge_feed(self, name: str, ts: Ts) -> None:
        self._feeding().acknowledge(name, ts)

    def close_feed(self, client: Client) -> None:
        if self.feeding is not None:
            self.feeding.forget(cast("Session", client))

    def _feeding(self) -> Feeding:
        if self.feeding is None:
            raise CommandError("ERR there are no feeds here")
        return self.feeding

    def begin_snapshot(self) -> None:
        self._snapshots().begin()

    def save_snapshot(self) -> None:
        self._snapshots().save()

    def save_last_snapshot(self) -> None:
        self._snapshots().save_last()

    def _snapshots(self) -> Snapshots:
        if self.snapshots is None:
            raise CommandError("ERR snapshots cannot be asked for yet: the journal keeps every change meanwhile")
        return self.snapshots

    @property
    def last_snapshot_s(self) -> int:
        return self._started_s if self.snapshots is None else self.snapshots.last_s

    def sleep(self, seconds: float) -> None:
        sleep(seconds)

    def unblock(self, client: Client, *, with_error: bool) -> bool:
        is_done = self.blocking.unblock(cast("Session", client), with_error=with_error)
        self.blocking.serve()
        return is_done

    def shut_down(self) -> None:
        self._process.shut_down()

    def fail(self, error: Exception) -> NoReturn:
        """A hot command met a bug after it may have changed something."""
        self._process.fail(ApplyFailed(f"a command could not be finished: {explain(error)}"))
