"""Reading arguments as Redis does, with its error texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.commands.long_double import add_long_doubles, format_long_double, parse_long_double
from tidelog.errors import CommandError
from tidelog.types.string import integer_of

I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1

NOT_AN_INTEGER: Final = "ERR value is not an integer or out of range"
NOT_A_FLOAT: Final = "ERR value is not a valid float"
NOT_POSITIVE: Final = "ERR value is out of range, must be positive"
SYNTAX: Final = "ERR syntax error"

_QUOTED_BYTES_MAX: Final = 128


def syntax_error() -> CommandError:
    return CommandError(SYNTAX)


def integer(argument: bytes, error: str = NOT_AN_INTEGER) -> int:
    """A signed 64-bit integer, spelled as `integer_of` wants it."""
    number = integer_of(argument)
    if number is None:
        raise CommandError(error)
    return number


def quoted(argument: bytes) -> str:
    """An argument as an error shows it: on one line, and not all of it if it is long."""
    shown = repr(argument[:_QUOTED_BYTES_MAX])[1:]
    return shown if len(argument) <= _QUOTED_BYTES_MAX else f"{shown}..."


def positive(argument: bytes, error: str) -> int:
    """An integer of at least 1."""
    number = integer(argument)
    if number < 1:
        raise CommandError(error)
    return number


def count_of(argument: bytes, least: int, error: str) -> int:
    """A count that has one error for all that can be wrong with it."""
    count = integer(argument, error)
    if count < least:
        raise CommandError(error)
    return count


def many_popped(arguments: Sequence[bytes], at: int, ends: Sequence[bytes]) -> tuple[Sequence[bytes], bytes, int]:
    """`numkeys key ... <one of ends> [COUNT n]`, from `at` on: the keys, the end, and how many."""
    first = at + 1
    keys_end = first + count_of(arguments[at], 1, "ERR numkeys should be greater than 0")
    words, options = arguments[keys_end : keys_end + 1], arguments[keys_end + 1 :]
    if not words or words[0].upper() not in ends:
        raise syntax_error()
    count = 1
    if options:
        if len(options) == 1 or options[0].upper() != b"COUNT":
            raise syntax_error()
        count = count_of(options[1], 1, "ERR count should be greater than 0")
        if len(options) > 2:
            raise syntax_error()
    return arguments[first:keys_end], words[0].upper(), count


def add_floats(value: bytes, increment: bytes, *, value_error: str = NOT_A_FLOAT) -> bytes:
    """The sum of two numbers as INCRBYFLOAT and HINCRBYFLOAT compute and print it."""
    number = parse_long_double(value)
    if number is None:
        raise CommandError(value_error)
    by = parse_long_double(increment)
    if by is None:
        raise CommandError(NOT_A_FLOAT)
    total = add_long_doubles(number, by)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    return format_long_double(total)
