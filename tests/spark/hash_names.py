"""The names of the hashes of a view, made one by one: what `group_texts` makes for whole columns must be the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.spark.views.naming import hash_prefix

_NULL: Final = "%"


def hash_name(view: str, parts: Sequence[str | None]) -> str:
    """The hash of the row with these values in its key columns."""
    return hash_prefix(view) + ":".join(_encoded(part, is_joined=len(parts) > 1) for part in parts)


def parts_of(view: str, name: str, count: int) -> tuple[str | None, ...]:
    """The values of `count` key columns that a name was made of; `ValueError` if it names no such row."""
    prefix = hash_prefix(view)
    rest = name.removeprefix(prefix)
    texts = rest.split(":") if count > 1 else [rest] if count else []
    parts = tuple(None if text == _NULL else text.replace("%3A", ":").replace("%25", "%") for text in texts)
    if len(parts) != count or hash_name(view, parts) != name:
        raise ValueError(f"{name!r} names no row of view {view} with {count} key columns")
    return parts


def _encoded(part: str | None, *, is_joined: bool) -> str:
    if part is None:
        return _NULL
    escaped = part.replace("%", "%25")
    return escaped.replace(":", "%3A") if is_joined else escaped
