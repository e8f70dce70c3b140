"""Which keys a target means: one name, or all that match a pattern and the filters of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, In, StringStartsWith

from tidelog.errors import ClientError
from tidelog.spark.endpoint import call

_GLOB: Final = re.compile(r"[*?\[\\]")


@dataclass(frozen=True, slots=True)
class NameFilter:
    """What filters leave of the names that a pattern means."""

    among: frozenset[str] | None = None
    """None: any."""
    prefix: str = ""

    def narrowed(self, condition: Filter) -> NameFilter:
        among: frozenset[str] | None = None
        if isinstance(condition, EqualTo):
            among = frozenset([condition.value])
        elif isinstance(condition, In):
            among = frozenset(condition.value)
        elif isinstance(condition, StringStartsWith) and len(condition.value) > len(self.prefix):
            return replace(self, prefix=condition.value)
        if among is None:
            return self
        return replace(self, among=among if self.among is None else among & self.among)

    def has(self, name: str) -> bool:
        return (self.among is None or name in self.among) and name.startswith(self.prefix)


def is_pattern(target: str) -> bool:
    return _GLOB.search(target) is not None


def scan_keys(client: Any, pattern: str, kind: str) -> Iterator[list[bytes]]:
    """The keys of a type that match a pattern, some at a time; a key may come twice."""
    cursor: bytes = b"0"
    while True:
        cursor, keys = call(client, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", kind)
        yield keys
        if cursor == b"0":
            return


def name_of(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise ClientError(f"the name {key!r} is not UTF-8: Spark has no such strings") from None
