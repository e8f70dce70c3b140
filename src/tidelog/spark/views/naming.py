"""The hash that has a row of a view: `view:<name>:<key>`, from the values of the row's key columns and back.

    state = "new"                         view:orders:new
    state = "new", day = "a:b"            view:orders:new:a%3Ab
    state = "50 %"                        view:orders:50 %25
    state = null                          view:orders:%
    no key columns                        view:orders:

A `%` stands only for `%25` (itself), `%3A` (a colon, where several values are joined by colons) and, alone, null: so no
two keys share a name, and a colon stays readable where there is only one value. An empty text is an empty part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.keys import VIEW_JOB_PREFIX, VIEW_ROW_PREFIX

_NULL: Final = "%"


def hash_prefix(view: str) -> str:
    """What the hashes of a view, and nothing else, begin with."""
    return f"{VIEW_ROW_PREFIX}{view}:"


def lease_of(view: str) -> str:
    """The lease of whoever keeps a view, and what its part of a job's report is called."""
    return f"{VIEW_JOB_PREFIX}{view}"


def hash_name(view: str, parts: Sequence[str | None]) -> str:
    """The hash of the row with these values in its key columns."""
    return hash_prefix(view) + ":".join(_encoded(part, is_joined=len(parts) > 1) for part in parts)


def parts_of(view: str, name: str, count: int) -> tuple[str | None, ...]:
    """The values of `count` key columns that a hash is named by; `ValueError` if it is no hash of such a row."""
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
