"""A type of value, as one row: everything that other layers need to know about it.

COPY and RENAME, snapshots, recovery, feeds, TYPE, SCAN, OBJECT ENCODING and MEMORY USAGE ask the row of a value's type
and know nothing of the type itself. Each type's module ends with its row, and `store/type_table.py` lists the rows: a
new type is a module of this package, a line in that list, and a file of commands.

The class of a value tells its type: `type(value)` is looked up in a dict, so no class may stand for two types. It must
have `__len__`, the number of elements; effects remove a value without elements, except a stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tidelog import limits
from tidelog.types.change import Change
from tidelog.types.effect import Effect, StoredValue
from tidelog.types.encoding_bounds import EncodingBounds

ELEMENT_OVERHEAD_BYTES: Final = 16 + 8
"""What a dict keeps for a key, roughly: its place in the index and in the table, when two thirds of both are used."""

_LISTPACK_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ValueType:
    """One type of value."""

    name: bytes
    """What TYPE, SCAN's TYPE option and the events of feeds call it."""
    value_class: type[Any]
    """The Python class of its values."""
    effects: Sequence[Effect]
    """Its operations: their records in the journal, what they do to a keyspace, and what feeds tell about them."""
    operations: Callable[[bytes, StoredValue], list[Any]]
    """The operations that make a value under a key that is not there: for COPY, RENAME, MOVE and snapshots. They
    should share with the value what cannot change: a stream's sealed nodes go as they are. A type with large values
    also has `copies`."""
    pieces: Callable[[bytes, StoredValue], Iterator[Any]]
    """The same operations one by one, for a snapshot of a large value. The value may change meanwhile, so it is copied
    before the first is asked for."""
    copy: Callable[[StoredValue], StoredValue]
    """An independent copy, one level deep, for a snapshot that still needs the value as it was."""
    initial: Callable[[bytes, StoredValue], Iterator[Change]]
    """What a feed with INITIAL is told about a value. The value may change meanwhile, as with `pieces`."""
    encoding: Callable[[StoredValue, EncodingBounds], bytes]
    """How Redis would store the value at these settings: what OBJECT ENCODING says."""
    size_bytes: Callable[[StoredValue, int], int]
    """How much memory a value takes, from that many of its elements (0: from all), for MEMORY USAGE."""
    kept: Callable[[bytes, StoredValue], list[Any]] | None = None
    """What a snapshot has instead of `operations`, and `pieces` gives one by one; None: the same."""
    initial_groups: Callable[[bytes, StoredValue], Iterator[Change]] | None = None
    """What a feed with INITIAL and GROUPS is told besides `initial`; None: the type has no groups."""
    copies: Callable[[bytes, StoredValue, bytes, int], list[Any]] | None = None
    """As `operations`, for a value that a key of the same shard has: they name that key and its database (the last two
    arguments) in place of what it has, and are applied while it is there. None: `operations` do."""


def in_pieces(key: bytes, elements: Iterable[Any], make: Callable[[bytes, list[Any]], Iterable[Any]]) -> Iterator[Any]:
    """Operations that add elements to a collection, a record or so at a time."""
    left = iter(elements)
    while run := list(islice(left, limits.RECORD_MEMBERS_MAX)):
        yield from make(key, run)


def sampled_bytes(value: StoredValue, elements: Iterable[tuple[object, ...]], samples: int) -> int:
    """The size of a collection, from the first `samples` of its elements (0: from all)."""
    looked_at = elements_bytes = 0
    for element in elements:
        if samples and looked_at == samples:
            break
        elements_bytes += sum(map(sys.getsizeof, element))
        looked_at += 1
    per_element = ELEMENT_OVERHEAD_BYTES + (elements_bytes // looked_at if looked_at else 0)
    return sys.getsizeof(value) + len(value) * per_element


def fits_listpack(items: Iterable[bytes]) -> bool:
    """Whether all items are short enough for the compact form in which Redis stores small collections."""
    return all(len(item) <= _LISTPACK_BYTES_MAX for item in items)
