"""Parameters: what CONFIG GET shows and CONFIG SET changes, under the names that Redis gives them.

A parameter reads its value from wherever it is at work, so nothing is kept twice. Setting has two steps, so that
several are set together or not at all: every value is read first, which may refuse it, and only then put to work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

IMMUTABLE: Final = "can't set immutable config"

_UNITS: Final = {
    "": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3,
}  # fmt: skip
_AGES: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class BadValue(Exception):
    """A value that a parameter does not take; the message says why."""


ApplyValue = Callable[[], None]
Read = Callable[[str], ApplyValue]
"""Read a value, or raise `BadValue`; what is returned puts it to work."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter."""

    name: str
    get: Callable[[], str]
    read: Read | None = None
    """None: it cannot change while the server runs."""
    alias_of: str = ""
    """Another name of that one, such as Redis had before."""


class ParameterFile(Protocol):
    """The configuration file of a server."""

    def changed(self, name: str) -> None:
        """CONFIG SET has changed a parameter."""

    def rewrite(self, values: Mapping[str, str]) -> None:
        """Write what has changed into it; `values` has all parameters. `OSError` and `ClientError`: it could not be."""


class Parameters:
    """All of them, by name."""

    def __init__(self, parameters: Iterable[Parameter] = (), file: ParameterFile | None = None) -> None:
        self._by_name = {parameter.name: parameter for parameter in parameters}
        self.file = file
        """None: the server was started without one."""

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._by_name.values())

    def find(self, name: str) -> Parameter | None:
        return self._by_name.get(name.lower())

    def value_of(self, name: str) -> str:
        """What a parameter is now; empty if there is none of that name."""
        found = self.find(name)
        return "" if found is None else found.get()

    def rewrite(self) -> None:
        """Write what was changed into the configuration file, which must be there."""
        assert self.file is not None
        self.file.rewrite({parameter.name: parameter.get() for parameter in self._by_name.values()})


# --- reading values, with Redis's words -------------------------------------------------------------------------


def read_integer(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise BadValue("argument couldn't be parsed into an integer")
    number = int(text)
    if not low <= number <= high:
        raise BadValue(f"argument must be between {low} and {high} inclusive")
    return number


def read_memory(text: str) -> int:
    """A number of bytes, with a unit if need be: `100mb`."""
    found = re.fullmatch(r"([0-9]{1,18})([a-z]{0,2})", text.lower())
    if found is None or found[2] not in _UNITS:
        raise BadValue("argument must be a memory value")
    return int(found[1]) * _UNITS[found[2]]


def read_age(text: str) -> int:
    """A number of seconds, or one with a unit: `90m`, `24h`, `7d`."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.lower())
    if found is None:
        raise BadValue("argument must be a number of seconds, such as 3600, or an age such as 90m, 24h or 7d")
    return int(found[1]) * _AGES[found[2]]


# --- kinds of parameters ----------------------------------------------------------------------------------------


def fixed(name: str, value: object) -> Parameter:
    """A parameter that can be read, and not be set."""
    return Parameter(name, lambda: str(value))


def constant(name: str, value: object, why: str) -> Parameter:
    """Redis can change it and we cannot: setting it to what it is works, so that scripts go on."""

    def read(text: str) -> ApplyValue:
        if text.lower() != str(value).lower():
            raise BadValue(why)
        return lambda: None

    return Parameter(name, lambda: str(value), read)


def switch(name: str, get: Callable[[], bool], put: Callable[[bool], None]) -> Parameter:
    """`yes` or `no`."""

    def read(text: str) -> ApplyValue:
        if text.lower() not in ("yes", "no"):
            raise BadValue("argument must be 'yes' or 'no'")
        return lambda: put(text.lower() == "yes")

    return Parameter(name, lambda: "yes" if get() else "no", read)


def alias(name: str, parameter: Parameter) -> Parameter:
    """The same parameter by another name."""
    return replace(parameter, name=name, alias_of=parameter.name)


def number(
    name: str, get: Callable[[], int], put: Callable[[int], None], low: int = 0, high: int = 2**63 - 1
) -> Parameter:
    def read(text: str) -> ApplyValue:
        value = read_integer(text, low, high)
        return lambda: put(value)

    return Parameter(name, lambda: str(get()), read)


def memory(name: str, get: Callable[[], int], put: Callable[[int], None]) -> Parameter:
    def read(text: str) -> ApplyValue:
        value = read_memory(text)
        return lambda: put(value)

    return Parameter(name, lambda: str(get()), read)


def age(name: str, get: Callable[[], int], put: Callable[[int], None]) -> Parameter:
    """In seconds."""

    def read(text: str) -> ApplyValue:
        value = read_age(text)
        return lambda: put(value)

    return Parameter(name, lambda: str(get()), read)
