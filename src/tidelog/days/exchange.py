"""How days talk to a server: through redis-py, in transactions, without Lua.

Three forms are all there is:

    look()     some reads as one MULTI: what they return was true at the same moment
    ask()      some reads in one round trip
    decide()   WATCH, reads, MULTI: what was decided still held when it was done, or it is decided anew

All keys of a job set share a slot, so the same holds on a Redis Cluster (`redis.cluster.RedisCluster`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import redis

from tidelog import limits
from tidelog.days.message import EventId, parse_id, shown
from tidelog.errors import ClientError, Contended, FormatError

RedisClient = Any
"""`redis.Redis` or `redis.cluster.RedisCluster`; it must not decode responses: events are bytes."""
RedisCommand = Sequence[Any]
Entry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a stream: its id and its fields."""
Result = TypeVar("Result")


def bytes_server(server: RedisClient) -> RedisClient:
    """The client, if it leaves bytes as they are."""
    if server.get_encoder().decode_responses:
        raise ClientError("day streams need a client that does not decode responses: leave out decode_responses=True")
    return server


def look(server: RedisClient, *commands: RedisCommand) -> list[Any]:
    """The replies to some reads, all of the same moment; for a key of another type, the error takes its place."""
    replies = _run(server.pipeline(transaction=True), commands)
    for reply in replies:
        if isinstance(reply, Exception) and not is_wrong_type(reply):
            raise reply
    return replies


def ask(server: RedisClient, commands: Iterable[RedisCommand]) -> list[Any]:
    """The replies to some reads; an error takes the place of its reply."""
    return _run(server.pipeline(transaction=False), commands)


def _run(pipeline: Any, commands: Iterable[RedisCommand]) -> list[Any]:
    with pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        return replies


def is_wrong_type(reply: Any) -> bool:
    """Whether a reply is the error that a key has another type than its name says."""
    return isinstance(reply, redis.ResponseError) and "WRONGTYPE" in str(reply)


def decide(
    server: RedisClient,
    what: str,
    keys: Sequence[bytes],
    decision: Callable[[Any], Result],
    *,
    attempts_max: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Take a decision and carry it out; if one of the keys changed in between, again. `Contended` if it always did.

    The decision gets a pipeline that watches the keys. It reads, calls `multi()` and adds the commands, or adds none.
    """
    for attempt in range(attempts_max or limits.DAYS_ATTEMPTS_MAX):
        with server.pipeline(transaction=True) as pipeline:
            pipeline.watch(*keys)
            result = decision(pipeline)
            try:
                if len(pipeline):
                    pipeline.execute()
                return result
            except redis.WatchError:
                # Another writer came first. Wait longer each time, so that a slow writer gets its turn.
                sleep(random.uniform(0, min(0.001 * 2 ** min(attempt, 10), limits.DAYS_ATTEMPT_PAUSE_S_MAX)))
    raise Contended(f"{what}: other clients changed the same keys during every attempt; try again later")


def text_at(pipeline: Any, key: bytes) -> bytes | None:
    """The text of a key, read by a decision; None if there is none, or if the key has another type."""
    try:
        found: bytes | None = pipeline.get(key)
        return found
    except redis.ResponseError as error:
        if not is_wrong_type(error):
            raise
        return None


def fields(pairs: Iterable[Any]) -> dict[bytes, Any]:
    """A reply of names and values, whether redis-py has made a dictionary of it or not."""
    if isinstance(pairs, dict):
        return {name if isinstance(name, bytes) else name.encode(): value for name, value in pairs.items()}
    listed = list(pairs)
    return dict(zip(listed[::2], listed[1::2], strict=True))


class StreamState(NamedTuple):
    """A fingerprint that changes with a stream: appending moves its last id, deleting shortens it."""

    length: int
    last: EventId | None
    """The highest id it ever had; None if there is no such stream."""


def stream_state(reply: Any) -> StreamState:
    """From the reply to XINFO STREAM, or the error in place of it."""
    if isinstance(reply, redis.ResponseError) and "no such key" in str(reply):
        return StreamState(0, None)
    if isinstance(reply, Exception):
        raise reply
    facts = fields(reply)
    return StreamState(int(facts[b"length"]), parse_id(facts[b"last-generated-id"]))


def state_of(server: RedisClient, key: bytes) -> StreamState:
    [reply] = ask(server, [("XINFO STREAM", key)])
    if is_wrong_type(reply):
        raise FormatError("it is not a stream", path=shown(key))
    return stream_state(reply)


def entries_of(reply: Any) -> list[Entry]:
    """The entries of the one stream in a reply to XREAD or XREADGROUP, in either version of the protocol."""
    if not reply:
        return []
    if isinstance(reply, dict):
        [[entries]] = reply.values()
    else:
        [[_, entries]] = reply
    return entries_in(entries)


def entries_in(reply: Any) -> list[Entry]:
    """The entries of a stream, each an id and its fields; one that was deleted while it was pending has none.

    Redis-py makes dictionaries of fields, except in a transaction on a cluster.
    """
    return [(entry_id, {} if values is None else fields(values)) for entry_id, values in reply]
