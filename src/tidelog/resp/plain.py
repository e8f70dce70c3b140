"""Requests in their plain form, whole in one buffer: nearly all that clients send.

Compiled, this takes a fraction of what hiredis takes for the same bytes. It decides nothing: at the first byte that is
not plain it stops, before the command that holds it, and `exact` says what that is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_STAR: Final[i64] = ord("*")
_DOLLAR: Final[i64] = ord("$")
_ZERO: Final[i64] = ord("0")
_CR: Final[i64] = ord("\r")
_LF: Final[i64] = ord("\n")
_ARGUMENTS_MAX: Final[i64] = 9_999
BULK_BYTES_MAX: Final[i64] = 99_999


def take_plain(data: bytes, commands: list[list[bytes]], bulk_bytes_max: i64 = BULK_BYTES_MAX) -> int:
    """Append the commands at the start of these bytes; returns where the first that is not taken begins. Hot."""
    size: i64 = len(data)
    at: i64 = 0
    taken: i64 = 0
    # The shortest command has ten bytes.
    while at + 10 <= size and data[at] == _STAR:
        count: i64 = data[at + 1] - _ZERO
        if not 0 < count <= 9:
            break
        at += 2
        digit: i64 = data[at] - _ZERO
        while 0 <= digit <= 9 and count <= _ARGUMENTS_MAX and at + 9 <= size:
            count = count * 10 + digit
            at += 1
            digit = data[at] - _ZERO
        if count > _ARGUMENTS_MAX or data[at] != _CR or data[at + 1] != _LF:
            break
        command: list[bytes] = []
        at = take_arguments(data, at + 2, count, command, bulk_bytes_max)
        if len(command) < count:
            break
        commands.append(command)
        taken = at
    return taken


def take_arguments(data: bytes, at: i64, count: i64, arguments: list[bytes], bulk_bytes_max: i64) -> i64:
    """Append up to `count` arguments from a place on; returns where the first that is not taken begins. Hot."""
    size: i64 = len(data)
    # The shortest argument has six bytes.
    while count > 0 and at + 6 <= size and data[at] == _DOLLAR:
        length: i64 = data[at + 1] - _ZERO
        if not 0 <= length <= 9:
            break
        head: i64 = at + 2
        digit: i64 = data[head] - _ZERO
        while 0 <= digit <= 9 and 0 < length <= bulk_bytes_max and head + 4 <= size:
            length = length * 10 + digit
            head += 1
            digit = data[head] - _ZERO
        start: i64 = head + 2
        end: i64 = start + length
        if (
            length > bulk_bytes_max
            or end + 2 > size
            or data[head] != _CR
            or data[head + 1] != _LF
            or data[end] != _CR
            or data[end + 1] != _LF
        ):
            break
        arguments.append(data[start:end])
        at = end + 2
        count -= 1
    return at
