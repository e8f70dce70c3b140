"""Commands that look at all keys of a large database, so that nobody else waits for it: DELRANGE, DELPREFIX.

    look     in slices, with a look at the sockets in between; its client waits, as one that is blocked does
    run      the command itself, which now finds nearly everything looked at, as a transaction of its own
    bury     in slices, what it left behind; its client has its reply

What others change meanwhile is looked at again, a few times over, and the last of it by the command. A client that goes
away before the command has run takes it along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.dispatch import run_command
from tidelog.engine.table import Command
from tidelog.errors import ApplyFailed
from tidelog.ports import Loop, Timer
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.store.range_removal import RangeRemoval

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

_PAUSE_S: Final = 0.001
"""Between two slices."""
_GATE_S: Final = 0.1
"""Until a command that the gate holds back is tried again."""
_ROUNDS_MAX: Final = 3
"""How often a database is looked at again for what has changed."""


class LongCommand:
    """A client and its command."""

    def __init__(self, session: Session, row: Command, arguments: Sequence[bytes], removal: RangeRemoval) -> None:
        self.session = session
        self.row = row
        self.arguments = arguments
        self.removal = removal
        self.database = session.database
        self.rounds = 0
        self.steps: Iterator[None] = iter(())
        """Of this round, or of the burial."""


class LongCommands:
    """All of them; one has its slice at a time, the others wait."""

    def __init__(self, engine: Engine, loop: Loop) -> None:
        self._engine = engine
        self._loop = loop
        self._waiting: dict[Session, LongCommand] = {}
        self._burials: list[Iterator[None]] = []
        self._timer: Timer | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, session: Session, row: Command, arguments: Sequence[bytes], removal: RangeRemoval) -> None:
        """A client begins to wait."""
        removal.is_buried_later = True
        self._waiting[session] = LongCommand(session, row, arguments, removal)
        self._engine.store.begin_removal(removal)
        session.set_blocked(True)
        self._go_on(0)

    def forget(self, session: Session) -> None:
        """A client is gone; fine if it did not wait."""
        command = self._waiting.pop(session, None)
        if command is not None:
            self._engine.store.end_removal(command.removal)
            session.set_blocked(False)

    def end_all(self, error: str) -> None:
        """None of them may run any more, as all of them write: their clients are told so, and cut off."""
        for session, command in list(self._waiting.items()):
            self.forget(session)
            session.close_after_reply()
            self._answer(command, ErrorReply(error))

    def close(self) -> None:
        """The server stops: what has not run never will. Their clients still wait, as others that are blocked do."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self._waiting):
            self.forget(session)
            session.set_blocked(True)

    # --- slices -------------------------------------------------------------------------------------------------

    def _go_on(self, seconds: float) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(seconds, self._work)

    def _work(self) -> None:
        self._timer = None
        until_us = self._engine.clock.monotonic_us() + limits.RANGE_SLICE_US
        pause_s = _PAUSE_S
        if self._waiting:
            command = next(iter(self._waiting.values()))
            if not self._look(command, until_us):
                pause_s = self._try_to_run(command)
        elif self._burials and not self._take_steps(self._burials[0], until_us):
            del self._burials[0]
        if self._waiting or self._burials:
            self._go_on(pause_s)

    def _take_steps(self, steps: Iterator[None], until_us: int) -> bool:
        """False: there are no more."""
        clock = self._engine.clock
        return any(clock.monotonic_us() >= until_us for _ in steps)

    def _look(self, command: LongCommand, until_us: int) -> bool:
        """Some looking; false: that is enough of it."""
        if self._take_steps(command.steps, until_us):
            return True
        if command.rounds == _ROUNDS_MAX:
            return False
        command.rounds += 1
        command.steps = command.removal.look()
        return True

    def _try_to_run(self, command: LongCommand) -> float:
        """Run it unless writes are refused at the moment; returns when to go on."""
        engine, row = self._engine, command.row
        if engine.gate.stops(row, command.arguments):
            return _GATE_S
        transaction = engine.store.begin(command.database)
        transaction.removal = command.removal
        try:
            reply = run_command(row, transaction, command.arguments)
            engine.commit(transaction)
        except ApplyFailed as error:
            engine.fail(error)
        self._burials.append(command.removal.bury())
        self.forget(command.session)
        self._answer(command, reply)
        if engine.store.signals:
            engine.blocking.serve()
        return _PAUSE_S

    def _answer(self, command: LongCommand, reply: Reply) -> None:
        engine, row, session = self._engine, command.row, command.session
        if type(reply) is ErrorReply:
            engine.count_failure(row, reply)
        session.unblock(engine.encode(row, reply, session.protocol))
