"""Clients that wait for a key: BLOCK of TREAD, XREAD and XREADGROUP.

A command that has nothing to answer raises `WouldBlock`. Its client waits under each of its keys, in the order in which
they came, and the same command is run again, as a transaction of its own, when

    a key has changed      right after the command that did it, before anything else is run
    something is due       a pending entry of a group is to be delivered again, or expires: one timer a group
    its time is over       it gets the reply for that

Readers of one group see the same: if one of them is given nothing, nobody behind it would be. So a change costs as many
attempts as there are clients that get something, one more a group (a look at its cursor for XREADGROUP), and one for
each reader that is in no group. Who was served comes back, if it does, at the end of the line.

Serving is one loop, however much one reader's change is another's news: nothing here calls itself. While the journal
takes no writes, or CLIENT PAUSE holds them, readers that would write are left waiting and looked at again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tidelog import limits
from tidelog.commands.blocking import WouldBlock
from tidelog.commands.dispatch import run_command
from tidelog.commands.table import Command
from tidelog.errors import ApplyFailed
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.server.run import Commands, Run
from tidelog.store.transaction import WRONG_TYPE
from tidelog.streams.progress import top_id
from tidelog.streams.stream import Stream

if TYPE_CHECKING:
    from tidelog.server.engine import Engine
    from tidelog.server.session import Session

Place = tuple[int, bytes]
"""Database and key."""
Line = tuple[str, bytes | None]
"""Who waits in one line: the command, and the group; None: readers by themselves."""
UNBLOCKED: Final = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class Handle(Protocol):
    """A timer that is set."""

    def cancel(self) -> None: ...


class Waiter:
    """A client and the command that waits."""

    __slots__ = (
        "client",
        "commands",
        "deadline",
        "line",
        "needs_key",
        "outlasts_types",
        "places",
        "row",
        "run",
        "timed_out",
    )

    def __init__(self, client: Session, row: Command, wait: WouldBlock, places: list[Place], run: Run | None) -> None:
        self.client = client
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
        self.deadline: Handle | None = None


class Blocking:
    """Everyone who waits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[Place, dict[Line, dict[Waiter, None]]] = {}
        """Place -> line -> who waits, in order."""
        self._by_client: dict[Session, Waiter] = {}
        self._due: dict[tuple[Place, Line], Handle] = {}
        """When something of a group is due."""
        self._put_off: dict[Place, None] = {}
        """Whose readers could not be served as things were."""
        self._is_serving = False
        self.call_later: Callable[[float, Callable[[], None]], Handle] = _no_loop
        """The loop's."""

    def __len__(self) -> int:
        return len(self._by_client)

    # --- coming and going ---------------------------------------------------------------------------------------

    def add(self, client: Session, row: Command, wait: WouldBlock) -> None:
        """A client begins to wait."""
        places = [(client.database, key) for key in dict.fromkeys(wait.keys)]
        run = self._engine.hot_commands(client).get(wait.arguments[0])
        waiter = self._by_client[client] = Waiter(client, row, wait, places, run)
        client.is_blocked = True
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
            waiter.deadline = self.call_later(
                limits.TIMER_S_MAX, lambda: self._set_deadline(waiter, seconds - limits.TIMER_S_MAX)
            )
        else:
            waiter.deadline = self.call_later(seconds, lambda: self._finish(waiter, waiter.timed_out))

    def forget(self, client: Session) -> None:
        """A client is gone, or has been answered; fine if it did not wait."""
        waiter = self._by_client.pop(client, None)
        if waiter is None:
            return
        client.is_blocked = False
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

    def unblock(self, client: Session, *, with_error: bool) -> bool:
        """CLIENT UNBLOCK; false if it does not wait."""
        waiter = self._by_client.get(client)
        if waiter is None:
            return False
        self._finish(waiter, ErrorReply(UNBLOCKED) if with_error else waiter.timed_out)
        return True

    def close(self) -> None:
        """The server stops: nobody is served any more. They still wait, so that nothing they sent later is run."""
        for client in list(self._by_client):
            self.forget(client)
            client.is_blocked = True

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
        """Now and then: what changed outside of commands, and who was put off."""
        for place in self._put_off:
            self._engine.store.signals[place] = None
        self._put_off.clear()
        self.serve()

    def _serve_line(self, place: Place, line: Line) -> None:
        for waiter in list(self._waiting.get(place, {}).get(line, ())):
            if line[0] == "XREADGROUP" and self._has_read_all(place, line[1]):
                return
            if waiter.client in self._by_client and not self._attempt(waiter, place) and line[1] is not None:
                return

    def _has_read_all(self, place: Place, group_name: bytes | None) -> bool:
        """Whether a group is there and has plainly nothing to read."""
        database = self._engine.store.database(place[0])
        stream = database.find(place[1])
        if group_name is None or not isinstance(stream, Stream) or place[1] in database.expiries:
            return False
        group = stream.groups.get(group_name)
        return group is not None and top_id(stream) <= group.last_id

    def _attempt(self, waiter: Waiter, place: Place) -> bool:
        """Whether the command had something to answer this time."""
        engine, row, arguments = self._engine, waiter.row, waiter.commands[0]
        if engine.cannot_serve(row, arguments):
            self._put_off[place] = None
            return False
        out: list[bytes] = []
        if waiter.run is not None and waiter.run(waiter.commands, 0, out):
            self.forget(waiter.client)
            waiter.client.unblock(out[0])
            return True
        transaction = engine.store.begin(place[0])
        if waiter.needs_key and all(transaction.find(key) is None for _, key in waiter.places):
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
        self.forget(waiter.client)
        if type(reply) is ErrorReply:
            self._engine.metrics.count_error(reply.message)
        waiter.client.unblock(self._engine.encode(waiter.row, reply, waiter.client.protocol))

    # --- what becomes due ---------------------------------------------------------------------------------------

    def _set_due(self, waiter: Waiter, due_ms: int) -> None:
        """One timer for all readers of a group: at the time of the entry that is due first."""
        place, line = waiter.places[0], waiter.line
        self._cancel_due(place, line)
        if due_ms:
            seconds = max(1000 * due_ms - self._engine.clock.wall_us(), 0) / 1e6
            self._due[place, line] = self.call_later(
                min(seconds, limits.TIMER_S_MAX), lambda: self._fall_due(place, line)
            )

    def _cancel_due(self, place: Place, line: Line) -> None:
        before = self._due.pop((place, line), None)
        if before is not None:
            before.cancel()

    def _fall_due(self, place: Place, line: Line) -> None:
        del self._due[place, line]
        self._serve_line(place, line)
        self.serve()


def _no_loop(_seconds: float, _call: Callable[[], None]) -> Handle:
    raise RuntimeError("nobody can wait before the server runs")
