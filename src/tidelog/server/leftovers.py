"""What a server leaves undone when it stops, in words for the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Unfinished(Protocol):
    """A client that may have been left without its replies."""

    @property
    def is_busy(self) -> bool: ...

    @property
    def backlog_bytes(self) -> int: ...

    @property
    def unsent_bytes(self) -> int: ...


def what_is_left(clients: Iterable[Unfinished], *, unwritten_bytes: int, waits_for_fsync: bool) -> str:
    """Nothing if everything that was accepted is stored and answered."""
    left = []
    if unwritten_bytes:
        left.append(f"{unwritten_bytes} bytes of changes that the disk did not take")
    elif waits_for_fsync:
        left.append("replies that wait for an fsync")
    busy = [each for each in clients if each.is_busy]
    unread = [each.unsent_bytes for each in busy if each.unsent_bytes]
    if unread:
        left.append(f"{sum(unread)} bytes of replies that {_clients(len(unread))} did not take")
    not_run = [each.backlog_bytes for each in busy if each.backlog_bytes]
    if not_run:
        left.append(f"{sum(not_run)} bytes of commands of {_clients(len(not_run))} that were not run")
    return ", ".join(left)


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"
