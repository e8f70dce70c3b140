"""Ranges of keys, removed in one step: DELRANGE and DELPREFIX.

They cost one record and one event of a feed, whatever the number of keys. Everybody sees all of the keys, or none.
"""

from __future__ import annotations

from tidelog.commands.arguments import quoted
from tidelog.engine.table import GENERIC, NO_KEYS, Arguments, Command, Decision, write
from tidelog.errors import CommandError
from tidelog.feeds.span import Span, span_of_prefix
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.transaction import Transaction
from tidelog.types.key import DelRange


def delrange(transaction: Transaction, arguments: Arguments) -> Decision:
    span = Span(arguments[1], arguments[2])
    if span.is_empty:
        raise CommandError(f"ERR the range from {quoted(span.start)} to {quoted(span.end)} ends before it begins")
    return _removed(transaction, span)


def delprefix(transaction: Transaction, arguments: Arguments) -> Decision:
    return _removed(transaction, span_of_prefix(arguments[1]))


def _removed(transaction: Transaction, span: Span) -> Decision:
    removal = RangeRemoval(transaction.database, span.start, span.end)
    removal.look_at_rest()
    operations = [] if removal.is_empty else [DelRange(span.start, span.end, removal)]
    return removal.count(transaction.now_ms), operations


COMMANDS: list[Command] = [
    write(
        GENERIC,
        "DELRANGE",
        3,
        delrange,
        NO_KEYS,
        "@dangerous",
        summary="delete the keys from a start to before an end in one step; an empty end means no end",
    ),
    write(
        GENERIC,
        "DELPREFIX",
        2,
        delprefix,
        NO_KEYS,
        "@dangerous",
        summary="delete all keys with a prefix in one step",
    ),
]
