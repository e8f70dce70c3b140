"""How long a client is ready to wait, as commands write it, with Redis's error texts."""

from __future__ import annotations

from typing import Final

from tidelog.commands.arguments import I64_MAX, integer
from tidelog.commands.long_double import Finite, parse_long_double, scaled_up
from tidelog.errors import CommandError

_DIGITS_MAX: Final = 9
"""Whole seconds with at most so many digits are far from every limit."""


def seconds_to_wait(word: bytes, now_ms: int) -> int:
    """The time-out of BLPOP and its like, a fraction of seconds, in ms; 0: for ever. A part of a ms counts as one."""
    if word.isdigit() and len(word) <= _DIGITS_MAX:
        return 1000 * int(word)
    seconds = parse_long_double(word)
    if seconds is None:
        raise CommandError("ERR timeout is not a float or out of range")
    if isinstance(seconds, Finite):
        return _checked(scaled_up(seconds, 1000), now_ms)
    return _checked(I64_MAX if seconds > 0 else -1, now_ms)


def ms_to_wait(word: bytes, now_ms: int) -> int:
    """BLOCK of XREAD and XREADGROUP; 0: for ever."""
    return _checked(integer(word, "ERR timeout is not an integer or out of range"), now_ms)


def _checked(timeout_ms: int, now_ms: int) -> int:
    if timeout_ms < 0:
        raise CommandError("ERR timeout is negative")
    if timeout_ms > I64_MAX - now_ms:
        raise CommandError("ERR timeout is out of range")
    return timeout_ms
