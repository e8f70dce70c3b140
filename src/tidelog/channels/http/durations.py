"""Durations as Go writes them, which clients of the original send: `30s`, `1m30s`, `500ms`, `1.5h`, `0`.

A duration is one or more numbers, each with its unit. Go's also has a sign; a wait cannot be negative, so a minus is
refused here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tidelog.errors import BadChannelInput

_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,  # the sign for micro
    "\u03bcs": 1e-6,  # the Greek letter, which looks the same
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER: Final = r"[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18}"
_UNIT: Final = "ns|us|\u00b5s|\u03bcs|ms|s|m|h"
_PART: Final = re.compile(rf"({_NUMBER})({_UNIT})", re.ASCII)
DURATION_PATTERN: Final = rf"^\+?(?:0|(?:(?:{_NUMBER})(?:{_UNIT}))+)$"
"""All durations, for those who describe them."""
DURATION_LENGTH_MAX: Final = 64


@lru_cache(maxsize=256)
def read_duration_s(text: str) -> float:
    """The seconds of a duration; `BadChannelInput` if it is none."""
    rest = text.removeprefix("+")
    if rest == "0":
        return 0.0
    seconds, at = 0.0, 0
    while at < len(rest) <= DURATION_LENGTH_MAX and (part := _PART.match(rest, at)):
        seconds += float(part[1]) * _UNITS_S[part[2]]
        at = part.end()
    if not rest or at != len(rest):
        shown = text if len(text) <= DURATION_LENGTH_MAX else f"{text[:DURATION_LENGTH_MAX]}..."
        raise BadChannelInput(f"{shown!r} is not a duration: write it as 30s, 1m30s or 500ms")
    return seconds
