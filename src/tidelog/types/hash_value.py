"""The value of a hash: fields with their values, in the order in which the fields came.

    packed     up to PACKED_ITEMS_MAX short fields     | count | shape | values |    or, without a shape,
                                                       | count |   0   | names | values |
    a table    others                                  a dict

    count      one byte; its highest bit says that Redis would keep the hash in a hash table
    shape      two bytes: which names the fields have (`shapes`)
    names, values     as `packed_items` has them

A hash that has become a table stays one, as in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.packed_items import (
    ITEM_BYTES_MAX,
    LENGTHS,
    PACKED_BYTES_MAX,
    PACKED_ITEMS_MAX,
    are_short,
    find_item,
    pack,
    pass_over,
    unpack,
)
from tidelog.types.shapes import NO_FIELDS, SHAPES, Shape, shape_of

_HEAD_BYTES: Final = 3
_LARGE: Final = 0x80
_COUNT: Final = 0x7F
_NO_SHAPE: Final = b"\0\0"
_EMPTY: Final = b"\0" + NO_FIELDS.number_bytes


class _Table:
    """A hash that is not packed."""

    __slots__ = ("fields", "is_large")

    def __init__(self, fields: dict[bytes, bytes], is_large: bool) -> None:
        self.fields = fields
        self.is_large = is_large
        """Redis would keep it in a hash table."""


@mypyc_attr(acyclic=True)
class Hash:
    """Fields with values. One slot, and none of the garbage collector: there may be millions."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data: object = _EMPTY
        """`bytes`, or a `_Table`."""

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        data = self._data
        return data[0] & _COUNT if isinstance(data, bytes) else len(_table(data))

    def __contains__(self, field: bytes) -> bool:
        data = self._data
        return _find(data, field) >= 0 if isinstance(data, bytes) else field in _table(data)

    def __iter__(self) -> Iterator[bytes]:
        """Fields."""
        return iter(self.names())

    def __repr__(self) -> str:
        return f"Hash({self.fields()!r})"

    def get(self, field: bytes) -> bytes | None:
        """Hot."""
        data = self._data
        if not isinstance(data, bytes):
            return _table(data).get(field)
        at = _find(data, field)
        return None if at < 0 else data[at + 1 : at + 1 + data[at]]

    def names(self) -> list[bytes]:
        data = self._data
        return _names(data) if isinstance(data, bytes) else list(_table(data))

    def values(self) -> list[bytes]:
        data = self._data
        if isinstance(data, bytes):
            return unpack(data, _values_at(data), data[0] & _COUNT)
        return list(_table(data).values())

    def fields(self) -> dict[bytes, bytes]:
        """Fields with their values; not to be changed."""
        data = self._data
        if not isinstance(data, bytes):
            return _table(data)
        at = _values_at(data)
        found: dict[bytes, bytes] = {}
        for name in _names(data):
            end: i64 = at + 1 + data[at]
            found[name] = data[at + 1 : end]
            at = end
        return found

    @property
    def is_large(self) -> bool:
        """Redis would keep it in a hash table, not in a listpack."""
        data = self._data
        if isinstance(data, bytes):
            return data[0] >= _LARGE
        assert isinstance(data, _Table)
        return data.is_large

    @property
    def packed(self) -> bytes | None:
        """What it is packed as; None: it is a table."""
        data = self._data
        return data if isinstance(data, bytes) else None

    def copy(self) -> Hash:
        """One that changes by itself."""
        other, data = Hash(), self._data
        if isinstance(data, bytes):
            other._data = data
        else:
            other._data = _Table(dict(_table(data)), self.is_large)
        return other

    # --- changing -----------------------------------------------------------------------------------------------

    def set_field(self, field: bytes, value: bytes, bounds: EncodingBounds) -> bool:
        """Set a field; true: it is new. Hot."""
        size: i64 = len(value)
        data = self._data
        if not isinstance(data, bytes):
            fields = _table(data)
            is_new = field not in fields
            fields[field] = value
        else:
            at = _find(data, field)
            is_new = at < 0
            if is_new:
                if not self._append(data, field, value):
                    self._replace(self._with(field, value))
            else:
                end: i64 = at + 1 + data[at]
                if size <= ITEM_BYTES_MAX and len(data) + size + at + 1 - end <= PACKED_BYTES_MAX:
                    self._data = b"%b%b%b%b" % (data[:at], LENGTHS[size], value, data[end:])
                else:
                    self._replace(self._with(field, value))
        if size > bounds.hash_value or (is_new and (len(field) > bounds.hash_value or len(self) > bounds.hash_entries)):
            self._mark_large()
        return is_new

    def update(self, items: Sequence[bytes], bounds: EncodingBounds) -> None:
        """Set fields: field, value, field, value ... Hot."""
        if len(items) == 2:
            self.set_field(items[0], items[1], bounds)
            return
        data = self._data
        if isinstance(data, bytes):
            if len(data) > _HEAD_BYTES or not self._fill(items):
                fields = self.fields()
                fields.update(zip(items[::2], items[1::2], strict=True))
                self._replace(fields)
        else:
            _table(data).update(zip(items[::2], items[1::2], strict=True))
        bound = bounds.hash_value
        if len(self) > bounds.hash_entries:
            self._mark_large()
        for item in items:
            if len(item) > bound:
                self._mark_large()
                break

    def discard(self, names: Sequence[bytes]) -> None:
        """Remove fields; fine if they are not there."""
        for name in names:
            data = self._data
            if not isinstance(data, bytes):
                _table(data).pop(name, None)
                continue
            at = _find(data, name)
            if at >= 0:
                shape = _shape(data)
                left = None if shape is None else shape.without(shape.places[name])
                if left is None:
                    self._replace({each: value for each, value in self.fields().items() if each != name})
                else:
                    end = at + 1 + data[at]
                    self._data = b"%b%b%b%b" % (
                        LENGTHS[data[0] - 1],
                        left.number_bytes,
                        data[_HEAD_BYTES:at],
                        data[end:],
                    )

    def _append(self, data: bytes, field: bytes, value: bytes) -> bool:
        """Set a field that is new; false: nothing has happened, because it cannot be done so. Hot."""
        size: i64 = len(value)
        shape = _shape(data)
        if shape is None or size > ITEM_BYTES_MAX or len(data) + 1 + size > PACKED_BYTES_MAX:
            return False
        if data[0] & _COUNT >= PACKED_ITEMS_MAX:
            return False
        shape = shape.after(field)
        if shape is None:
            return False
        self._data = b"%b%b%b%b%b" % (
            LENGTHS[data[0] + 1],
            shape.number_bytes,
            data[_HEAD_BYTES:],
            LENGTHS[size],
            value,
        )
        return True

    def _fill(self, items: Sequence[bytes]) -> bool:
        """Set fields of a hash that has none; false: nothing has happened, because it cannot be done so. Hot."""
        count = len(items) // 2
        shape: Shape | None = NO_FIELDS
        if count > PACKED_ITEMS_MAX:
            return False
        parts = [b"", b""]
        room: i64 = PACKED_BYTES_MAX
        for at in range(0, 2 * count, 2):
            field, value = items[at], items[at + 1]
            if shape is None or field in shape.places:
                return False
            shape = shape.after(field)
            size: i64 = len(value)
            room -= 1 + size
            if size > ITEM_BYTES_MAX or room < 0:
                return False
            parts.append(LENGTHS[size])
            parts.append(value)
        if shape is None:
            return False
        parts[0], parts[1] = LENGTHS[count], shape.number_bytes
        self._data = b"".join(parts)
        return True

    def _with(self, field: bytes, value: bytes) -> dict[bytes, bytes]:
        fields = self.fields()
        fields[field] = value
        return fields

    def _replace(self, fields: dict[bytes, bytes]) -> None:
        """Pack other fields, or make a table of them, which is kept."""
        is_large, count = self.is_large, len(fields)
        if count <= PACKED_ITEMS_MAX:
            names, values = list(fields), list(fields.values())
            head = LENGTHS[count | _LARGE if is_large else count]
            shape = shape_of(names)
            if shape is not None and are_short(values):
                self._data = pack(head + shape.number_bytes, values)
                return
            both = names + values
            if are_short(both):
                self._data = pack(head + _NO_SHAPE, both)
                return
        self._data = _Table(fields, is_large)

    def _mark_large(self) -> None:
        data = self._data
        if not isinstance(data, bytes):
            assert isinstance(data, _Table)
            data.is_large = True
        elif data[0] < _LARGE:
            self._data = LENGTHS[data[0] | _LARGE] + data[1:]


