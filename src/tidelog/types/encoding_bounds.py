"""The bounds of Redis's compact encodings: up to where OBJECT ENCODING says `listpack` or `intset`.

Only what OBJECT ENCODING says depends on them, as in Redis at the moment of a change: a value that has passed a bound
stays `hashtable` or `skiplist` when it shrinks. How a value is really stored is decided by the module of its type.
"""

from __future__ import annotations

from mypy_extensions import i64


class EncodingBounds:
    """The `*-max-listpack-*` parameters, for all databases of a store."""

    __slots__ = (
        "hash_entries",
        "hash_value",
        "list_size",
        "set_entries",
        "set_intset_entries",
        "set_value",
        "zset_entries",
        "zset_value",
    )

    def __init__(self) -> None:
        self.hash_entries: i64 = 512
        """The most fields of a listpack ..."""
        self.hash_value: i64 = 64
        """... and the most bytes of each field and value."""
        self.set_intset_entries: i64 = 512
        self.set_entries: i64 = 128
        self.set_value: i64 = 64
        self.zset_entries: i64 = 128
        self.zset_value: i64 = 64
        self.list_size: i64 = -2
        """A number of elements; negative: a size of 4, 8, 16, 32 or 64 KiB."""
