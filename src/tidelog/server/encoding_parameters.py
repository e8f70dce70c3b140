"""Parameters of encodings: up to where OBJECT ENCODING says that a value is small.

    hash-max-listpack-entries    hash-max-listpack-value     and the names that both had up to Redis 6: ziplist
    zset-max-listpack-entries    zset-max-listpack-value     the same
    set-max-listpack-entries     set-max-listpack-value      set-max-intset-entries
    list-max-listpack-size                                   and list-max-ziplist-size

As in Redis, a change concerns values that are changed afterwards. Only what OBJECT ENCODING says depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tidelog.engine.parameters import Parameter, alias, number
from tidelog.types.encoding_bounds import EncodingBounds

_BOUNDS: Final = {
    "hash-max-listpack-entries": "hash_entries",
    "hash-max-listpack-value": "hash_value",
    "set-max-intset-entries": "set_intset_entries",
    "set-max-listpack-entries": "set_entries",
    "set-max-listpack-value": "set_value",
    "zset-max-listpack-entries": "zset_entries",
    "zset-max-listpack-value": "zset_value",
}
_OLD_NAMES: Final = ("hash", "zset")
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1


def encoding_parameters(bounds: EncodingBounds) -> Iterator[Parameter]:
    """All of them, at work in `bounds`."""
    for name, attribute in _BOUNDS.items():
        made = number(name, *_at(bounds, attribute))
        yield made
        if name.startswith(_OLD_NAMES):
            yield alias(name.replace("listpack", "ziplist"), made)
    made = number("list-max-listpack-size", *_at(bounds, "list_size"), _INT_MIN, _INT_MAX)
    yield made
    yield alias("list-max-ziplist-size", made)


def _at(bounds: EncodingBounds, attribute: str) -> tuple[Callable[[], int], Callable[[int], None]]:
    return partial(getattr, bounds, attribute), partial(setattr, bounds, attribute)
