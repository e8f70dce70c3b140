"""The figures that a job reports, from its hash or from the job in this process, as text for people.

Any client can write such a hash, so a figure may be anything. A figure that is not a number counts as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidelog import limits

SILENT: Final = "silent"
STATE_STYLES: Final = {"running": "green", "failed": "red", SILENT: "bold red"}


class JobFigures(NamedTuple):
    """A job and its figures, as texts or as numbers."""

    job: str
    fields: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """None: there is none, or something else is in its place."""
        try:
            found = float(self.fields.get(name, ""))
        except (TypeError, ValueError):
            return None
        return found if math.isfinite(found) else None

    def whole(self, name: str) -> int | None:
        """Exactly, where a float would not be: a ts is larger than 2^53 in 2255, and a token may be."""
        try:
            return int(self.fields.get(name, ""))
        except (TypeError, ValueError):
            number = self.number(name)
            return None if number is None else int(number)

    def text(self, name: str) -> str | None:
        found = self.fields.get(name)
        return None if found is None or found == "" else str(found)

    def state(self, now_ms: int) -> str:
        """What it says, unless it says that it runs and was not heard of for a while."""
        state = self.text("state") or "-"
        age_s = self.age_s(now_ms)
        return SILENT if state == "running" and (age_s is None or age_s > limits.PIPELINE_SILENT_S) else state

    def age_s(self, now_ms: int) -> float | None:
        """Since it was last heard of."""
        updated_ms = self.number("updated_ms")
        return None if updated_ms is None else max(0.0, (now_ms - updated_ms) / 1000)


def shown_seconds(seconds: float | None) -> str | None:
    """`0.35 s`, `12.3 s`, `4:05`, `2:30:00`, `3 d 4 h`."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shown_count(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"


def json_value(field: Any) -> Any:
    """A field as JSON has it: a number if it is one, null if it is empty."""
    if not isinstance(field, str):
        return field
    if not field:
        return None
    try:
        return int(field)
    except ValueError:
        pass
    try:
        number = float(field)
    except ValueError:
        return json_text(field)
    return number if math.isfinite(number) else field


def json_text(text: str) -> str:
    """Without what is no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode(errors="backslashreplace")
