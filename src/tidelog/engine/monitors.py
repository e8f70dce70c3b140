"""MONITOR: clients that are shown every command that runs.

A line is made once for all of them, when its command has run; a script's before those of its commands. As in Redis,
commands of administrators are not shown, nor commands that are refused before they run, and passwords are redacted. Of
a very long command only the beginning is shown, so that it cannot make the others wait.

While somebody monitors, no command takes the hot path, which has no place for this. While nobody does, that is all the
general path asks. A monitor that does not read is cut, as every client that listens is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.sessions import Sessions
from tidelog.engine.table import REDACTED, Command
from tidelog.errors import CommandError
from tidelog.ports import Clock

if TYPE_CHECKING:
    from tidelog.engine.session import Session

_SCRIPT: Final = "lua"
"""The source of commands that a script runs."""

_SIGNS: Final = {ord("\\"): b"\\\\", ord('"'): b'\\"', 7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r"}
_SHOWN: Final = [_SIGNS.get(byte) or (b"%c" if 32 <= byte < 127 else b"\\x%02x") % byte for byte in range(256)]
"""Byte -> how it is shown between quotes."""


class Monitors:
    """The clients that monitor."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._all = sessions
        self._clock = clock
        self.sessions: dict[int, Session] = {}
        """By id. Nothing is shown while there are none."""

    def add(self, session: Session) -> None:
        if len(self.sessions) >= limits.MONITORS_MAX:
            raise CommandError(f"ERR at most {limits.MONITORS_MAX} clients may monitor")
        self.sessions[session.id] = session
        self._all.states_changed()

    def forget(self, session: Session) -> None:
        """A client does not monitor any more; fine if it did not."""
        if self.sessions.pop(session.id, None) is not None and not self.sessions:
            self._all.states_changed()

    def show_script(self, row: Command, arguments: Sequence[bytes], session: Session) -> bytes:
        """Show a command that runs others, before them; returns the line, which is empty if it is another command."""
        return self.show(row, arguments, session) if "skip_monitor" in row.flags else b""

    def show(self, row: Command, arguments: Sequence[bytes], session: Session) -> bytes:
        """Show a command of a client to all but the client itself; returns the line."""
        line = self._line(row, arguments, session.database, session.source)
        self._push(line, session)
        return line

    def show_inside(self, row: Command, arguments: Sequence[bytes], database: int) -> None:
        """Show a command that a script runs."""
        self._push(self._line(row, arguments, database, _SCRIPT), None)

    def _line(self, row: Command, arguments: Sequence[bytes], database: int, source: str) -> bytes:
        if "admin" in row.flags:
            return b""
        now_us = self._clock.wall_us()
        place = b"%d %b" % (database, source.encode("utf-8", "surrogateescape"))
        words = b" ".join(_quoted(row, arguments))
        return b"+%d.%06d [%b] %b\r\n" % (now_us // 1_000_000, now_us % 1_000_000, place, words)

    def _push(self, line: bytes, but: Session | None) -> None:
        for each in list(self.sessions.values()):  # one that is cut off for not reading leaves meanwhile
            if line and each is not but:
                each.push(line)


def _quoted(row: Command, arguments: Sequence[bytes]) -> list[bytes]:
    """The arguments as Redis quotes them, as far as there is room."""
    secret_from = row.secret_from or len(arguments)
    room = limits.MONITORED_BYTES_MAX
    quoted: list[bytes] = []
    for index, argument in enumerate(arguments):
        if room <= 0:
            quoted.append(b"... (%d more arguments)" % (len(arguments) - index))
            break
        whole = argument if index < secret_from else REDACTED
        shown = whole[:room]
        more = b"" if len(shown) == len(whole) else b"... (%d more bytes)" % (len(whole) - len(shown))
        quoted.append(b'"%b%b"' % (quote(shown), more))
        room -= len(shown) + 1
    return quoted


def quote(argument: bytes) -> bytes:
    """An argument with whatever cannot be printed escaped, without the quotes."""
    return b"".join([_SHOWN[byte] for byte in argument])
