"""When something expires, as SET, GETEX, EXPIRE and their relatives have it."""

from __future__ import annotations

from typing import Final

from tidelog.commands.arguments import I64_MAX, integer
from tidelog.errors import CommandError

UNITS: Final = {b"EX": (1000, False), b"PX": (1, False), b"EXAT": (1000, True), b"PXAT": (1, True)}
"""Option -> milliseconds a unit, and whether the number is absolute."""


def absolute_ms(argument: bytes, unit: bytes, now_ms: int, command: str) -> int:
    """The moment that an option of SET or GETEX names; it must lie after the epoch."""
    unit_ms, is_absolute = UNITS[unit]
    number = integer(argument)
    if number <= 0:
        raise invalid_expiry(command)
    return add_time(number, unit_ms, is_absolute, now_ms, command)


def add_time(number: int, unit_ms: int, is_absolute: bool, now_ms: int, command: str) -> int:
    """A time in a unit as absolute milliseconds, which must fit 64 bits."""
    milliseconds = number * unit_ms + (0 if is_absolute else now_ms)
    if not -I64_MAX - 1 <= number * unit_ms <= I64_MAX or not -I64_MAX - 1 <= milliseconds <= I64_MAX:
        raise invalid_expiry(command)
    return milliseconds


def invalid_expiry(command: str) -> CommandError:
    return CommandError(f"ERR invalid expire time in '{command}' command")
