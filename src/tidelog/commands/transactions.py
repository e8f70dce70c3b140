"""MULTI, EXEC, DISCARD, WATCH, UNWATCH: several commands as one transaction.

Commands are checked when they are queued; one that is refused then makes EXEC refuse all. As in Redis there is no
roll-back: a command that fails while EXEC runs contributes nothing, and the others stay.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.commands.client import Client, Queued
from tidelog.commands.table import ALL_KEYS, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY, Reply


def multi(client: Client, _arguments: Arguments) -> Reply:
    if client.queued is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    client.queued = []
    client.queued_bytes = 0
    client.has_queue_error = False
    client.state_changed()
    return "OK"


def queue(client: Client, row: Command, arguments: Arguments) -> bool:
    """Keep a command for EXEC; false if that would be more than a connection may hold."""
    assert client.queued is not None
    client.queued_bytes += sum(map(len, arguments))
    if client.queued_bytes > limits.QUEUED_BYTES_MAX:
        return False
    client.queued.append((row, arguments))
    return True


def exec_(client: Client, _arguments: Arguments) -> Reply:
    if client.queued is None:
        raise CommandError("ERR EXEC without MULTI")
    queued, has_error = client.queued, client.has_queue_error
    is_dirty = client.is_dirty or _has_expired(client)
    _end(client)
    if has_error:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if is_dirty:
        return NULL_ARRAY
    _check_may_run(client, queued)
    return client.server.run_transaction(client, queued)


def _has_expired(client: Client) -> bool:
    """A watched key that has expired has changed, also if nobody has removed it yet."""
    if not client.watched:
        return False
    store, now_ms = client.server.store, client.server.clock.wall_us() // 1000
    expiries = (store.database(database).expiries.get(key) for database, key in client.watched)
    return any(when is not None and when <= now_ms for when in expiries)


def _check_may_run(client: Client, queued: list[Queued]) -> None:
    """What has come up since they were queued, such as full memory, refuses them all."""
    for row, arguments in queued:
        refusal = client.server.refusal_of(row, arguments)
        if refusal is not None:
            raise CommandError(f"EXECABORT Transaction discarded because of: {refusal}")


def discard_for(client: Client, error: str) -> str:
    """EXEC cannot run for this reason: forget the commands; what EXEC answers."""
    if client.queued is not None:
        _end(client)
    return f"EXECABORT Transaction discarded because of: {error.removeprefix('ERR ')}"


def discard(client: Client, _arguments: Arguments) -> Reply:
    if client.queued is None:
        raise CommandError("ERR DISCARD without MULTI")
    _end(client)
    return "OK"


def watch(client: Client, arguments: Arguments) -> Reply:
    if client.queued is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    store = client.server.store
    # A key that has expired already is gone from the beginning: removing it later would count as a change.
    transaction = store.begin(client.database)
    for key in arguments[1:]:
        transaction.find(key)
    store.commit(transaction)
    for key in arguments[1:]:
        store.watch(client, client.database, key)
    client.state_changed()
    return "OK"


def unwatch(client: Client, _arguments: Arguments) -> Reply:
    client.server.store.unwatch(client)
    client.state_changed()
    return "OK"


def _end(client: Client) -> None:
    client.queued = None
    client.queued_bytes = 0
    client.server.store.unwatch(client)
    client.state_changed()


_FLAGS = "noscript loading stale fast allow_busy"

COMMANDS: list[Command] = [
    connection("MULTI", 1, multi, _FLAGS, summary="begin a transaction"),
    connection("EXEC", 1, exec_, "noscript loading stale skip_slowlog", summary="run the commands of a transaction"),
    connection("DISCARD", 1, discard, _FLAGS, summary="forget the commands of a transaction"),
    connection("WATCH", -2, watch, _FLAGS, summary="let EXEC do nothing if a key changes", keys=ALL_KEYS),
    connection("UNWATCH", 1, unwatch, _FLAGS, summary="forget what is watched"),
]
