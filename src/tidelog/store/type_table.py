"""The table of types: every type of value that a key may have, one row each.

A new type is a module with its class, its operations and its row (`types/value_type.py` says what is in one), a line in
`_TYPES`, and a file of commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidelog.journal.operation import START, VAL, OperationKind, OperationTable, Val, core_table
from tidelog.types import hold as hold_operations
from tidelog.types import key as key_operations
from tidelog.types import library as library_operations
from tidelog.types.change import Change
from tidelog.types.effect import Effect, StoredValue
from tidelog.types.hash import HASH_TYPE
from tidelog.types.key import Expire
from tidelog.types.list import LIST_TYPE
from tidelog.types.set import SET_TYPE
from tidelog.types.string import STRING_TYPE, changes_of_payload
from tidelog.types.value_type import ValueType
from tidelog.types.zset import ZSET_TYPE

_TYPES: Final = (STRING_TYPE, HASH_TYPE, SET_TYPE, ZSET_TYPE, LIST_TYPE)
"""Every type but streams ..."""
_STREAM_OPCODES: Final = range(0x50, 0x70)


def _stream_type() -> ValueType:
    """... which need pyarrow: it takes long to import, and most journals that are looked at have no stream."""
    from tidelog.streams.stream_type import STREAM_TYPE

    return STREAM_TYPE


def value_types() -> list[ValueType]:
    """Every type there is."""
    return [*_TYPES, _stream_type()]


def _kinds(types: Iterable[ValueType]) -> list[OperationKind]:
    return [effect.kind for value_type in types for effect in value_type.effects]


def _effects_of_no_type() -> list[Effect]:
    return [*key_operations.effects(), *library_operations.effects(), *hold_operations.effects()]


def _kinds_of_no_type() -> list[OperationKind]:
    return [core_table().kind(START), *(effect.kind for effect in _effects_of_no_type())]


def operation_table() -> OperationTable:
    """The journal's table with every operation there is; those of streams are imported when one is asked for."""
    kinds = [*_kinds_of_no_type(), *_kinds(_TYPES)]
    return OperationTable(kinds, more=lambda: _kinds([_stream_type()]), of_more=_STREAM_OPCODES)


class TypeTable:
    """The types that a store has: by the class of a value, and their operations by class and by opcode."""

    def __init__(self, types: Iterable[ValueType]) -> None:
        rows = list(types)
        effects = [*_effects_of_no_type(), *(effect for row in rows for effect in row.effects)]
        self._by_class: dict[type[Any], ValueType] = {row.value_class: row for row in rows}
        self.effect_of: dict[type[Any], Effect] = {effect.operation: effect for effect in effects}
        """Class of operations -> what they do."""
        self.effect_by_opcode: dict[int, Effect] = {effect.kind.opcode: effect for effect in effects}
        self.operations = OperationTable([*_kinds_of_no_type(), *_kinds(rows)])
        """The journal's table of the same operations. It refuses an opcode or a name that is taken."""

    def of(self, value: StoredValue) -> ValueType:
        """The type of a value. Hot while a snapshot is made."""
        found = self._by_class.get(type(value))
        if found is None:
            raise TypeError(f"no type has values of class {type(value).__name__}")
        return found

    def operations_of(self, key: bytes, value: StoredValue, expire_ms: int | None) -> list[Any]:
        """Operations that make a value, with its expiry, under a key that is not there."""
        if type(value) is bytes:
            return [Val([(key, value)], expire_ms)]  # the record of a string carries its expiry
        operations = self.of(value).operations(key, value)
        if expire_ms is not None:
            operations.append(Expire(key, expire_ms))
        return operations

    def copies_of(
        self, key: bytes, value: StoredValue, expire_ms: int | None, source: bytes, source_database: int
    ) -> list[Any]:
        """The same, from the value of another key of the same shard, which stays until they are applied."""
        copies = None if type(value) is bytes else self.of(value).copies
        if copies is None:
            return self.operations_of(key, value, expire_ms)
        made = copies(key, value, source, source_database)
        return made if expire_ms is None else [*made, Expire(key, expire_ms)]

    def kept_of(self, key: bytes, value: StoredValue, expire_ms: int | None) -> list[Any]:
        """The same for a snapshot."""
        kept = None if type(value) is bytes else self.of(value).kept
        if kept is None:
            return self.operations_of(key, value, expire_ms)
        operations = kept(key, value)
        if expire_ms is not None:
            operations.append(Expire(key, expire_ms))
        return operations

    def pieces_of(self, key: bytes, value: StoredValue, expire_ms: int | None) -> Iterator[Any]:
        """The same for a snapshot of a large collection, one by one; the collection may change meanwhile."""
        pieces = self.of(value).pieces(key, value)  # here, not in the generator: it copies the value now
        return pieces if expire_ms is None else _followed_by(pieces, Expire(key, expire_ms))

    def changes_of(self, opcode: int, payload: bytes) -> list[Change]:
        """What feeds tell about a record, in order. Hot."""
        if opcode == VAL:  # most records
            return changes_of_payload(payload)
        operation = self.operations.decode(opcode, payload, None)
        return self.effect_of[type(operation)].changes(operation)


def _followed_by(operations: Iterator[Any], last: Expire) -> Iterator[Any]:
    yield from operations
    yield last
