"""The value of a set: members in the order in which they came.

    packed     up to PACKED_ITEMS_MAX short members     | count | members |
    a table    others                                   a dict without values

    count      one byte; its two highest bits say how Redis would keep the set
    members    as `packed_items` has them

No command promises an order, but one seed must draw the same members in every process, and a Python set is in the
order of hashes, which are salted anew each time. A dict has an order; adding, asking and SINTER are as fast. A set that
has become a table stays one, as in Redis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.packed_items import (
    ITEM_BYTES_MAX,
    LENGTHS,
    PACKED_BYTES_MAX,
    PACKED_ITEMS_MAX,
    find_item,
    pass_over,
    unpack,
)
from tidelog.types.string import is_integer

_INTSET: Final = 0x00
_LISTPACK: Final = 0x40
_HASHTABLE: Final = 0x80
_COUNT: Final = 0x3F
_EMPTY: Final = b"\0"
_NAMES: Final = {_INTSET: b"intset", _LISTPACK: b"listpack", _HASHTABLE: b"hashtable"}


class _Table:
    """A set that is not packed."""

    __slots__ = ("encoding", "members")

    def __init__(self, members: dict[bytes, None], encoding: i64) -> None:
        self.members = members
        self.encoding: i64 = encoding
        """How Redis would keep it."""


@mypyc_attr(acyclic=True)
class Set:
    """Members. One slot, and none of the garbage collector: there may be millions."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data: object = _EMPTY
        """`bytes`, or a `_Table`."""

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        data = self._data
        return data[0] & _COUNT if isinstance(data, bytes) else len(_table(data).members)

    def __contains__(self, member: bytes) -> bool:
        """Hot."""
        data = self._data
        if isinstance(data, bytes):
            return find_item(data, 1, data[0] & _COUNT, member) >= 0
        return member in _table(data).members

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.members())

    def __repr__(self) -> str:
        return f"Set({list(self.members())!r})"

    def members(self) -> Collection[bytes]:
        """Not to be changed, and only good until the set changes."""
        data = self._data
        return unpack(data, 1, data[0] & _COUNT) if isinstance(data, bytes) else _table(data).members.keys()

    @property
    def encoding(self) -> bytes:
        """How Redis would keep it."""
        data = self._data
        return _NAMES[data[0] & ~_COUNT if isinstance(data, bytes) else int(_table(data).encoding)]

    @property
    def packed(self) -> bytes | None:
        """What it is packed as; None: it is a table."""
        data = self._data
        return data if isinstance(data, bytes) else None

    def copy(self) -> Set:
        """One that changes by itself."""
        other, data = Set(), self._data
        if isinstance(data, bytes):
            other._data = data
        else:
            table = _table(data)
            other._data = _Table(dict(table.members), table.encoding)
        return other

    # --- changing -----------------------------------------------------------------------------------------------

    def add(self, member: bytes, bounds: EncodingBounds) -> None:
        """Add a member that may be there already. Hot."""
        size: i64 = len(member)
        data = self._data
        if not isinstance(data, bytes):
            table = _table(data)
            members = table.members
            if member not in members:
                table.encoding = _encoding_with(table.encoding, len(members), member, bounds)
                members[member] = None
            return
        count: i64 = data[0] & _COUNT
        if find_item(data, 1, count, member) >= 0:
            return
        encoding = _encoding_with(data[0] & ~_COUNT, count, member, bounds)
        if count < PACKED_ITEMS_MAX and size <= ITEM_BYTES_MAX and len(data) + size < PACKED_BYTES_MAX:
            self._data = b"%b%b%b%b" % (LENGTHS[encoding | (count + 1)], data[1:], LENGTHS[size], member)
            return
        grown: dict[bytes, None] = dict.fromkeys(unpack(data, 1, count))
        grown[member] = None
        self._data = _Table(grown, encoding)

    def update(self, members: Sequence[bytes], bounds: EncodingBounds) -> None:
        """Add members."""
        data = self._data
        if isinstance(data, bytes):
            if len(members) <= PACKED_ITEMS_MAX:
                for member in members:
                    self.add(member, bounds)
                return
            self._data = _Table(dict.fromkeys(unpack(data, 1, data[0] & _COUNT)), data[0] & ~_COUNT)
        table = _table(self._data)
        there = table.members
        for member in members:
            if table.encoding == _HASHTABLE:
                there.update(dict.fromkeys(members))
                return
            if member not in there:
                table.encoding = _encoding_with(table.encoding, len(there), member, bounds)
                there[member] = None

    def discard(self, members: Sequence[bytes]) -> None:
        """Remove members; fine if they are not there."""
        for member in members:
            data = self._data
            if not isinstance(data, bytes):
                _table(data).members.pop(member, None)
                continue
            index = find_item(data, 1, data[0] & _COUNT, member)
            if index >= 0:
                at = pass_over(data, 1, index)
                end = at + 1 + len(member)
                self._data = b"%b%b%b" % (LENGTHS[data[0] - 1], data[1:at], data[end:])


def set_of(members: Sequence[bytes], bounds: EncodingBounds | None = None) -> Set:
    """A set of members."""
    value = Set()
    value.update(members, bounds if bounds is not None else EncodingBounds())
    return value


def _table(data: object) -> _Table:
    assert isinstance(data, _Table)
    return data


def _encoding_with(encoding: i64, count: i64, member: bytes, bounds: EncodingBounds) -> i64:
    """How Redis keeps a set of so many members after one more comes. Hot."""
    if encoding == _HASHTABLE:
        return encoding
    if encoding == _INTSET and is_integer(member):
        return _INTSET if count < bounds.set_intset_entries else _HASHTABLE
    is_small = count < bounds.set_entries and len(member) <= bounds.set_value
    return _LISTPACK if is_small else _HASHTABLE
