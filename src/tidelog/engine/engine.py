"""The engine: runs the commands of clients, one transaction each, and turns replies into bytes.

    hot        a handful of commands on one key, which most traffic consists of: bytes in, bytes out (`hot_commands`)
    general    everything else: find the row, ask the session and the gate whether it may run, let the handler decide,
               apply, encode

A write is refused before it changes anything if the journal takes no writes or memory is full. To know that in time,
the engine writes a full batch before a command and after it: no command is turned away, or finds the disk full, once it
was applied. A bug in a handler is answered with an error, and nothing happened. A bug while applying or journaling ends
the process: state and journal may differ, and a restart goes by the journal.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from tidelog import limits
from tidelog.engine.admission import is_held, refusal_of
from tidelog.engine.blocking import Blocking
from tidelog.engine.dispatch import explain, find_command, find_row, internal_error, run_command
from tidelog.engine.feeding import Feeding
from tidelog.engine.fetching import Fetching
from tidelog.engine.follower_waits import FollowerWaits
from tidelog.engine.gate import Gate
from tidelog.engine.hot_commands import Commands
from tidelog.engine.long_commands import LongCommands
from tidelog.engine.metrics import Metrics
from tidelog.engine.monitors import Monitors
from tidelog.engine.parameters import Parameters
from tidelog.engine.password import Password
from tidelog.engine.publishing import Publishing
from tidelog.engine.session import Session
from tidelog.engine.sessions import Sessions
from tidelog.engine.slow_log import SlowLog
from tidelog.engine.staging import Staging
from tidelog.engine.subscriptions import Subscriptions
from tidelog.engine.surroundings import ServerProcess, ServerReplication, Snapshots
from tidelog.engine.table import Command, CommandTable, HandlerKind
from tidelog.engine.tallies import NOTHING_HOT, RUNS_PER_SAMPLE, MakeHotCommands, TalliedRun, TalliedRuns
from tidelog.engine.would_block import TakesSteps, WouldBlock
from tidelog.errors import ApplyFailed, CommandError, JournalFailed, JournalFull, WrongPassword
from tidelog.ports import Clock, Loop, Worker
from tidelog.resp.encoder import QUEUED, ErrorReply, Reply, Wire, encode, encode_error, encode_long
from tidelog.store.store import Store
from tidelog.store.transaction import Transaction
from tidelog.streams.cold import NodesAway

_LOG: Final = logging.getLogger("tidelog")
_STRANGERS_LOG: Final = logging.getLogger("tidelog.strangers")
"""For lines that anybody who connects can cause: the server lets a few of them through."""

_HOT_US_MAX: Final = 1000
"""A slow log with a lower threshold turns the hot path off: hot commands are not timed one by one."""

BLOCKED: Final = b"(it waits)"
"""This very object in the place of a reply: the client waits, and gets its reply later."""

STAGING: Final = b"(a thread is at work for it)"
"""The same: the command waits for a large value to be written, or cold nodes to be read, and is then executed anew."""

LONG: Final = b"(it is long)"
"""The same: the reply is `Session.long_reply`."""

_OF_HTTP: Final = frozenset([b"post", b"host:"])
"""The first words of a browser that was lured here. It is cut off before the commands in its request are reached."""


class Engine:
    """Runs commands. One thread."""

    def __init__(
        self,
        *,
        store: Store,
        table: CommandTable,
        clock: Clock,
        loop: Loop,
        stopwatch_s: Callable[[], float],
        process: ServerProcess,
        password: Password,
        sessions: Sessions,
        subscriptions: Subscriptions,
        slow_log: SlowLog,
        parameters: Parameters,
        metrics: Metrics,
        gate: Gate,
        snapshots: Snapshots,
        feeding: Feeding,
        hot_commands: MakeHotCommands,
        worker: Worker | None = None,
        fetch_workers: Sequence[Worker] = (),
        remote_fetch_workers: Sequence[Worker] = (),
    ) -> None:
        self.store = store
        self.table = table
        self.clock = clock
        self.stopwatch_s = stopwatch_s
        """Seconds since some moment: what commands take is measured with it."""
        self.exec_count = 0
        """How many times EXEC has run commands."""
        self.slow_s = limits.TURN_US_MAX / 1e6
        """The client of a command that took longer is slow (`Session.is_slow`)."""
        self.process = process
        self.password = password
        self.sessions = sessions
        self.subscriptions = subscriptions
        self.monitors = Monitors(sessions, clock)
        self.slow_log = slow_log
        self.parameters = parameters
        self.metrics = metrics
        self.gate = gate
        self.snapshots = snapshots
        self.feeding = feeding
        self.blocking = Blocking(self, loop)
        self.staging = None if worker is None else Staging(store, worker)
        """None: large values are written while everyone waits."""
        self.fetching = Fetching(store, loop, fetch_workers, remote_fetch_workers) if fetch_workers else None
        """None: cold nodes are read while everyone waits."""
        self._loop = loop
        self.long_commands = LongCommands(self, loop)
        self.follower_waits = FollowerWaits(self, loop)
        self.publishing = Publishing(self)
        self.replication: ServerReplication | None = None
        """The server as a leader or a follower, set by the server; None: it leads, and has no followers."""
        self.transaction: Transaction | None = None
        """The one that EXEC runs; a script among its commands joins it."""
        self.is_in_script = False
        self.at_end_of_turn: Callable[[Callable[[], None]], None] = lambda call: call()
        """Calls something when what has been run so far is written; set by the server."""
        self.scripting: object = None
        """Runs scripts; made by `scripting/` when the first one comes."""
        self._make_hot_commands = hot_commands
        self._hot: dict[tuple[int, int, bool, bool], TalliedRuns] = {}

    def is_plain(self, session: Session) -> bool:
        """Whether nothing has to be checked before a command of a session runs."""
        return session.needs_no_check and self.gate.pause_now is None and not self.gate.is_loading

    @property
    def looks_at_each(self) -> bool:
        """Somebody wants to know of every command, so none takes the hot path."""
        return bool(self.monitors.sessions) or 0 <= self.slow_log.threshold_us < _HOT_US_MAX

    def hot_commands(self, session: Session) -> TalliedRuns:
        """The hot commands of a session; none if it is not plain, or may not even read."""
        if not self.is_plain(session) or self.looks_at_each or self.gate.read_refusal is not None:
            return NOTHING_HOT
        database, protocol = session.database, session.protocol
        wanted = database, protocol, self.gate.has_hot_writes, not session.watched
        if wanted not in self._hot:
            tallies = self.metrics.commands
            hot = self._make_hot_commands(self.store, database, protocol, wanted[2], wanted[3], tallies)
            self._hot[wanted] = tallies.runs(hot)
        return self._hot[wanted]

    def time_run(self, hot: TalliedRun, commands: Commands, at: int, out: list[bytes]) -> int:
        """A run of hot commands that is timed."""
        hot.untimed = RUNS_PER_SAMPLE
        began_s = self.stopwatch_s()
        end = hot.run(commands, at, out)
        if end != at:
            hot.add_sample(end - at, self.stopwatch_s() - began_s)
        return end

    # --- one command --------------------------------------------------------------------------------------------

    def execute(self, session: Session, arguments: Sequence[bytes]) -> bytes | None:
        """The general path: run one command; its reply, `BLOCKED`, `STAGING`, `LONG`, or None if CLIENT PAUSE holds
        it back."""
        began_s = self.stopwatch_s()
        self._make_room()
        try:
            row = find_command(self.table, arguments)
        except CommandError as error:
            return self._refuse(session, arguments, str(error))
        gate = self.gate
        is_closed = gate.read_refusal is not None if row.kind is HandlerKind.READ else not gate.is_open
        if is_closed or not session.is_plain:
            refusal = refusal_of(gate, session, row, arguments)
            if refusal is not None:
                return self._refuse(session, arguments, refusal)
        if not session.is_plain:
            if gate.pause_now is not None and is_held(gate, session, row, arguments):
                return None
            if session.queues(row):
                if not session.queue(row, arguments):
                    _LOG.warning("cut off %s: its MULTI is too large", session.peer)
                    session.kill()
                return QUEUED
        if (session.has_sent_large or row.large is not None) and self.staging is not None:
            try:
                if not self.staging.is_ready(session, row, arguments):
                    return STAGING
            except CommandError as error:
                return self._refuse(session, arguments, str(error))
        if row.name == "EXEC" and self.fetching is not None and not self.fetching.is_ready(session, arguments):
            return STAGING
        session.last_command = row.name
        line = self.monitors.show_script(row, arguments, session) if self.monitors.sessions else b""
        leaves_no_trace = session.leaves_no_trace and row.name != "TOUCH"  # the command may end that itself
        if leaves_no_trace:
            self.store.uses.stop_noting()
        is_away = False
        try:
            if row.kind is HandlerKind.CONNECTION:
                reply = self.run_connection(row, session, arguments)
            else:
                reply = self._run(session, row, arguments)
            if session.is_blocked:
                self.metrics.commands.of(row.name).add(self.stopwatch_s() - began_s)
                return BLOCKED
        except WrongPassword as error:
            self.metrics.commands.of(row.name).add(self.stopwatch_s() - began_s)
            return self._refuse_late(session, row, str(error), error.delay_s)
        except ApplyFailed as error:
            self.process.fail(error)
        finally:
            if leaves_no_trace:
                self.store.uses.note_again()
            if self.store.staged or self.store.joined:
                self.store.end_staged()
            is_away = session.fetch is not None and self._is_away(session)
            if self.monitors.sessions and not is_away:
                line = line or self.monitors.show(row, arguments, session)
        if self.store.signals:
            self.blocking.serve()
        if is_away:
            return STAGING
        self.note(session, row, arguments, reply, self.stopwatch_s() - began_s)
        data = self.encode_for(session, row, reply)
        return data if not session.is_monitor else self._with_own_line(session, data, line)

    def _with_own_line(self, session: Session, data: bytes, line: bytes) -> bytes:
        """The reply to a client that monitors, with the line for its own command behind it."""
        if data is not LONG:
            return data if session.closes_after_reply else data + line
        session.push(line)
        return data

    def encode_for(self, session: Session, row: Command, reply: Reply) -> bytes:
        """The reply as a session wants it, or `LONG`."""
        kind = type(reply)
        if kind is int or kind is str or kind is Wire:
            return encode(reply, session.protocol)
        try:
            parts = encode_long(reply, session.protocol)
        except Exception as error:
            return encode(internal_error(row, error), session.protocol)
        first = parts[0]
        if len(parts) == 1 and isinstance(first, bytes):
            return first
        session.long_reply = parts
        return LONG

    def _refuse(self, session: Session, arguments: Sequence[bytes], error: str) -> bytes:
        if arguments[0].lower() in _OF_HTTP:
            _STRANGERS_LOG.warning("cut off %s, which speaks HTTP: somebody may be luring a browser here", session.peer)
            session.kill()
            return b""
        if arguments[0].upper() == b"EXEC":  # as Redis has it: whatever is in its way, the transaction is over
            if session.queued is not None:
                session.end_multi()
            error = f"EXECABORT Transaction discarded because of: {error.removeprefix('ERR ')}"
        elif session.queued is not None:
            session.fail_multi()
        self.metrics.count_error(error)
        with contextlib.suppress(CommandError):  # there is no such command
            self.metrics.commands.of(find_row(self.table, arguments).name).rejected += 1
        return encode_error(error)

    def _refuse_late(self, session: Session, row: Command, error: str, delay_s: float) -> bytes:
        """Refuse a command after a while; its client is blocked until then."""
        self.count_failure(row, ErrorReply(error))
        reply = encode_error(error)
        if not delay_s:
            return reply

        def answer() -> None:
            session.set_blocked(False)
            session.unblock(reply)

        session.set_blocked(True)
        self._loop.call_later(delay_s, answer)
        return BLOCKED

    def _run(self, session: Session, row: Command, arguments: Sequence[bytes]) -> Reply:
        """Run a command of the keyspace as a transaction; None if its client has begun to wait, or it is held until
        `Session.fetch` has its nodes."""
        fetching = self.fetching
        while True:
            transaction = self.store.begin(session.database)
            transaction.may_wait = transaction.takes_steps = True
            try:
                transaction.fetches = fetching is not None and fetching.may_hold(session, arguments)
                if transaction.fetches and fetching is not None:
                    transaction.compaction = fetching.compaction_of(session, arguments)
                reply = run_command(row, transaction, arguments)
            except NodesAway as away:
                self.commit(transaction)
                if fetching is not None and fetching.hold(session, row, arguments, away):
                    return None
                continue
            except CommandError as error:
                reply = ErrorReply(str(error))
            except TakesSteps as long:
                self.long_commands.add(session, row, arguments, long.removal)
                return None
            except WouldBlock as wait:
                self.commit(transaction)
                if not self.store.signals:
                    self.blocking.add(session, row, wait)
                    return None
                self.blocking.serve()  # its change may serve others, and their changes may serve it
                continue
            self.commit(transaction)
            return reply

    def _is_away(self, session: Session) -> bool:
        """Whether a command waits for cold nodes; otherwise those that were fetched for it may be closed."""
        return self.fetching is not None and self.fetching.is_held(session)

    def run_connection(self, row: Command, session: Session, arguments: Sequence[bytes]) -> Reply:
        try:
            return row.handler(session, arguments)
        except WrongPassword:
            raise
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

    def note(self, session: Session, row: Command, arguments: Sequence[bytes], reply: Reply, took_s: float) -> None:
        """Count a command, and remember it if it was slow or went wrong."""
        self.metrics.commands.of(row.name).add(took_s)
        if took_s > self.slow_s:
            session.is_slow = True
        if type(reply) is ErrorReply:
            self.count_failure(row, reply)
        slow_log = self.slow_log
        if took_s * 1e6 >= slow_log.threshold_us >= 0 and "skip_slowlog" not in row.flags:
            now_s, took_us = self.clock.wall_us() // 1_000_000, int(took_s * 1e6)
            slow_log.add(row, arguments, now_s, took_us, peer=session.peer, client_name=session.name)

    def note_inside(self, row: Command, arguments: Sequence[bytes], reply: Reply, database: int) -> None:
        """The same for a command that a script has run, which is not timed by itself."""
        self.metrics.commands.of(row.name).hot_calls += 1
        if type(reply) is ErrorReply:
            self.count_failure(row, reply)
        if self.monitors.sessions:
            self.monitors.show_inside(row, arguments, database)

    def count_failure(self, row: Command, reply: ErrorReply) -> None:
        """A command ran, and an error is its reply."""
        if not reply.is_counted:
            self.metrics.count_error(reply.message)
        self.metrics.commands.of(row.name).failed += 1

    def encode(self, row: Command, reply: Reply, protocol: int) -> bytes:
        try:
            return encode(reply, protocol)
        except Exception as error:
            return encode(internal_error(row, error), protocol)

    # --- the server as a whole ----------------------------------------------------------------------------------

    def role_changed(self) -> None:
        """The server has become a leader or a follower, or replication refuses something that it did not before."""
        replication = self.replication
        assert replication is not None
        self.gate.role_changed(replication)
        self.feeding.set_name_refusal(self.gate.write_refusal)
        if self.gate.is_read_only:  # otherwise it makes transactions once its epoch has begun
            self.store.is_follower = True
            self.blocking.end_writes()
            self.feeding.end_named()

    def serve_received(self) -> None:
        """Transactions of the leader were applied: clients that wait for what they changed get it."""
        if self.store.signals:
            self.blocking.serve()

    def on_durable(self) -> None:
        """More of the journal is durable."""
        self.follower_waits.look()

    @property
    def may_wait(self) -> bool:
        """Whether a command that runs now may wait: not inside EXEC or a script."""
        return self.transaction is None and not self.is_in_script

    def reset_statistics(self) -> None:
        """CONFIG RESETSTAT."""
        self.metrics.reset()
        self.sessions.reset_count()
        self.store.expired_count = 0
        self.subscriptions.message_count = self.subscriptions.delivery_count = 0

    def fail(self, error: Exception) -> NoReturn:
        """A command met a bug after it may have changed something."""
        self.process.fail(ApplyFailed(f"a command could not be finished: {explain(error)}"))
