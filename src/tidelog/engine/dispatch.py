"""Running one command inside a transaction: find its row, let it decide, apply what it decided."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from traceback import format_tb
from typing import Any

from tidelog import limits
from tidelog.engine.table import Command, CommandTable, HandlerKind
from tidelog.engine.would_block import TakesSteps, WouldBlock
from tidelog.errors import ApplyFailed, CommandError, EnvironmentFault, InternalError, LimitExceeded
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.store.transaction import Transaction
from tidelog.streams.cold import OPENED, NodesAway

_SHOWN_BYTES_MAX = 128
_LOG = logging.getLogger("tidelog")


def find_command(table: CommandTable, arguments: Sequence[bytes]) -> Command:
    """The row for these arguments; `CommandError` if there is none or their number is wrong."""
    row = find_row(table, arguments)
    if not row.takes(len(arguments)):
        raise CommandError(f"ERR wrong number of arguments for '{row.name.lower()}' command")
    return row


def find_row(table: CommandTable, arguments: Sequence[bytes]) -> Command:
    """The row for these arguments, be their number right or not."""
    return table.find(arguments[0]) or _find_subcommand(table, arguments)


def _find_subcommand(table: CommandTable, arguments: Sequence[bytes]) -> Command:
    rows = table.subcommands(arguments[0])
    if rows is None:
        raise CommandError(_unknown(arguments))
    container = arguments[0].decode().upper()
    if len(arguments) < 2:
        bare = table.bare(arguments[0])
        if bare is not None:
            return bare
        raise CommandError(f"ERR wrong number of arguments for '{container.lower()}' command")
    row = rows.get(arguments[1].upper())
    if row is None:
        shown = arguments[1][:_SHOWN_BYTES_MAX].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR unknown subcommand '{shown}'. Try {container} HELP.")
    return row


def run_command(row: Command, transaction: Transaction, arguments: Sequence[bytes]) -> Reply:
    """Let a command of the keyspace decide, and apply what it decided unless it is too much; a refusal is its reply.

    `WouldBlock`: nothing to answer yet, if the transaction may wait. `TakesSteps`: it has much to look at before.
    `NodesAway`: it needs cold nodes, if the transaction fetches them.
    """
    operations: Sequence[Any] = ()
    OPENED.fetches = transaction.fetches
    try:
        if row.kind is HandlerKind.READ:
            reply = row.handler(transaction, arguments)
        else:
            reply, operations = row.handler(transaction, arguments)
    except CommandError as error:
        reply = ErrorReply(str(error))
    except WouldBlock as wait:
        OPENED.fetches = False
        if len(wait.keys) > limits.WAITED_KEYS_MAX:
            return ErrorReply(f"ERR a client can wait for at most {limits.WAITED_KEYS_MAX} keys")
        if not transaction.may_wait:
            return _apply(row, transaction, wait.operations, wait.at_once)
        _apply(row, transaction, wait.operations)
        raise
    except TakesSteps:
        raise
    except NodesAway as away:
        OPENED.fetches = False
        problem = _apply(row, transaction, away.operations) if away.operations else None
        if problem is not None:
            return problem
        raise
    except Exception as error:
        reply = internal_error(row, error)
    finally:
        OPENED.fetches = False
    return _apply(row, transaction, operations, reply)


def _apply(row: Command, transaction: Transaction, operations: Sequence[Any], reply: Reply = None) -> Reply:
    try:
        transaction.run(operations)
    except LimitExceeded as error:
        return ErrorReply(f"ERR {error}")
    except InternalError as error:
        return internal_error(row, error.__cause__ if isinstance(error.__cause__, Exception) else error)
    except EnvironmentFault as error:
        return ErrorReply(f"ERR a part of the stream cannot be read: {error}")
    except Exception as error:
        raise ApplyFailed(f"an operation of {row.name} could not be applied: {explain(error)}") from error
    return reply


def internal_error(row: Command, error: Exception) -> ErrorReply:
    """The reply to a command that met a bug. Which one is for the log, and what the client sent is for nobody."""
    _LOG.error("%s failed and changed nothing: %s", row.name, explain(error))
    return ErrorReply("ERR internal error")


def explain(error: Exception) -> str:
    """The place and the class of an error, without its message, which may quote what a client sent."""
    return f"{type(error).__name__}\n{''.join(format_tb(error.__traceback__))}".rstrip()


def _unknown(arguments: Sequence[bytes]) -> str:
    name = arguments[0][:_SHOWN_BYTES_MAX].decode("utf-8", "surrogateescape")
    shown = ""
    for argument in arguments[1:]:
        if len(shown) >= _SHOWN_BYTES_MAX:
            break
        text = argument[: _SHOWN_BYTES_MAX - len(shown)].decode("utf-8", "surrogateescape")
        shown += f"'{text}' "
    return f"ERR unknown command '{name}', with args beginning with: {shown}"
