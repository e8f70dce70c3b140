"""MONITOR: see every command that the server runs."""

from __future__ import annotations

from tidelog.engine.session import Session
from tidelog.engine.table import SERVER, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply, Wire


def monitor(session: Session, _arguments: Arguments) -> Reply:
    """One line for each command from now on, until RESET or QUIT. As in Redis, a second MONITOR has no reply."""
    if session.feed_sink is not None:
        raise CommandError("ERR a connection with a change feed cannot monitor")
    if session.is_monitor:
        return Wire()
    session.begin_monitoring()
    return "OK"


COMMANDS: list[Command] = [
    connection(SERVER, "MONITOR", 1, monitor, "admin noscript loading stale", summary="see every command that runs")
]
