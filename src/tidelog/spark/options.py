"""The options of the data source, checked before anything is read. An unknown name is most likely a mistake.

Spark passes options as text, with names in lower case: `minPartitions` arrives as `minpartitions`. So neither case nor
underscores of a name count, and `minPartitions` and `min_partitions` are the same option. What follows a dot is not
ours, and keeps its underscores: `storage.access_key_id`.

Each part of the source takes the options that it knows from an `Options`, with the type that it needs. An option that
was called otherwise before is asked for by both names. Whatever nobody took is refused, with a list of the names that
are known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog.errors import ClientError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IGNORED: Final = frozenset(["path", "paths", "__paths__", "checkpointlocation", "queryname", "outputmode"])
"""Options of Spark's own, or taken from the target."""
_DURATION: Final = re.compile(r"([0-9]{1,9}) ?([a-z]+)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EARLY_US: Final = 126_230_400_000_000
"""The end of 1973. A number below it was most likely meant as milliseconds, as Kafka has them."""


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
        self._given: dict[str, str] = {}
        self._named: dict[str, str] = {}
        """As they were given: for messages."""
        self._known: dict[str, str] = {}
        """What was asked for: as it is compared, and as it is told."""
        for name, value in given.items():
            spelled = _spelled(name)
            if name.lower() in _IGNORED or spelled in _IGNORED:
                continue
            if self._given.setdefault(spelled, value) != value:
                raise BadOption(f"{self._named[spelled]} and {name} are one option, and contradict each other")
            self._named[spelled] = name.lower()

    def text(self, name: str, *, older: str | None = None) -> str | None:
        """`older`: another name, which this option had before. It counts as well."""
        found = self._find(name, older)
        return None if found is None else self._given[_spelled(found)]

    def number(self, name: str, low: int = 0, high: int = 2**63 - 1, *, older: str | None = None) -> int | None:
        found = self._find(name, older)
        if found is None:
            return None
        value = self._given[_spelled(found)]
        if not (value.isascii() and value.isdigit()) or not low <= int(value) <= high:
            raise BadOption(f"{found}={value!r}: give a number from {low} to {high}")
        return int(value)

    def flag(self, name: str, default: bool, *, older: str | None = None) -> bool:
        found = self._find(name, older)
        if found is None:
            return default
        value = self._given[_spelled(found)]
        if value.lower() not in ("true", "false"):
            raise BadOption(f"{found}={value!r}: give true or false")
        return value.lower() == "true"

    def moment_us(self, name: str) -> int | None:
        """A moment in µs, from an ISO time (without a zone: UTC) or a number of µs."""
        value = self.text(name)
        return None if value is None else moment_us(name, value)

    def starting_us(self) -> int | None:
        """The option `startingTimestamp`: the moment, in µs, at or after which to begin."""
        found = self.moment_us("startingTimestamp")
        if found is not None and (self.text("startingTimestamp") or "").isdigit() and 0 < found < _EARLY_US:
            raise BadOption(f"startingTimestamp={found} lies before 1974: give µs and not ms, or an ISO time")
        return found

    def duration_s(self, name: str) -> float | None:
        """A time such as 500ms, 30s, 15m, 2h or 1d."""
        value = self.text(name)
        if value is None:
            return None
        found = _DURATION.fullmatch(value.strip().lower())
        if found is None or found[2] not in _UNIT_S:
            raise BadOption(f"{name}={value!r}: give a time such as 500ms, 30s, 15m or 2h")
        return int(found[1]) * _UNIT_S[found[2]]

    def one_of(self, *names: str) -> str | None:
        """Which of these options is given; they exclude each other."""
        self._known.update({_spelled(name): name for name in names})
        given = [name for name in names if _spelled(name) in self._given]
        if len(given) > 1:
            raise BadOption(f"{' and '.join(given)} contradict each other: give one of them")
        return given[0] if given else None

    def prefixed(self, prefix: str) -> dict[str, str]:
        """All options with this prefix, without the prefix."""
        found = {name: value for name, value in self._given.items() if name.startswith(prefix)}
        self._known.update({name: name for name in found or [f"{prefix}*"]})
        return {name.removeprefix(prefix): value for name, value in found.items()}

    def end(self, use: str) -> None:
        """Refuse the options that nobody took."""
        strange = sorted(self._given.keys() - self._known.keys())
        if strange:
            there = ", ".join(sorted(set(self._known.values()), key=str.lower))
            raise BadOption(f"{use} has no option {self._named[strange[0]]!r}: there are {there}")

    def _find(self, name: str, older: str | None) -> str | None:
        if older is None:
            return self.one_of(name)
        found = self.one_of(name, older)
        self._known[_spelled(older)] = name  # only the name of today is told
        return found


def _spelled(name: str) -> str:
    """A name as it is compared."""
    own, dot, others = name.lower().partition(".")
    return own.replace("_", "") + dot + others


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
