"""Values as people and programs read them: bytes, times, ranges, operations.

Bytes in JSON are as `resp/json_form.py` has them. Bytes for people are quoted, shortened, and have nothing in them that
a terminal obeys.

Times are in UTC, with microseconds, in the form that options take back: `2025-11-15T20:03:20.000123Z`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog.ids import U64_MAX
from tidelog.resp.json_form import bytes_to_json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_BYTES_SHOWN: Final = 48
_ITEMS_SHOWN: Final = 8


# --- bytes ------------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text on one line, with escapes for what is not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def bytes_to_text(data: bytes) -> str:
    """Quoted and shortened; bytes that are not UTF-8 as `\\xNN`."""
    shown = data[:_TEXT_BYTES_SHOWN]
    if len(data) > len(shown):  # do not cut a character in two
        while shown and len(data) > len(shown) and data[len(shown)] & 0xC0 == 0x80:
            shown = shown[:-1]
    quoted = "".join(map(_quoted_char, shown.decode(errors="surrogateescape")))
    return f'"{quoted}"' if len(shown) == len(data) else f'"{quoted}"… ({len(data)} bytes)'


def _quoted_char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return printable(char)


# --- times ------------------------------------------------------------------------------------------------------------


def time_of(ts_us: int | None) -> str | None:
    """A ts as a time; None for none, and for what is no time a calendar knows."""
    if ts_us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=ts_us)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}Z" if moment.year >= 1970 else None


def time_or_number(ts_us: int | None) -> str:
    """A ts for people."""
    return "-" if ts_us is None else time_of(ts_us) or str(ts_us)


def parse_moment(text: str) -> int:
    """A ts from a number of µs or an ISO time; without a zone it is UTC. `ValueError` if it is neither."""
    if text.isdecimal() and text.isascii() and len(text) not in (4, 8):  # years and days are ISO times too
        return _bounded(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number of µs nor an ISO time such as 2025-11-15T20:03:20Z") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return _bounded((moment - _EPOCH) // timedelta(microseconds=1))


def parse_number(text: str) -> int:
    """A whole number; `ValueError` if it is none."""
    if not (text.isdecimal() and text.isascii()):
        raise ValueError(f"{text!r} is not a number")
    return _bounded(int(text))


def _bounded(number: int) -> int:
    if not 0 <= number <= U64_MAX:
        raise ValueError(f"{number} does not fit 64 bits")
    return number


def parse_range(text: str, parse: Callable[[str], int]) -> tuple[int, int]:
    """`A..B`, `A..`, `..B` or `A`, both ends included; `ValueError` if it is none of these."""
    first, dots, last = text.partition("..")
    if not dots:
        return parse(text), parse(text)
    if not first and not last:
        raise ValueError("a range needs at least one end: A..B, A.. or ..B")
    bounds = parse(first) if first else 0, parse(last) if last else U64_MAX
    if bounds[0] > bounds[1]:
        raise ValueError(f"{text} is empty: it begins after its end")
    return bounds


# --- operations -------------------------------------------------------------------------------------------------------


def value_to_json(value: Any) -> Any:
    """Any operation or part of one: its fields by name, bytes as the module says."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_to_json(bytes(value))
    fields = _fields(value)
    if fields is not None:
        return {name: value_to_json(part) for name, part in fields.items()}
    if isinstance(value, dict):
        return [[value_to_json(key), value_to_json(part)] for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [value_to_json(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def value_to_text(value: Any) -> str:
    """The same for people, shortened."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_to_text(bytes(value))
    fields = _fields(value)
    if fields is not None:
        return " ".join(f"{name}={value_to_text(part)}" for name, part in fields.items() if part is not None)
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        parts = [value_to_text(part) for part in list(value)[:_ITEMS_SHOWN]]
        if len(value) > _ITEMS_SHOWN:
            parts.append(f"… {len(value) - _ITEMS_SHOWN} more")
        return f"[{', '.join(parts)}]"
    return printable(str(value))


def _fields(value: Any) -> dict[str, Any] | None:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None
