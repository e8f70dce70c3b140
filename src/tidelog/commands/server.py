"""Commands about the whole server: TIME, DBSIZE, FLUSHALL, SAVE, SHUTDOWN, MEMORY, DEBUG and their like."""

from __future__ import annotations

import re
import sys
from typing import Final

from tidelog import limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.commands.help import help_reply
from tidelog.engine.session import Session
from tidelog.engine.table import NO_KEYS, SERVER, Arguments, Command, Decision, Keys, connection, read, write
from tidelog.errors import CommandError
from tidelog.journal.operation import FlushDb
from tidelog.resp.encoder import Reply, Wire
from tidelog.store.transaction import InDatabase, Transaction
from tidelog.types.value_type import ELEMENT_OVERHEAD_BYTES

_SAMPLES_DEFAULT: Final = 5
_EXPIRY_BYTES: Final = 120
"""What an expiry takes in its dict and its heap, roughly."""


def time(session: Session, _arguments: Arguments) -> Reply:
    now_us = session.engine.clock.wall_us()
    return [b"%d" % (now_us // 1_000_000), b"%d" % (now_us % 1_000_000)]


# --- the keyspace as a whole ------------------------------------------------------------------------------------


def dbsize(transaction: Transaction, _arguments: Arguments) -> Reply:
    return transaction.database.size


def _check_flush_mode(arguments: Arguments) -> None:
    """ASYNC and SYNC are both accepted; dropping the dicts is one step either way."""
    if len(arguments) > 2 or (len(arguments) == 2 and arguments[1].upper() not in (b"ASYNC", b"SYNC")):
        raise syntax_error()


def flushdb(transaction: Transaction, arguments: Arguments) -> Decision:
    _check_flush_mode(arguments)
    return "OK", [FlushDb()] if transaction.database.size else []


def flushall(transaction: Transaction, arguments: Arguments) -> Decision:
    _check_flush_mode(arguments)
    databases = [database for database in transaction.store.databases if database.size]
    return "OK", [InDatabase(database.number, FlushDb()) for database in databases]


# --- snapshots and stopping -------------------------------------------------------------------------------------


def save(session: Session, _arguments: Arguments) -> Reply:
    session.engine.snapshots.save()
    return "OK"


def bgsave(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 2 or (len(arguments) == 2 and arguments[1].upper() != b"SCHEDULE"):
        raise syntax_error()
    session.engine.snapshots.begin()
    return "Background saving started"


def lastsave(session: Session, _arguments: Arguments) -> Reply:
    return session.engine.snapshots.last_s


def shutdown(session: Session, arguments: Arguments) -> Reply:
    """Stop in order. The journal has everything: there is a snapshot only if SAVE asks for one.

    If that fails, the server stays, unless FORCE says otherwise.
    """
    options = [argument.upper() for argument in arguments[1:]]
    if not {b"SAVE", b"NOSAVE", b"NOW", b"FORCE", b"ABORT"}.issuperset(options):
        raise syntax_error()
    if b"ABORT" in options:
        if len(options) > 1:
            raise syntax_error()
        raise CommandError("ERR No shutdown in progress.")
    if {b"SAVE", b"NOSAVE"} <= set(options):
        raise syntax_error()
    if b"SAVE" in options:
        try:
            session.engine.snapshots.save_last()
        except CommandError:
            if b"FORCE" not in options:
                raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.") from None
    session.close_after_reply()
    session.engine.process.shut_down()
    return Wire()


# --- memory -----------------------------------------------------------------------------------------------------


def memory_usage(transaction: Transaction, arguments: Arguments) -> Reply:
    samples = _SAMPLES_DEFAULT
    at = 3
    while at < len(arguments):
        if arguments[at].upper() != b"SAMPLES" or at + 1 >= len(arguments):
            raise syntax_error()
        samples = integer(arguments[at + 1])
        if samples < 0:
            raise syntax_error()
        at += 2
    key = arguments[2]
    value = transaction.peek(key)
    if value is None:
        return None
    value_bytes = transaction.store.types.of(value).size_bytes(value, samples)
    size = sys.getsizeof(key) + ELEMENT_OVERHEAD_BYTES + value_bytes
    return size if transaction.expiry(key) is None else size + _EXPIRY_BYTES


def memory_purge(_session: Session, _arguments: Arguments) -> Reply:
    return "OK"


def memory_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "MEMORY",
        """
        PURGE
            Accepted: memory is given back as it becomes free.
        USAGE <key> [SAMPLES <count>]
            Return memory in bytes used by <key> and its value. Nested values are
            sampled up to <count> times (default: 5, 0 means sample all).
        """,
    )


# --- debugging --------------------------------------------------------------------------------------------------


def debug(session: Session, arguments: Arguments) -> Reply:
    if not session.is_local:
        raise CommandError("ERR DEBUG command not allowed. It works from a local connection only.")
    subcommand = arguments[1].upper()
    if subcommand == b"SLEEP" and len(arguments) == 3:
        session.engine.process.sleep(min(_leading_float(arguments[2]), limits.DEBUG_SLEEP_S_MAX))
        return "OK"
    if subcommand == b"HELP" and len(arguments) == 2:
        return help_reply("DEBUG", "SLEEP <seconds>\n    Stop the server for <seconds>. Decimals allowed.")
    shown = arguments[1].decode("utf-8", "surrogateescape")
    raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try DEBUG HELP.")


def _leading_float(argument: bytes) -> float:
    """As strtod(3) reads it: what stands at the beginning, 0 if nothing does; nothing negative."""
    found = re.match(rb"\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)", argument)
    return float(found[1]) if found else 0.0


_SAVING = "admin noscript no_async_loading"

COMMANDS: list[Command] = [
    connection(SERVER, "TIME", 1, time, "loading stale fast", summary="return the time of the server"),
    read(SERVER, "DBSIZE", 1, dbsize, NO_KEYS, "fast @keyspace", summary="return the number of keys in the database"),
    write(SERVER, "FLUSHDB", -1, flushdb, NO_KEYS, "@keyspace @dangerous", summary="delete all keys of the database"),
    write(
        SERVER, "FLUSHALL", -1, flushall, NO_KEYS, "@keyspace @dangerous", summary="delete all keys of all databases"
    ),
    connection(SERVER, "SAVE", 1, save, _SAVING + " no_multi", summary="make a snapshot while all clients wait"),
    connection(SERVER, "BGSAVE", -1, bgsave, _SAVING, summary="make a snapshot in the background"),
    connection(
        SERVER,
        "LASTSAVE",
        1,
        lastsave,
        "loading stale fast @admin @dangerous",
        summary="return the time of the last snapshot",
    ),
    connection(
        SERVER, "SHUTDOWN", -1, shutdown, "admin noscript loading stale no_multi allow_busy", summary="stop the server"
    ),
    read(SERVER, "MEMORY|USAGE", -3, memory_usage, Keys(2, 2, 1), summary="return roughly how many bytes a key takes"),
    connection(
        SERVER, "MEMORY|PURGE", 2, memory_purge, "", summary="accepted; memory is given back as it becomes free"
    ),
    connection(SERVER, "MEMORY|HELP", 2, memory_help, "loading stale", summary="list the subcommands of MEMORY"),
    connection(
        SERVER, "DEBUG", -2, debug, "admin noscript loading stale", summary="SLEEP: block the server for a while"
    ),
]
