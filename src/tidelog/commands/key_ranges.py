"""Ranges of keys, removed in one step: DELRANGE and DELPREFIX.

They cost one record and one event of a feed, whatever the number of keys. Everybody sees all of the keys, or none. In a
large database the keys are looked for step by step while others write (`engine/long_commands.py`); in MULTI at once.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.commands.arguments import quoted
from tidelog.engine.table import GENERIC, NO_KEYS, Arguments, Command, Decision, write
from tidelog.engine.would_block import TakesSteps
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
    database = transaction.database
    removal = transaction.removal or RangeRemoval(database, span.start, span.end)
    if transaction.takes_steps and database.size > limits.RANGE_KEYS_AT_ONCE:
        raise TakesSteps(removal)
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
