"""What a script may ask of the server. Lua calls these methods; `lua/redis.lua` makes Lua's values of what they return.

    bytes, int                  a value, as it is
    None                        null
    True                        the status OK, which most writes answer
    (None, STATUS, text)        a status reply
    (None, FLAT, item ...)      an array of such values
    (None, ENCODED, bytes)      any other reply, in RESP
    (None, FAILED, text)        an error reply: `redis.call` raises it, `redis.pcall` returns it
    (None, ENDED, reason)       the script ends here
    (None, MISUSED, text)       as FAILED, for a call that names no command

None of them raises: an exception would be an object of Python in the hands of a script. What they return is smaller
than the memory that Lua keeps in reserve for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.dispatch import explain, run_command
from tidelog.engine.table import Command
from tidelog.errors import ApplyFailed, CommandError
from tidelog.resp.encoder import ErrorReply, Reply, encode
from tidelog.scripting.callee import Callee
from tidelog.scripting.source import problem_of
from tidelog.store.transaction import NOT_PLAIN, Transaction

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

_LOG: Final = logging.getLogger("tidelog.script")
_LEVELS: Final = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)
_LOGGED_BYTES_MAX: Final = 1024

STATUS: Final = 1
FLAT: Final = 2
ENCODED: Final = 3
FAILED: Final = 4
ENDED: Final = 5
MISUSED: Final = 6

TOO_LONG: Final = 1
"""Why a script was stopped: its time was over ..."""
TOO_LARGE: Final = 2
"""... or it needed too much memory."""

_GOING: Final = 0
_SLOW: Final = 1
_OVER: Final = 2
"""What the clock says."""
_SLOW_S: Final = 0.005
"""Instructions between two looks at the clock that took as long work on something large: look more often."""
_NAMES_MAX: Final = 1000
"""Spellings of names of commands that are remembered."""

_INTEGER_MIN: Final = -(2**63)
"""Redis takes it for a number that does not fit."""

_BAD_ARGUMENT: Final = (None, MISUSED, b"ERR Lua redis lib command arguments must be strings or integers")
_NO_ARGUMENT: Final = (None, MISUSED, b"ERR Please specify at least one argument for this redis lib call")
_UNKNOWN: Final = (None, FAILED, b"ERR Unknown Redis command called from script")
_WRONG_COUNT: Final = (None, FAILED, b"ERR Wrong number of args calling Redis command from script")
_NOT_ALLOWED: Final = (None, FAILED, b"ERR This Redis command is not allowed from script")
_READ_ONLY: Final = (None, FAILED, b"ERR Write commands are not allowed from read-only scripts.")
_STALE: Final = (None, FAILED, b"ERR Can not execute the command on a stale replica")
_TOO_MUCH: Final = (None, FAILED, b"ERR a script writes at most %d bytes" % limits.SCRIPT_WRITTEN_BYTES_MAX)


class Host:
    """The server as one script sees it; there is one script at a time."""

    def __init__(self, engine: Engine, stopwatch_s: Callable[[], float]) -> None:
        self._engine = engine
        self._stopwatch_s = stopwatch_s
        self._monitors = engine.monitors
        self._callees: dict[bytes, Callee] = {}
        """By name, as it was written."""
        self._session: Session | None = None
        self._transaction: Transaction | None = None
        self._protocol = 2
        self._is_read_only = False
        self._allows_oom = False
        self._is_stale = False
        """The data here is too old to be read (MASTERDOWN)."""
        self._reply_bytes_max = 0
        self._written_bytes_max = 0
        """Of the transaction, parts of which may be of others."""
        self._trusted = b""
        """A text that may be compiled."""
        self._exec_number = 0
        """Of the EXEC whose scripts share their time, or 0 ..."""
        self._spent_s = 0.0
        """... of which they have used so much."""
        self._is_extended = False
        """There is more time, as something was written."""
        self._limit_s = 0.0
        self._began_s = 0.0
        self._deadline_s = 0.0
        self._looked_s = 0.0
        """When the clock was last looked at."""
        self.has_written = False
        """A command that may write was run."""
        self.stop_reason = 0
        self.stop_line = 0
        self.failure: Exception | None = None
        """A bug, or the end of the process: raised again once Lua is left."""

    def begin(
        self,
        session: Session,
        transaction: Transaction,
        *,
        is_read_only: bool,
        allows_oom: bool,
        limit_s: float,
        reply_bytes_max: int,
        exec_number: int = 0,
    ) -> None:
        """A script begins, perhaps as one of several in an EXEC: nobody else has a go between those, so that they have
        the time of one."""
        self._session = session
        self._transaction = transaction
        self._protocol = 2
        self._is_read_only = is_read_only
        self._allows_oom = allows_oom
        self._is_stale = self._engine.gate.read_refusal is not None
        self._reply_bytes_max = reply_bytes_max
        self._written_bytes_max = transaction.size_bytes + limits.SCRIPT_WRITTEN_BYTES_MAX
        if not exec_number or exec_number != self._exec_number:
            self._exec_number, self._spent_s, self._is_extended = exec_number, 0.0, False
        self._limit_s = limit_s
        self._began_s = self._looked_s = self._stopwatch_s()
        self._deadline_s = self._began_s + limit_s * (1 + self._is_extended) - self._spent_s
        self.has_written = False
        self.stop_reason = self.stop_line = 0
        self.failure = None

    def end(self) -> None:
        self._session = None
        self._transaction = None
        if self._exec_number:
            self._spent_s += self._stopwatch_s() - self._began_s

    # --- limits -------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """The time of the script is over."""
        return self._stopwatch_s() > self._deadline_s

    def check_clock(self) -> int:
        if self._transaction is None:
            return _GOING  # a script is being compiled
        if self.failure is not None:
            return _OVER
        now_s = self._stopwatch_s()
        took_s = now_s - self._looked_s
        self._looked_s = now_s
        if now_s > self._deadline_s:
            return _OVER
        return _SLOW if took_s > _SLOW_S else _GOING

    def note_stop(self, reason: int, line: int) -> None:
        """The script is stopped. The first reason counts; the line may become known later."""
        self.stop_reason = self.stop_reason or reason
        self.stop_line = self.stop_line or line

    def trust(self, text: bytes) -> None:
        """This text was looked at: it is compiled next."""
        self._trusted = text

    def vet_source(self, text: object) -> int:
        """Whether a text may be compiled, as `problem_of` says."""
        if not isinstance(text, bytes) or text == self._trusted:
            return 0
        return problem_of(text)

    # --- commands -----------------------------------------------------------------------------------------------

    def call(self, *words: object) -> object:
        """`redis.call`."""
        try:
            return self._call(words)
        except Exception as error:
            self.failure = error
            return None, ENDED, TOO_LONG

    def _call(self, words: tuple[object, ...]) -> object:
        if self._stopwatch_s() > self._deadline_s or self.failure is not None:
            return None, ENDED, TOO_LONG
        arguments: list[bytes] = []
        for word in words:
            if isinstance(word, bytes):
                arguments.append(word)
            elif type(word) is int:
                arguments.append(b"%d" % word if word != _INTEGER_MIN else b"%.17g" % word)
            elif type(word) is float:
                arguments.append(b"%.17g" % word)
            else:
                return _BAD_ARGUMENT
        if not arguments:
            return _NO_ARGUMENT
        count = len(arguments)
        callee = self._callees.get(arguments[0])
        if callee is None:
            callee = self._find(arguments)
            if callee is None:
                return self._refused(_UNKNOWN)
        if count != callee.arity and (callee.arity > 0 or count < -callee.arity):
            return self._refused(_WRONG_COUNT)
        if not callee.is_allowed:
            return self._refused(_NOT_ALLOWED)
        if self._is_stale and "stale" not in callee.row.flags:
            return self._refused(_STALE)
        transaction = self._transaction
        assert transaction is not None
        if callee.is_connection:
            reply = self._run_connection(callee.row, transaction, arguments)
        else:
            if callee.is_write and (not callee.may_only_read or callee.row.writes(arguments)):
                refusal = self._refusal_of(callee.row, arguments)
                if refusal is not None:
                    return self._refused(refusal)
            reply = NOT_PLAIN if callee.plain is None else self._run_plain(callee, transaction, arguments)
            if reply is NOT_PLAIN:
                reply = run_command(callee.row, transaction, arguments)
        if type(reply) is ErrorReply or self._monitors.sessions:
            self._engine.note_inside(callee.row, arguments, reply, transaction.database.number)
        else:
            callee.tally.hot_calls += 1
        return self._to_lua(reply)

    def _run_plain(self, callee: Callee, transaction: Transaction, arguments: list[bytes]) -> Reply:
        assert callee.plain is not None
        try:
            return callee.plain(transaction, arguments)
        except Exception as error:  # it may have changed something already
            raise ApplyFailed(f"{callee.row.name} could not be applied in a script: {explain(error)}") from error

    def _find(self, arguments: list[bytes]) -> Callee | None:
        table, name = self._engine.table, arguments[0]
        row = table.find(name)
        if row is not None:
            callee = self._callee_of(row)
            if len(self._callees) < _NAMES_MAX:
                self._callees[name] = callee
            return callee
        rows = table.subcommands(name)
        if rows is None:
            return None
        if len(arguments) > 1:
            row = rows.get(arguments[1].upper())
        else:
            row = table.bare(name) or next(iter(rows.values()))  # which takes more arguments
        return None if row is None else self._callee_of(row)

    def _callee_of(self, row: Command) -> Callee:
        return Callee(row, self._engine.metrics.commands.of(row.name))

    def _refused(self, answer: tuple[None, int, bytes]) -> object:
        """A command is not run: its error counts nevertheless."""
        self._engine.metrics.count_error(answer[2].decode("utf-8", "surrogateescape"))
        return answer

    def _refusal_of(self, row: Command, arguments: list[bytes]) -> tuple[None, int, bytes] | None:
        """Why a write is refused; None: it is not."""
        if self._is_read_only:
            return _READ_ONLY
        transaction = self._transaction
        if transaction is not None and transaction.size_bytes > self._written_bytes_max:
            return _TOO_MUCH
        gate = self._engine.gate
        if not gate.is_open:
            refusal = gate.write_refusal if gate.is_read_only else gate.write_refusal_of(row, arguments)
            # As in Redis: what has begun to write may go on to do so.
            is_allowed = self._allows_oom or self.has_written
            if refusal is not None and not (is_allowed and refusal.startswith("OOM ")):
                return None, FAILED, refusal.encode("utf-8", "surrogateescape")
        self.has_written = True
        if not self._is_extended:
            self._is_extended = True
            self._deadline_s += self._limit_s
        return None

    def _run_connection(self, row: Command, transaction: Transaction, arguments: list[bytes]) -> Reply:
        session = self._session
        assert session is not None
        before = session.database
        try:
            if row.name == "SELECT":  # for the rest of the script
                reply = row.handler(session, arguments)
                transaction.database = self._engine.store.database(session.database)
                return reply
            return row.handler(session, arguments)
        except CommandError as error:
            return ErrorReply(str(error))
        finally:
            if session.database != before:
                session.select(before)

    def _to_lua(self, reply: Reply) -> object:
        kind = type(reply)
        if kind is int or reply is None:
            return reply
        if kind is bytes:
            return reply if len(reply) < self._reply_bytes_max else self._too_large()
        if kind is str:
            return True if reply == "OK" else (None, STATUS, reply.encode())
        if isinstance(reply, ErrorReply):
            return None, FAILED, reply.message.encode("utf-8", "surrogateescape")
        if kind is list and len(reply) <= limits.SCRIPT_FLAT_ITEMS_MAX:
            flat = self._flat(reply)
            if flat is not None:
                return flat
        data = encode(reply, self._protocol)
        return (None, ENCODED, data) if len(data) < self._reply_bytes_max else self._too_large()

    def _flat(self, items: list[Reply]) -> object:
        """An array of strings and integers; None: there is something else in it."""
        found: list[object] = [None, FLAT]
        size = 0
        for item in items:
            if isinstance(item, bytes):
                size += len(item)
            elif item is None and self._protocol == 2:
                item = False
            elif type(item) is not int:
                return None
            found.append(item)
        return tuple(found) if size < self._reply_bytes_max else self._too_large()

    def _too_large(self) -> object:
        return None, FAILED, b"ERR the reply is larger than the memory of a script takes (script-memory-limit)"

    # --- the rest of `redis` ------------------------------------------------------------------------------------

    def set_protocol(self, protocol: int) -> None:
        self._protocol = 3 if protocol == 3 else 2

    def sha1hex(self, text: bytes) -> bytes:
        return sha1(text, usedforsecurity=False).hexdigest().encode()

    def log(self, level: float, text: bytes) -> None:
        shown = text[:_LOGGED_BYTES_MAX].decode("utf-8", "replace")
        _LOG.log(_LEVELS[int(level)], "%s", "".join(sign if sign.isprintable() else "?" for sign in shown))

    def may_run(self, *words: object) -> bool | None:
        """`redis.acl_check_cmd`: there is one user, who may run every command."""
        first = words[0]
        arguments = [word for word in words if isinstance(word, bytes)]
        if not isinstance(first, bytes):
            return None
        return True if self._find(arguments) is not None else None
