"""Reads a TOML table key by key, and says exactly what is wrong with it.

Every error names the file, the table and the key, and what is expected there. A key that nobody asked for is an error,
too: it is a slip of the pen, or a setting that this version does not know, and in both cases something that somebody
relies on would not happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar

from tidelog.errors import BadChannelRules

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)", re.ASCII)

Value = TypeVar("Value")


def duration_ms(text: str) -> int | None:
    """`30m`, `1h30m`, `1s500ms`; None: that is no duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))


def shown_duration(ms: int) -> str:
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _UNITS_MS[unit] == 0:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"


class SettingsTable:
    """A table, of which each key is read once; `finish` refuses the rest."""

    def __init__(self, where: str, values: Any) -> None:
        """`where`: the file and the table, as in `rules.toml: channels[1].jwt`, for errors."""
        self.where = where
        if not isinstance(values, dict):
            raise BadChannelRules(f"{where}: must be a table")
        self._values: dict[str, Any] = values
        self._asked: list[str] = []

    def finish(self) -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._values:
            if key not in self._asked:
                self.refuse(key, f"there is no such key (there are {', '.join(self._asked)})")

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise BadChannelRules(f"{self._below(key)}: {problem}")

    def has(self, key: str) -> bool:
        return key in self._values

    def optional_text(self, key: str) -> str | None:
        if key in self._values:
            return self.text(key)
        self._asked.append(key)
        return None

    # --- values -----------------------------------------------------------------------------------------------

    def text(self, key: str, default: str | None = None, *, length_max: int = 1000) -> str:
        value = self._take(key, default)
        if not isinstance(value, str) or not 0 < len(value) <= length_max:
            self._expect(key, f"must be a text of 1 to {length_max} characters", value)
        return value

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        value = self._take(key, default)
        if type(value) is not int or not low <= value <= high:
            self._expect(key, f"must be a number, {low} to {high}", value)
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self._take(key, default)
        if type(value) not in (int, float) or not low <= value <= high:
            self._expect(key, f"must be a number, {low:g} to {high:g}", value)
        return float(value)

    def is_on(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            self._expect(key, "must be true or false", value)
        return value

    def duration_ms(self, key: str, default_ms: int | None, low_ms: int, high_ms: int) -> int:
        value = self._take(key, None if default_ms is None else f"{default_ms}ms")
        found = duration_ms(value) if isinstance(value, str) else None
        if found is None or not low_ms <= found <= high_ms:
            bounds = f"{shown_duration(low_ms)} to {shown_duration(high_ms)}"
            self._expect(key, f'must be a duration such as "30m", "1h30m" or "500ms", {bounds}', value)
        return found

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        value = self._take(key, default)
        if value not in choices:
            self._expect(key, f"must be one of {', '.join(choices)}", value)
        return str(value)

    def texts(self, key: str, default: Sequence[str] | None = None, *, count_max: int = 64) -> tuple[str, ...]:
        """A list; one text is a list of one."""
        value = self._take(key, default)
        values = [value] if isinstance(value, str) else value
        is_fine = isinstance(values, list | tuple) and all(isinstance(each, str) and each for each in values)
        if not is_fine or len(values) > count_max or (not values and self.has(key)):
            self._expect(key, f"must be a list of 1 to {count_max} texts", value)
        return tuple(values)

    # --- tables in it -----------------------------------------------------------------------------------------

    def table(self, key: str) -> SettingsTable | None:
        self._asked.append(key)
        if key not in self._values:
            return None
        return SettingsTable(self._below(key), self._values[key])

    def tables(self, key: str, count_max: int) -> list[SettingsTable]:
        """Those of `[[key]]`."""
        value = self._take(key, [])
        if not isinstance(value, list) or len(value) > count_max:
            # Without the value: headers in it may have secrets.
            self.refuse(key, f"must be written as [[{key}]], at most {count_max} times")
        return [SettingsTable(f"{self._below(key)}[{index}]", each) for index, each in enumerate(value, start=1)]

    def entries(self) -> Iterator[tuple[str, Any]]:
        """All that is left, for a table with keys of the user's own."""
        for key, value in self._values.items():
            self._asked.append(key)
            yield key, value

    def _below(self, key: str) -> str:
        return f"{self.where}.{key}" if ": " in self.where else f"{self.where}: {key}"

    def _take(self, key: str, default: Any) -> Any:
        self._asked.append(key)
        if key in self._values:
            return self._values[key]
        if default is None:
            self.refuse(key, "is missing")
        return default

    def _expect(self, key: str, expected: str, value: Any) -> NoReturn:
        shown = repr(value)
        self.refuse(key, f"{expected} (it is {shown if len(shown) <= 80 else f'{shown[:80]}...'})")
