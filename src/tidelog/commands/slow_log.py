"""SLOWLOG: the newest commands that took long."""

from __future__ import annotations

from typing import Final

from tidelog.commands.arguments import integer
from tidelog.commands.help import help_reply
from tidelog.engine.session import Session
from tidelog.engine.table import SERVER, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply

_SHOWN_DEFAULT: Final = 10


def slowlog_get(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 3:
        shown = arguments[1].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try SLOWLOG HELP.")
    count = _SHOWN_DEFAULT
    if len(arguments) == 3:
        problem = "ERR count should be greater than or equal to -1"
        count = integer(arguments[2], problem)
        if count < -1:
            raise CommandError(problem)
    entries = list(session.engine.slow_log.entries)
    return [
        [entry.id, entry.began_s, entry.took_us, entry.arguments, entry.peer.encode(), entry.client_name]
        for entry in (entries if count == -1 else entries[:count])
    ]


def slowlog_len(session: Session, _arguments: Arguments) -> Reply:
    return len(session.engine.slow_log.entries)


def slowlog_reset(session: Session, _arguments: Arguments) -> Reply:
    session.engine.slow_log.entries.clear()
    return "OK"


def slowlog_help(_session: Session, _arguments: Arguments) -> Reply:
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
    connection(
        SERVER, "SLOWLOG|GET", -2, slowlog_get, "admin loading stale", summary="return the newest slow commands"
    ),
    connection(
        SERVER,
        "SLOWLOG|LEN",
        2,
        slowlog_len,
        "admin loading stale",
        summary="return the number of slow commands that are kept",
    ),
    connection(SERVER, "SLOWLOG|RESET", 2, slowlog_reset, "admin loading stale", summary="drop all slow commands"),
    connection(SERVER, "SLOWLOG|HELP", 2, slowlog_help, "loading stale", summary="list the subcommands of SLOWLOG"),
]
