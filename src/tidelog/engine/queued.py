"""EXEC: runs the commands of a MULTI as one transaction.

Cold nodes that they need are fetched before (`fetching`), as far as that can be known. What is still away is read on
the spot: a transaction cannot wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.engine.dispatch import run_command
from tidelog.engine.table import Command, HandlerKind
from tidelog.errors import WrongPassword
from tidelog.resp.encoder import OK, ErrorReply, Reply, Wire
from tidelog.store.transaction import Transaction

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Queued, Session

_OK: Final = Wire(OK)


def run_transaction(engine: Engine, session: Session, queued: Sequence[Queued]) -> list[Reply]:
    """All of them in one transaction."""
    transaction = engine.store.begin(session.database)
    replies: list[Reply] = []
    looks_at_each = engine.looks_at_each
    plain_count = 0
    engine.transaction = transaction
    engine.exec_count += 1
    for row, arguments in queued:
        is_plain = row.name == "SET" and len(arguments) == 3 and not looks_at_each
        if is_plain and transaction.set_plain(arguments[1], arguments[2]):
            replies.append(_OK)
            plain_count += 1
            continue
        replies.append(_run_queued(engine, row, session, transaction, arguments))
    engine.transaction = None
    engine.commit(transaction)
    engine.publishing.committed()
    if plain_count:
        engine.metrics.commands.of("SET").hot_calls += plain_count
    return replies


def _run_queued(
    engine: Engine, row: Command, session: Session, transaction: Transaction, arguments: Sequence[bytes]
) -> Reply:
    began_s = engine.stopwatch_s()
    session.last_command = row.name
    line = engine.monitors.show_script(row, arguments, session) if engine.monitors.sessions else b""
    if row.kind is HandlerKind.CONNECTION:
        try:
            reply = engine.run_connection(row, session, arguments)
        except WrongPassword as error:  # of a client that is in already
            reply = ErrorReply(str(error))
        transaction.database = engine.store.database(session.database)  # SELECT inside MULTI
    else:
        reply = run_command(row, transaction, arguments)
    if engine.monitors.sessions and not line:
        engine.monitors.show(row, arguments, session)
    engine.note(session, row, arguments, reply, engine.stopwatch_s() - began_s)
    if type(reply) is bytes:
        return reply  # it looks the same in both protocols, and may be long
    return Wire(engine.encode(row, reply, session.protocol))  # HELLO inside MULTI changes how later replies look
