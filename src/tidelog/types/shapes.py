"""Shapes: the names of fields that many hashes have in common, kept once.

Most hashes are records of a kind: thousands of keys with the same fields. A packed hash names its shape by a number of
two bytes and holds its values only.

    | no fields | --name--> | name | --age--> | name, age | ...

A shape is reached from the one without fields, field by field in the order in which they came. A step that was never
seen is not a shape at once: fields may be data (user ids, say), and no two such hashes are alike. It becomes one when
it was wanted `SEEN_MIN` times; what was wanted seldom is forgotten. Shapes stay as long as the process: there are at
most `SHAPES_MAX`. A hash whose fields have no shape holds their names itself.

They belong to the process, as interned names do: nothing of them is journaled, and no reply depends on them.
"""

from __future__ import annotations

from typing import Final

SHAPES_MAX: Final = 4096
SEEN_MIN: Final = 8
_WANTED_MAX: Final = 4096
"""Steps that are counted at a time."""


class Shape:
    """Fields in their order."""

    __slots__ = ("_next", "_without", "names", "number", "number_bytes", "places")

    def __init__(self, number: int, names: list[bytes]) -> None:
        self.number = number
        self.number_bytes = number.to_bytes(2, "little")
        self.names = names
        self.places = {name: place for place, name in enumerate(names)}
        self._next: dict[bytes, Shape] = {}
        """By the field that comes."""
        self._without: dict[int, Shape] = {}
        """By the place of the field that goes."""

    def after(self, name: bytes) -> Shape | None:
        """With one more field; None: it is no shape. Hot."""
        found = self._next.get(name)
        return found if found is not None else self._want(name)

    def without(self, place: int) -> Shape | None:
        """With one field less; None: it is no shape. Hot."""
        found = self._without.get(place)
        if found is None:
            found = shape_of([name for at, name in enumerate(self.names) if at != place])
            if found is not None:
                self._without[place] = found
        return found

    def _want(self, name: bytes) -> Shape | None:
        if len(SHAPES) > SHAPES_MAX:
            return None
        step = self.number, name
        count = _WANTED.get(step, 0) + 1
        if count < SEEN_MIN:
            if len(_WANTED) >= _WANTED_MAX:
                _WANTED.clear()
            _WANTED[step] = count
            return None
        _WANTED.pop(step, None)
        found = self._next[name] = Shape(len(SHAPES), [*self.names, name])
        SHAPES.append(found)
        return found


SHAPES: Final[list[Shape]] = [Shape(0, []), Shape(1, [])]
"""By number; 0 stands for none, ..."""
NO_FIELDS: Final = SHAPES[1]
"""... and this one is where all others begin."""
_WANTED: Final[dict[tuple[int, bytes], int]] = {}
"""Steps from a shape by a field, and how often they were wanted."""


def shape_of(names: list[bytes]) -> Shape | None:
    """The shape of fields in this order; None: there is none."""
    shape: Shape | None = NO_FIELDS
    for name in names:
        if shape is None:
            return None
        shape = shape.after(name)
    return shape
