"""The members of JSON objects as columns of text.

A string member is its text; every other member stays as it was written: `1.50` stays `1.50`, a nested value is JSON
text, and null means that there is none. Only wanted members are looked at: msgspec skips all others, and returns the
wanted ones as bytes, from which Arrow makes columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_QUOTE, _BACKSLASH, _NULL = b'"', b"\\", b"null"


class Members:
    """Reads some members of objects."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        fields = [f"m{number}" for number in range(len(self._names))]
        self._fields = fields
        self._wanted = msgspec.defstruct(
            "Members",
            [(field, msgspec.Raw, msgspec.Raw()) for field in fields],
            rename=dict(zip(fields, self._names, strict=True)),
        )
        self._decode = msgspec.json.Decoder(self._wanted).decode
        self._nothing = self._wanted()

    def read(self, values: Sequence[bytes | None]) -> tuple[Any, dict[str, Any]]:
        """Which of the values are JSON objects, as a numpy array, and each wanted member of all of them."""
        found = [self._nothing if value is None else self._read(value) for value in values]
        is_object = np.fromiter((each is not None for each in found), bool, len(found))
        is_object &= np.fromiter((value is not None for value in values), bool, len(found))
        rows = [self._nothing if each is None else each for each in found]
        columns = {
            name: _texts([bytes(getattr(row, field)) for row in rows])
            for name, field in zip(self._names, self._fields, strict=True)
        }
        return is_object, columns

    def _read(self, value: bytes) -> Any | None:
        try:
            return self._decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


def _texts(raw: list[bytes]) -> Any:
    """JSON values as text; an empty one is null."""
    values = pa.array(raw, pa.binary())
    is_text = pc.starts_with(values, _QUOTE)
    texts = pc.if_else(is_text, pc.binary_slice(values, 1, -1), values)
    is_null = pc.or_(pc.equal(values, _NULL), pc.equal(values, b""))
    texts = pc.if_else(is_null, pa.scalar(None, pa.binary()), texts)
    escaped = pc.and_(is_text, pc.match_substring(values, _BACKSLASH))
    if not pc.any(escaped).as_py():
        return text_array(texts)
    both = zip(text_array(texts).to_pylist(), raw, escaped.to_pylist(), strict=True)
    unescaped = [json.loads(value.decode(errors="replace")) if is_one else text for text, value, is_one in both]
    return pa.array(unescaped, pa.string())


def decoded(value: bytes | None) -> str | None:
    """Bytes as text; bytes that are not UTF-8 are replaced."""
    return None if value is None else value.decode(errors="replace")


def text_array(values: Any) -> Any:
    """An array of bytes as text."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decoded(value) for value in values.to_pylist()], pa.string())
