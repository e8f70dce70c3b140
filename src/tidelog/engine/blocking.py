"""Clients that wait for a key: BLOCK of TREAD, XREAD and XREADGROUP.

A command that has nothing to answer raises `WouldBlock`. Its client then waits under each of its keys, first come first
served. The engine runs the same command again, as a transaction of its own, when

    a key has changed      right after the command that changed it, before anything else runs
    an entry is due        a pending entry of a group is to be delivered again, or expires: one timer a group
    its time is over       the client gets the reply for that

Readers of one group see the same entries: if one of them gets nothing, nobody behind it would. So a change costs one
attempt for each client that gets something, one more for each group (for XREADGROUP a look at its cursor), and one for
each reader without a group. A client that was served and waits again goes to the end of the line.

Serving is one loop, even where the change of one reader serves another: nothing here calls itself. While the gate is
closed for writes, readers that would write keep waiting and are tried again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.dispatch import run_command
from tidelog.engine.hot_commands import Commands, HotRun
from tidelog.engine.table import Command
from tidelog.engine.would_block import WouldBlock
from tidelog.errors import ApplyFailed
from tidelog.ports import Loop, Timer
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.store.transaction import WRONG_TYPE
from tidelog.streams.progress import top_id
from tidelog.streams.stream import Stream

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

KeyPlace = tuple[int, bytes]
"""Database and key."""
Line = tuple[str, bytes | None]
"""The command and the group of the clients in one line; group None: readers without one."""
UNBLOCKED: Final = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class Waiter:
    """A client and the command that waits."""

    __slots__ = (
        "commands",
        "deadline",
        "line",
        "needs_key",
        "outlasts_types",
        "places",
        "row",
        "run",
        "session",
        "timed_out",
    )

    def __init__(
        self, session: Session, row: Command, wait: WouldBlock, places: list[KeyPlace], run: HotRun | None
    ) -> None:
        self.session = session
        self.row = row
        self.commands: Commands = [list(wait.arguments)]
        """The one that is run again."""
        self.run = run
        """How it is run first: hot. It stays so, because nothing that its client sends is run meanwhile."""
        self.timed_out = wait.timed_out
        self.needs_key = wait.needs_key
        self.outlasts_types = wait.outlasts_types
        self.line: Line = (row.name, wait.group)
        self.places = places
        self.deadline: Timer | None = None


class Blocking:
    """All clients that wait."""

    def __init__(self, engine: Engine, loop: Loop) -> None:
        self._engine = engine
        self._loop = loop
        self._waiting: dict[KeyPlace, dict[Line, dict[Waiter, None]]] = {}
        """Place -> line -> waiters, in order."""
        self._by_session: dict[Session, Waiter] = {}
        self._due: dict[tuple[KeyPlace, Line], Timer] = {}
        """When something of a group is due."""
        self._put_off: dict[KeyPlace, None] = {}
        """Keys whose readers the gate held back: tried again by `tick`."""
        self._is_serving = False

    def __len__(self) -> int:
        return len(self._by_session)

    def has(self, session: Session) -> bool:
        """Whether a client waits for a key."""
        return session in self._by_session

    # --- coming and going ---------------------------------------------------------------------------------------

    def add(self, session: Session, row: Command, wait: WouldBlock) -> None:
        """A client begins to wait."""
        places = [(session.database, key) for key in dict.fromkeys(wait.keys)]
        run = self._engine.hot_commands(session).get(wait.arguments[0])
        waiter = self._by_session[session] = Waiter(session, row, wait, places, run)
        session.set_blocked(True)
        for place in places:
            number, key = place
            self._waiting.setdefault(place, {}).setdefault(waiter.line, {})[waiter] = None
            self._engine.store.database(number).waiting.add(key)
        if wait.timeout_ms:
            self._set_deadline(waiter, wait.timeout_ms / 1000)
        self._set_due(waiter, wait.due_ms)

    def _set_deadline(self, waiter: Waiter, seconds: float) -> None:
        """Timers of loops have a longest time; a longer one is set again in between."""
        if seconds > limits.TIMER_S_MAX:
            waiter.deadline = self._loop.call_later(
                limits.TIMER_S_MAX, lambda: self._set_deadline(waiter, seconds - limits.TIMER_S_MAX)
            )
        else:
            waiter.deadline = self._loop.call_later(seconds, lambda: self._finish(waiter, waiter.timed_out))

    def forget(self, session: Session) -> None:
        """A client is gone, or has been answered; fine if it did not wait."""
        waiter = self._by_session.pop(session, None)
        if waiter is None:
            self._engine.long_commands.forget(session)
            return
        session.set_blocked(False)
        if waiter.deadline is not None:
            waiter.deadline.cancel()
        for place in waiter.places:
            lines = self._waiting[place]
            del lines[waiter.line][waiter]
            if not lines[waiter.line]:
                del lines[waiter.line]
                self._cancel_due(place, waiter.line)
            if not lines:
                del self._waiting[place]
                self._engine.store.database(place[0]).waiting.discard(place[1])

    def unblock(self, session: Session, *, with_error: bool) -> bool:
        """CLIENT UNBLOCK; false if it does not wait."""
        waiter = self._by_session.get(session)
        if waiter is None:
            return False
        self._finish(waiter, ErrorReply(UNBLOCKED) if with_error else waiter.timed_out)
        self.serve()
        return True

    def close(self) -> None:
        """The server stops: nobody is served any more. They still wait, so that nothing they sent later is run."""
        for session in list(self._by_session):
            self.forget(session)
            session.set_blocked(True)
        self._engine.long_commands.close()

    # --- serving ------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run again what waits for keys that have changed. What that changes may serve others."""
        if self._is_serving:
            return  # by the loop below
        self._is_serving = True
        signals = self._engine.store.signals
        try:
            while signals:
                place = next(iter(signals))
                del signals[place]
                for line in list(self._waiting.get(place, ())):
                    self._serve_line(place, line)
        finally:
            self._is_serving = False

    def tick(self) -> None:
        """Now and then: serve what changed outside of commands, and clients that were put off."""
        for place in self._put_off:
            self._engine.store.signals[place] = None
        self._put_off.clear()
        self.serve()

    def _serve_line(self, place: KeyPlace, line: Line) -> None:
        for waiter in list(self._waiting.get(place, {}).get(line, ())):
            if line[0] == "XREADGROUP" and self._has_read_all(place, line[1]):
                return
            if waiter.session in self._by_session and not self._attempt(waiter, place) and line[1] is not None:
                return

    def _has_read_all(self, place: KeyPlace, group_name: bytes | None) -> bool:
        """Whether a group is there and has plainly nothing to read."""
        database = self._engine.store.database(place[0])
        stream = database.peek(place[1])
        if group_name is None or not isinstance(stream, Stream) or place[1] in database.expiries:
            return False
        group = stream.groups.get(group_name)
        return group is not None and top_id(stream) <= group.last_id

    def _attempt(self, waiter: Waiter, place: KeyPlace) -> bool:
        """Whether the command had something to answer this time."""
        engine, row, arguments = self._engine, waiter.row, waiter.commands[0]
        if engine.gate.stops(row, arguments):
            self._put_off[place] = None
            return False
        out: list[bytes] = []
        if waiter.run is not None and waiter.run(waiter.commands, 0, out):
            self.forget(waiter.session)
            waiter.session.unblock(out[0])
            return True
        transaction = engine.store.begin(place[0])
        if waiter.needs_key and all(transaction.peek(key) is None for _, key in waiter.places):
            self._set_due(waiter, 0)
            return False
        try:
            try:
                reply = run_command(row, transaction, arguments)
            except WouldBlock as wait:
                engine.commit(transaction)
                self._set_due(waiter, wait.due_ms)
                return False
            engine.commit(transaction)
        except ApplyFailed as error:
            engine.fail(error)
        if waiter.outlasts_types and type(reply) is ErrorReply and reply.message == WRONG_TYPE:
            return False  # it waits for a stream, and for as long as it takes
        self._finish(waiter, reply)
        return True

    def _finish(self, waiter: Waiter, reply: Reply) -> None:
        self.forget(waiter.session)
        if type(reply) is ErrorReply:
            self._engine.metrics.count_error(reply.message)
        waiter.session.unblock(self._engine.encode(waiter.row, reply, waiter.session.protocol))

    # --- what becomes due ---------------------------------------------------------------------------------------

    def _set_due(self, waiter: Waiter, due_ms: int) -> None:
        """One timer for all readers of a group: at the time of the entry that is due first."""
        place, line = waiter.places[0], waiter.line
        self._cancel_due(place, line)
        if due_ms:
            seconds = max(1000 * due_ms - self._engine.clock.wall_us(), 0) / 1e6
            self._due[place, line] = self._loop.call_later(
                min(seconds, limits.TIMER_S_MAX), lambda: self._fall_due(place, line)
            )

    def _cancel_due(self, place: KeyPlace, line: Line) -> None:
        before = self._due.pop((place, line), None)
        if before is not None:
            before.cancel()

    def _fall_due(self, place: KeyPlace, line: Line) -> None:
        del self._due[place, line]
        self._serve_line(place, line)
        self.serve()
