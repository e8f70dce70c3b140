"""The values of key columns as text: the names of their hashes without the prefix (`naming`)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def group_texts(columns: list[Any], count: int) -> Any:
    """One text for each row."""
    if not columns:
        return pa.repeat("", count)
    parts = [_part(each, is_joined=len(columns) > 1) for each in columns]
    return pc.binary_join_element_wise(*parts, ":") if len(parts) > 1 else parts[0]


def _part(values: Any, *, is_joined: bool) -> Any:
    texts = pc.replace_substring(as_text(values), "%", "%25")
    if is_joined:
        texts = pc.replace_substring(texts, ":", "%3A")
    return pc.fill_null(texts, "%")


def as_text(values: Any) -> Any:
    """Values as Spark casts them to text."""
    if pa.types.is_timestamp(values.type):
        texts = pc.strftime(values.cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")
        return pc.replace_substring_regex(texts, r"\.0+$", "")
    return values.cast(pa.string())
