"""The slow log: the newest commands that took long.

Only commands of the general path are timed: a hot command does a fixed amount of work. Arguments that may hold a
password are shown as `(redacted)` (the row says which), and of long commands only the beginning is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.engine.table import REDACTED, Command

THRESHOLD_US_DEFAULT: Final = 10_000
LENGTH_MAX_DEFAULT: Final = 128
_ARGUMENTS_MAX: Final = 32
_ARGUMENT_BYTES_MAX: Final = 128


class SlowCommand(NamedTuple):
    """A command that took long."""

    id: int
    began_s: int
    took_us: int
    arguments: list[bytes]
    peer: str
    client_name: bytes


class SlowLog:
    """The newest slow commands."""

    def __init__(self) -> None:
        self.threshold_us = THRESHOLD_US_DEFAULT
        """Negative: nothing is slow."""
        self.entries: deque[SlowCommand] = deque(maxlen=LENGTH_MAX_DEFAULT)
        """Newest first."""
        self._next_id = 0

    @property
    def length_max(self) -> int:
        return self.entries.maxlen or 0

    @length_max.setter
    def length_max(self, length: int) -> None:
        kept = list(self.entries)[:length]
        self.entries = deque(kept, maxlen=length)

    def add(
        self, row: Command, arguments: Sequence[bytes], now_s: int, took_us: int, *, peer: str, client_name: bytes
    ) -> None:
        shown = _shown(row, arguments)
        self.entries.appendleft(SlowCommand(self._next_id, now_s, took_us, shown, peer, client_name))
        self._next_id += 1


def _shown(row: Command, arguments: Sequence[bytes]) -> list[bytes]:
    secret_from = row.secret_from or len(arguments)
    shown = []
    for index, argument in enumerate(arguments[:_ARGUMENTS_MAX]):
        if index == _ARGUMENTS_MAX - 1 and len(arguments) > _ARGUMENTS_MAX:
            shown.append(b"... (%d more arguments)" % (len(arguments) - _ARGUMENTS_MAX + 1))
        elif index >= secret_from:
            shown.append(REDACTED)
        elif len(argument) > _ARGUMENT_BYTES_MAX:
            more = len(argument) - _ARGUMENT_BYTES_MAX
            shown.append(b"%b... (%d more bytes)" % (argument[:_ARGUMENT_BYTES_MAX], more))
        else:
            shown.append(argument)
    return shown
