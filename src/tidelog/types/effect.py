"""An operation and its effects: on a keyspace, in the journal, and on feeds.

`apply` validates nothing and cannot fail: the command has decided everything before. It never reads a clock. If it
raises nevertheless, state and journal differ, and the process stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.ids import Ts
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.operation import OperationKind, decode_items, encode_items, first_item, item_parts
from tidelog.journal.retention import Holder
from tidelog.types.change import Change
from tidelog.types.encoding_bounds import EncodingBounds

StoredValue = Any
"""A value of the keyspace. Its class tells its type: see `ValueType`."""


class Keyspace(Protocol):
    """One database, as effects see it."""

    bounds: EncodingBounds
    """What a change does to what OBJECT ENCODING says."""

    node_files: NodeFiles | None
    """Where cold nodes of streams lie. It belongs to no database; None: nowhere."""

    def cooling_line(self, key: bytes) -> Any:
        """Where nodes of a stream get in line to become cold (`streams/cooling_line`); None: they do not."""

    def beside(self, number: int) -> Keyspace:
        """Another database, or this one, by its number."""

    def find(self, key: bytes) -> StoredValue | None:
        """The value, expired or not; not to be changed."""

    def change(self, key: bytes) -> StoredValue | None:
        """The value, for changing it in place: those that watch the key or still need it as it was are told."""

    def put(self, key: bytes, value: StoredValue, expire_ms: int | None = None) -> None:
        """A whole new value; the one before and its expiry are gone."""

    def remove(self, key: bytes) -> None:
        """The key is gone; fine if it was not there."""

    def set_expiry(self, key: bytes, expire_ms: int | None) -> None:
        """When the key expires (absolute ms); None: never. Fine if it is not there."""

    def wake_at(self, key: bytes, when_ms: int) -> None:
        """Something in the value falls due then by itself (absolute ms), if nothing happens before."""

    def note_rule(self, key: bytes, *, has_rule: bool) -> None:
        """The stream of a key keeps only some of its entries by itself from now on, or does not any more."""

    def clear(self) -> None:
        """Every key is gone."""

    def put_library(self, name: bytes, code: bytes) -> None:
        """A library of functions, in the place of one of that name; it belongs to no database."""

    def remove_library(self, name: bytes) -> None:
        """A library of functions is gone; fine if it was not there."""

    def put_hold(self, holder: Holder, data_ts: Ts) -> None:
        """A named holder, as it is now; it belongs to no database."""

    def remove_hold(self, name: str, data_ts: Ts) -> None:
        """A named holder is gone; fine if it was not there."""

    def remove_range(self, removal: Any) -> None:
        """The keys of a range are gone: see `store/range_removal.py`."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One kind of operation: its row in the journal's table, what it does, and what feeds tell about it."""

    operation: type[Any]
    """The class of its operations."""
    kind: OperationKind
    apply: Callable[[Keyspace, Any], None]
    changes: Callable[[Any], list[Change]]
    """What feeds tell about an operation, in order. A collection that has lost its last member is gone: nothing more
    is said about it."""
    carries_expiry: bool = False
    """Its operations have an `expire_ms`, which goes to the header of the record."""


def no_changes(_op: Any) -> list[Change]:
    """For operations that feeds do not tell about."""
    return []


def split_long(key: bytes, items: Sequence[bytes], step: int = 1) -> list[Sequence[bytes]]:
    """Cut the items of an operation on one key into runs that fit a record; `step` items belong together."""
    if len(items) <= limits.RECORD_MEMBERS_MAX * step and sum(map(len, items)) + len(key) <= limits.RECORD_SPLIT_BYTES:
        return [items]
    runs: list[Sequence[bytes]] = []
    start = size = 0
    for at in range(0, len(items), step):
        grown = size + sum(map(len, items[at : at + step]))
        if at > start and (grown > limits.RECORD_SPLIT_BYTES or at - start >= limits.RECORD_MEMBERS_MAX * step):
            runs.append(items[start:at])
            grown -= size
            start = at
        size = grown
    runs.append(items[start:])
    return runs


def encode_keyed(key: bytes, items: Sequence[bytes]) -> bytes:
    """The payload of an operation on one key: the key, then its items."""
    return encode_items([key, *items])


def decode_keyed(payload: bytes, step: int = 1) -> tuple[bytes, list[bytes]]:
    """What `encode_keyed` was given."""
    items = decode_items(payload)
    if not items or (len(items) - 1) % step:
        raise FormatError(f"an operation on one key has {len(items)} items")
    return items[0], items[1:]


def keyed_keys(payload: bytes) -> list[bytes]:
    """The one key that such a payload names."""
    key = first_item(payload)
    if key is None:
        raise FormatError("an operation on one key has 0 items")
    return [key]


def keyed_effect(
    opcode: int,
    name: str,
    operation: type[Any],
    apply: Callable[[Keyspace, Any], None],
    changes: Callable[[Any], list[Change]],
    step: int = 1,
) -> Effect:
    """An operation that is a key and items, nothing else; `step` items belong together."""
    kind = OperationKind(
        opcode,
        name,
        lambda op: encode_keyed(op[0], op[1]),
        lambda payload, _: operation(*decode_keyed(payload, step)),
        keyed_keys,
        lambda op: op[1][-1] if op[1] else b"",
        lambda op: item_parts([op[0], *op[1]]),
    )
    return Effect(operation, kind, apply, changes)
