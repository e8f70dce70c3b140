"""A command as scripts call it."""

from __future__ import annotations

from tidelog.engine.table import Command, HandlerKind
from tidelog.engine.tallies import Tally
from tidelog.scripting.plain_calls import PLAIN_CALLS


class Callee:
    """A row as scripts call it: what every call asks of it, looked up once."""

    __slots__ = ("arity", "is_allowed", "is_connection", "is_write", "may_only_read", "plain", "row", "tally")

    def __init__(self, row: Command, tally: Tally) -> None:
        self.row = row
        self.tally = tally
        self.arity = row.arity
        self.is_allowed = (
            "noscript" not in row.flags or "blocking" in row.flags
        )  # those answer at once, as in Redis 7.2
        self.is_connection = row.kind is HandlerKind.CONNECTION
        self.is_write = row.kind is HandlerKind.WRITE
        self.may_only_read = row.is_read is not None
        """Whether it writes depends on its arguments."""
        self.plain = PLAIN_CALLS.get(row.name)
        """A faster way for its plain form; None: it has none."""