def hash_of(fields: dict[bytes, bytes], bounds: EncodingBounds | None = None) -> Hash:
    """A hash of fields."""
    value = Hash()
    value.update([item for pair in fields.items() for item in pair], bounds if bounds is not None else EncodingBounds())
    return value


def _table(data: object) -> dict[bytes, bytes]:
    assert isinstance(data, _Table)
    return data.fields


def _shape(data: bytes) -> Shape | None:
    number = data[1] | data[2] << 8
    return SHAPES[number] if number else None


def _values_at(data: bytes) -> i64:
    """Where the values begin."""
    if data[1] or data[2]:
        return _HEAD_BYTES
    return pass_over(data, _HEAD_BYTES, data[0] & _COUNT)


def _names(data: bytes) -> list[bytes]:
    shape = _shape(data)
    return shape.names[:] if shape is not None else unpack(data, _HEAD_BYTES, data[0] & _COUNT)


def _find(data: bytes, field: bytes) -> i64:
    """Where the value of a field stands, with its length before it; -1: there is none. Hot."""
    number: i64 = data[1] | data[2] << 8
    if number:
        place = SHAPES[number].places.get(field)
        return -1 if place is None else pass_over(data, _HEAD_BYTES, place)
    count: i64 = data[0] & _COUNT
    index = find_item(data, _HEAD_BYTES, count, field)
    return -1 if index < 0 else pass_over(data, _HEAD_BYTES, count + index)
