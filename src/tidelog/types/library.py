"""Operations on libraries of functions (FUNCTION LOAD). They name no key, and their records are in the first shard.

    0x70 libload    | name, code |    a library, in the place of one of the same name
    0x71 libdel     | name ... |      libraries are gone

A library belongs to no database: FLUSHALL leaves it where it is. Feeds do not tell of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.errors import FormatError
from tidelog.journal.operation import OperationKind, decode_items, encode_items
from tidelog.types.effect import Effect, Keyspace, no_changes

LIBRARY_OPCODES: Final = range(0x70, 0x72)


class LibLoad(NamedTuple):
    """A library as its author sent it."""

    name: bytes
    code: bytes


class LibDel(NamedTuple):
    """Libraries are gone."""

    names: Sequence[bytes]


def _decode_load(payload: bytes, _expire_ms: int | None) -> LibLoad:
    items = decode_items(payload)
    if len(items) != 2:
        raise FormatError(f"libload has {len(items)} items")
    return LibLoad(items[0], items[1])


def _apply_load(keyspace: Keyspace, op: LibLoad) -> None:
    keyspace.put_library(op.name, op.code)


def _apply_del(keyspace: Keyspace, op: LibDel) -> None:
    for name in op.names:
        keyspace.remove_library(name)


def effects() -> list[Effect]:
    """Every operation of this module."""
    load = OperationKind(0x70, "libload", encode_items, _decode_load, lambda _: ())
    delete = OperationKind(
        0x71,
        "libdel",
        lambda op: encode_items(op.names),
        lambda payload, _: LibDel(decode_items(payload)),
        lambda _: (),
    )
    return [Effect(LibLoad, load, _apply_load, no_changes), Effect(LibDel, delete, _apply_del, no_changes)]
