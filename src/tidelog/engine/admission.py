"""Whether a command may run now: what the gate and the state of its client say together.

    refused   the client gets an error      the reasons are looked at in Redis's order
    held      the command waits             CLIENT PAUSE

EXEC is as good as the commands that it is about to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.engine.gate import Gate
from tidelog.engine.session import Queued, Session
from tidelog.engine.table import Command, row_as_called

_MAY_WRITE: Final = frozenset(["PUBLISH", "SPUBLISH", "EVAL", "EVALSHA", "FCALL"])
"""Commands that CLIENT PAUSE WRITE holds back beside those that write."""


def refusal_of(gate: Gate, session: Session, row: Command, arguments: Sequence[bytes]) -> str | None:
    """Why a command is refused, as an error reply; None: it is not."""
    if gate.is_open:
        return session.refusal_of(row) or session.listening_refusal_of(row) or gate.refusal_while_loading(row)
    if session.is_plain and row.as_called is None:  # as most are on a follower
        return gate.refusal_of(row, arguments)
    queued: Sequence[Queued] = session.queued if row.name == "EXEC" and session.queued else [(row, arguments)]
    commands = [(row_as_called(each, session, words), words) for each, words in queued]
    refusal = session.refusal_of(row)
    for each, words in commands:
        refusal = refusal or gate.write_refusal_of(each, words)
    refusal = refusal or session.listening_refusal_of(row)
    for each, _ in commands:
        refusal = refusal or gate.read_refusal_of(each)
    return refusal or gate.refusal_while_loading(row)


def is_held(gate: Gate, session: Session, row: Command, arguments: Sequence[bytes]) -> bool:
    """Whether a pause holds a command back."""
    if gate.holds(row_as_called(row, session, arguments), arguments) or row.name in _MAY_WRITE:
        return True
    return row.name == "EXEC" and any(
        queued.journals(words) or queued.name in _MAY_WRITE for queued, words in session.queued or ()
    )
