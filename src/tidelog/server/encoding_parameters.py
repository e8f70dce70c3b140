"""Parameters of encodings: up to where OBJECT ENCODING says that a value is small.

    hash-max-listpack-entries    hash-max-listpack-value     and the names that both had up to Redis 6: ziplist
    zset-max-listpack-entries    zset-max-listpack-value     the same
    set-max-listpack-entries     set-max-listpack-value      set-max-intset-entries
    list-max-listpack-size                                   and list-max-ziplist-size

They are settings, too, under the new names. As in Redis, a change concerns values that are changed afterwards. Only
what OBJECT ENCODING says depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tidelog.engine.parameters import Parameter, alias, number
from tidelog.server.configuration import ServerConfig
from tidelog.types.encoding_bounds import EncodingBounds

_BOUNDS: Final = {
    "hash-max-listpack-entries": "hash_entries",
    "hash-max-listpack-value": "hash_value",
    "set-max-intset-entries": "set_intset_entries",
    "set-max-listpack-entries": "set_entries",
    "set-max-listpack-value": "set_value",
    "zset-max-listpack-entries": "zset_entries",
    "zset-max-listpack-value": "zset_value",
    "list-max-listpack-size": "list_size",
}
_OLD_NAMES: Final = ("hash", "zset", "list")
_LIST_SIZES: Final = (-(2**31), 2**31 - 1)


def encoding_bounds(config: ServerConfig) -> EncodingBounds:
    """Those that a server starts with."""
    bounds = EncodingBounds()
    for name, attribute in _BOUNDS.items():
        setattr(bounds, attribute, getattr(config, name.replace("-", "_")))
    return bounds


def encoding_parameters(bounds: EncodingBounds) -> Iterator[Parameter]:
    """All of them, at work in `bounds`."""
    for name, attribute in _BOUNDS.items():
        made = number(name, *_at(bounds, attribute), *(_LIST_SIZES if attribute == "list_size" else ()))
        yield made
        if name.startswith(_OLD_NAMES):
            yield alias(name.replace("listpack", "ziplist"), made)


def _at(bounds: EncodingBounds, attribute: str) -> tuple[Callable[[], int], Callable[[int], None]]:
    return partial(getattr, bounds, attribute), partial(setattr, bounds, attribute)
