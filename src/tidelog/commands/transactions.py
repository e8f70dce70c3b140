"""MULTI, EXEC, DISCARD, WATCH, UNWATCH: several commands as one transaction.

Commands are checked when they are queued; one that is refused then makes EXEC refuse all. As in Redis there is no
roll-back: a command that fails while EXEC runs contributes nothing, and the others stay.
"""

from __future__ import annotations

from tidelog.engine.queued import run_transaction
from tidelog.engine.session import Session
from tidelog.engine.table import ALL_KEYS, TRANSACTIONS, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY, Reply


def multi(session: Session, _arguments: Arguments) -> Reply:
    if session.queued is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.begin_multi()
    return "OK"


def exec_(session: Session, _arguments: Arguments) -> Reply:
    if session.queued is None:
        raise CommandError("ERR EXEC without MULTI")
    queued, has_error = session.queued, session.has_queue_error
    is_dirty = session.is_dirty or _has_expired(session)
    session.end_multi()
    if has_error:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if is_dirty:
        return NULL_ARRAY
    return run_transaction(session.engine, session, queued)


def _has_expired(session: Session) -> bool:
    """A watched key that has expired has changed, also if nobody has removed it yet."""
    if not session.watched:
        return False
    store, now_ms = session.engine.store, session.engine.clock.wall_us() // 1000
    expiries = (store.database(database).expiries.get(key) for database, key in session.watched)
    return any(when is not None and when <= now_ms for when in expiries)


def discard(session: Session, _arguments: Arguments) -> Reply:
    if session.queued is None:
        raise CommandError("ERR DISCARD without MULTI")
    session.end_multi()
    return "OK"


def watch(session: Session, arguments: Arguments) -> Reply:
    if session.queued is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    store = session.engine.store
    # A key that has expired already is gone from the beginning: removing it later would count as a change.
    transaction = store.begin(session.database)
    for key in arguments[1:]:
        transaction.peek(key)
    store.commit(transaction)
    session.watch(arguments[1:])
    return "OK"


def unwatch(session: Session, _arguments: Arguments) -> Reply:
    session.unwatch()
    return "OK"


_FLAGS = "noscript loading stale fast allow_busy"

COMMANDS: list[Command] = [
    connection(TRANSACTIONS, "MULTI", 1, multi, _FLAGS, summary="begin a transaction"),
    connection(
        TRANSACTIONS,
        "EXEC",
        1,
        exec_,
        "noscript loading stale skip_slowlog",
        summary="run the commands of a transaction",
    ),
    connection(TRANSACTIONS, "DISCARD", 1, discard, _FLAGS, summary="drop the commands of a transaction"),
    connection(
        TRANSACTIONS,
        "WATCH",
        -2,
        watch,
        _FLAGS,
        summary="make the next EXEC do nothing if a key changes before it",
        keys=ALL_KEYS,
    ),
    connection(TRANSACTIONS, "UNWATCH", 1, unwatch, _FLAGS, summary="stop watching all keys"),
]
