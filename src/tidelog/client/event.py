"""What a feed delivers.

    Value         a key, or a field of it, has a new value or is gone
    DeleteRange   every key of a span is gone
    Expiry        with `expiry`: when a key expires
    Steady        what was behind is delivered; from here on changes come as they happen
    Checkpoint    nothing at or below its ts will follow for its span
    Commit        with `txn`: everything of a transaction is delivered

`ts` is the time of the transaction in µs: unique, and increasing. Events of the same transaction have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidelog.errors import CommandError


@dataclass(frozen=True, slots=True)
class Value:
    """A key, or a field of it, has a new value."""

    kind: ClassVar = "value"
    ts: int
    key: bytes
    type: str
    """`string`, `hash`, `set`, `zset`, `list`, `stream`; `none` if the whole key is gone."""
    field: bytes | None
    """The field of a hash, the member of a set or sorted set; of a list the operation, or None for the whole of it; of
    a stream `evict`, `del`, `setid`, `copy`, `config`, `group`, or None."""
    value: Any
    """Bytes; of a list a list with what the operation did; of a stream lists of entries `[offset, id, tag, entry]`.
    None: the key, or that field, is gone."""


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Every key of a span is gone.

    The client makes one of its own, for each span, when a connection was lost before all initial values had come:
    they begin anew, and keys that were deleted meanwhile are not among them.
    """

    kind: ClassVar = "deleterange"
    ts: int
    start: bytes
    end: bytes
    """The first key that is not in it; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a key expires. A new value of a string, and the end of a key, take it back without a word."""

    kind: ClassVar = "expire"
    ts: int
    key: bytes
    expire_ms: int | None
    """Milliseconds since 1970; None: it does not expire any more."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The feed has caught up. It comes again each time the feed was resumed."""

    kind: ClassVar = "steady"
    ts: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Nothing at or below `ts` will follow for a span. A feed that is given one as `since` goes on from there."""

    kind: ClassVar = "checkpoint"
    ts: int
    start: bytes
    end: bytes
    epoch: int
    """The server's; with `seen` it tells after a crash whether what was delivered is still history."""
    seen: int
    """The newest transaction at that time."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything of a transaction is delivered."""

    kind: ClassVar = "commit"
    ts: int


Event = Value | DeleteRange | Expiry | Steady | Checkpoint | Commit

_KINDS: dict[bytes, type[DeleteRange | Expiry | Steady | Checkpoint | Commit]] = {
    each.kind.encode(): each for each in (DeleteRange, Expiry, Steady, Checkpoint, Commit)
}


def event_of(reply: Sequence[Any]) -> Event:
    """An event as it came from the server."""
    if reply[0] == b"value":
        _, ts, key, type_name, field, value = reply
        return Value(ts, key, type_name.decode(), field, value)
    kind = _KINDS.get(reply[0])
    if kind is None:
        raise CommandError(f"ERR the server sent {reply[0]!r}, which is not an event")
    return kind(*reply[1:])
