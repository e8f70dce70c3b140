"""Requests in their plain form, whole in one buffer: nearly all that clients send.

Compiled, this takes a fraction of what hiredis takes for the same bytes. It decides nothing: at the first byte that is
not plain it stops, before the command that holds it, and `exact` says what that is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tidelog.resp.exact import Command

_STAR: Final[i64] = ord("*")
_DOLLAR: Final[i64] = ord("$")
_ZERO: Final[i64] = ord("0")
_CR: Final[i64] = ord("\r")
_LF: Final[i64] = ord("\n")
_ARGUMENTS_MAX: Final[i64] = 9_999
BULK_BYTES_MAX: Final[i64] = 99_999


def take_plain(data: bytes, commands: list[Command], bulk_bytes_max: i64 = BULK_BYTES_MAX) -> int:
    """Append the commands at the start of these bytes; returns where the first that is not taken begins. Hot."""
    size: i64 = len(data)
    at: i64 = 0
    taken: i64 = 0
    # The shortest command has ten bytes, the shortest argument six.
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
        at += 2
        command: Command = []
        while count > 0 and at + 6 <= size and data[at] == _DOLLAR:
            length: i64 = data[at + 1] - _ZERO
            if not 0 <= length <= 9:
                break
            at += 2
            digit = data[at] - _ZERO
            while 0 <= digit <= 9 and 0 < length <= bulk_bytes_max and at + 4 <= size:
                length = length * 10 + digit
                at += 1
                digit = data[at] - _ZERO
            start: i64 = at + 2
            end: i64 = start + length
            if (
                length > bulk_bytes_max
                or end + 2 > size
                or data[at] != _CR
                or data[at + 1] != _LF
                or data[end] != _CR
                or data[end + 1] != _LF
            ):
                break
            command.append(data[start:end])
            at = end + 2
            count -= 1
        if count > 0:
            break
        commands.append(command)
        taken = at
    return taken
