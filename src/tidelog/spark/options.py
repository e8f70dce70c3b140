"""The options of the data source, checked before anything is read. An unknown name is most likely a mistake.

Spark passes options as text, with names in any case. Each part of the source takes the options that it knows from an
`Options`, with the type that it needs. Whatever nobody took is refused, with a list of the names that are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog.errors import ClientError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IGNORED: Final = frozenset(["path", "paths", "__paths__", "checkpointlocation", "queryname", "outputmode"])
"""Options of Spark's own, or taken from the target."""


class BadOption(ClientError):
    """An option that is missing, unknown or makes no sense."""


class Target:
    """What is read or written: a kind and a name; `default` if the options name no target.

    Errors list the kinds, except those that are `hidden`.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        kinds: Collection[str],
        default: tuple[str, str] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        told = sorted(kind for kind in kinds if kind not in hidden)
        options = {name.lower(): value for name, value in given.items()}
        named = [(kind, options[kind]) for kind in kinds if kind in options]
        if "path" in options:
            kind, colon, name = options["path"].partition(":")
            if not colon or kind not in kinds:
                shown = " or ".join(f"{each}:NAME" for each in told)
                raise BadOption(f"{options['path']!r} cannot be loaded: give {shown}")
            named.append((kind, name))
        if not named and default is not None:
            named.append(default)
        elif len(named) == 1 and not named[0][1]:
            raise BadOption(f"the option {named[0][0]} is empty")
        if len(named) != 1:
            shown = ", ".join(f"{kind}={name}" for kind, name in named) or "nothing"
            raise BadOption(f"give exactly one of the options {', '.join(told)}; there is {shown}")
        self.kind, self.name = named[0]
        self.options = Options({name: value for name, value in options.items() if name not in kinds})


class Options:
    """Options, of which each part takes those that it knows."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items() if name.lower() not in _IGNORED}
        self._known: set[str] = set()

    def text(self, name: str) -> str | None:
        self._known.add(name)
        return self._given.get(name)

    def number(self, name: str, low: int = 0, high: int = 2**63 - 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()) or not low <= int(value) <= high:
            raise BadOption(f"{name}={value!r}: give a number from {low} to {high}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise BadOption(f"{name}={value!r}: give true or false")
        return value.lower() == "true"

    def moment_us(self, name: str) -> int | None:
        """A moment in µs, from an ISO time (without a zone: UTC) or a number of µs."""
        value = self.text(name)
        return None if value is None else moment_us(name, value)

    def one_of(self, *names: str) -> str | None:
        """Which of these options is given; they exclude each other."""
        self._known.update(names)
        given = [name for name in names if name in self._given]
        if len(given) > 1:
            raise BadOption(f"{' and '.join(given)} contradict each other: give one of them")
        return given[0] if given else None

    def prefixed(self, prefix: str) -> dict[str, str]:
        """All options with this prefix, without the prefix."""
        found = {name: value for name, value in self._given.items() if name.startswith(prefix)}
        self._known.update(found or [f"{prefix}*"])
        return {name.removeprefix(prefix): value for name, value in found.items()}

    def end(self, use: str) -> None:
        """Refuse the options that nobody took."""
        strange = sorted(self._given.keys() - self._known)
        if strange:
            raise BadOption(f"{use} has no option {strange[0]!r}: there are {', '.join(sorted(self._known))}")


def moment_us(name: str, value: Any) -> int:
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) not in (4, 8):  # years and days are ISO times too
            return int(value)
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise BadOption(f"{name}={value!r}: give an ISO time such as 2025-11-15T20:03:20Z, or µs") from None
    moment: datetime = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
