"""The columns of a row, as text: the members of a JSON object, or the fields of an entry.

A number is the shortest text that says it, what is nested is JSON again, and null is what is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

Members = Mapping[str, Any]

_HALVES: Final = re.compile("[\ud800-\udfff]")
_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def members_of(value: bytes | None) -> Members | None:
    """The members of a JSON object; None: it is none."""
    if value is None or not value.lstrip(b" \t\r\n").startswith(b"{"):
        return None
    try:
        found: Members = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found


def text_of(value: Any) -> str | None:
    """One member. Half of a pair of surrogates, which JSON can spell, is no text: it is replaced."""
    if value is None:
        return None
    text = value if type(value) is str else _dumps(value)
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def column_of(rows: Sequence[Members | None], name: str) -> list[str | None]:
    """One member of each row."""
    return [None if row is None else text_of(row.get(name)) for row in rows]


def decoded(value: bytes | None) -> str | None:
    """Bytes as text; what is no UTF-8 is replaced."""
    return None if value is None else value.decode(errors="replace")


def text_array(values: Any) -> Any:
    """An array of bytes as text."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decoded(value) for value in values.to_pylist()], pa.string())
