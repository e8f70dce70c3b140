"""SLOWLOG: the newest commands that took long.

Only commands of the general path are timed: the hot ones do a fixed amount of work. What may hold a password is shown
as `(redacted)`; of long commands only the beginning is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.commands.arguments import integer
from tidelog.commands.help import help_reply
from tidelog.commands.table import Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply

if TYPE_CHECKING:
    from tidelog.commands.client import Client

THRESHOLD_US_DEFAULT: Final = 10_000
LENGTH_MAX_DEFAULT: Final = 128
_ARGUMENTS_MAX: Final = 32
_ARGUMENT_BYTES_MAX: Final = 128
_SHOWN_DEFAULT: Final = 10
_REDACTED: Final = b"(redacted)"
_SECRET_FROM: Final = {"AUTH": 1, "HELLO": 2, "CONFIG|SET": 2}
"""Commands with secrets -> from which argument on they are not shown."""


class Entry(NamedTuple):
    """A command that took long."""

    id: int
    began_s: int
    took_us: int
    arguments: list[bytes]
    peer: str
    client_name: bytes


class SlowLog:
    """The newest slow commands."""

    def __init__(self) -> None:
        self.threshold_us = THRESHOLD_US_DEFAULT
        """Negative: nothing is slow."""
        self.entries: deque[Entry] = deque(maxlen=LENGTH_MAX_DEFAULT)
        """Newest first."""
        self._next_id = 0

    @property
    def length_max(self) -> int:
        return self.entries.maxlen or 0

    @length_max.setter
    def length_max(self, length: int) -> None:
        kept = list(self.entries)[:length]
        self.entries = deque(kept, maxlen=length)

    def add(self, client: Client, row: Command, arguments: Sequence[bytes], now_s: int, took_us: int) -> None:
        shown = _shown(row, arguments)
        self.entries.appendleft(Entry(self._next_id, now_s, took_us, shown, client.peer, client.name))
        self._next_id += 1


def _shown(row: Command, arguments: Sequence[bytes]) -> list[bytes]:
    secret_from = _SECRET_FROM.get(row.name, len(arguments))
    shown = []
    for index, argument in enumerate(arguments[:_ARGUMENTS_MAX]):
        if index == _ARGUMENTS_MAX - 1 and len(arguments) > _ARGUMENTS_MAX:
            shown.append(b"... (%d more arguments)" % (len(arguments) - _ARGUMENTS_MAX + 1))
        elif index >= secret_from:
            shown.append(_REDACTED)
        elif len(argument) > _ARGUMENT_BYTES_MAX:
            more = len(argument) - _ARGUMENT_BYTES_MAX
            shown.append(b"%b... (%d more bytes)" % (argument[:_ARGUMENT_BYTES_MAX], more))
        else:
            shown.append(argument)
    return shown


def slowlog_get(client: Client, arguments: Arguments) -> Reply:
    if len(arguments) > 3:
        shown = arguments[1].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try SLOWLOG HELP.")
    count = _SHOWN_DEFAULT
    if len(arguments) == 3:
        problem = "ERR count should be greater than or equal to -1"
        count = integer(arguments[2], problem)
        if count < -1:
            raise CommandError(problem)
    entries = list(client.server.slow_log.entries)
    return [
        [entry.id, entry.began_s, entry.took_us, entry.arguments, entry.peer.encode(), entry.client_name]
        for entry in (entries if count == -1 else entries[:count])
    ]


def slowlog_len(client: Client, _arguments: Arguments) -> Reply:
    return len(client.server.slow_log.entries)


def slowlog_reset(client: Client, _arguments: Arguments) -> Reply:
    client.server.slow_log.entries.clear()
    return "OK"


def slowlog_help(_client: Client, _arguments: Arguments) -> Reply:
    return help_reply(
        "SLOWLOG",
        """
        GET [<count>]
            Return top <count> entries from the slowlog (default: 10, -1 mean all).
            Entries are made of:
            id, timestamp, time in microseconds, arguments array, client IP and port,
            client name
        LEN
            Return the length of the slowlog.
        RESET
            Reset the slowlog.
        """,
    )


COMMANDS: list[Command] = [
    connection("SLOWLOG|GET", -2, slowlog_get, "admin loading stale", summary="the newest slow commands"),
    connection("SLOWLOG|LEN", 2, slowlog_len, "admin loading stale", summary="how many slow commands are remembered"),
    connection("SLOWLOG|RESET", 2, slowlog_reset, "admin loading stale", summary="forget the slow commands"),
    connection("SLOWLOG|HELP", 2, slowlog_help, "loading stale", summary="what SLOWLOG can do"),
]
