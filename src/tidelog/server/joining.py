"""Joins large arguments, which the decoder leaves in pieces, on a thread."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine.staging import Staging
from tidelog.resp.exact import Unjoined, Words


def join_large(
    commands: list[Words], unjoined: list[Unjoined], staging: Staging | None, done: Callable[[], None]
) -> int:
    """Put the large arguments of some commands into their places, and then call `done`; takes them out of `unjoined`.

    Returns the place of the first command that waits for one. Without a thread all is done at once.
    """
    joining = Joining(list(unjoined), done)
    first = next(at for at, command in enumerate(commands) if command is unjoined[0].command)
    unjoined.clear()
    if staging is not None:
        staging.worker.submit(joining.join, joining.place)
    else:
        joining.join()
        joining.place()
    return first


class Joining:
    """Large arguments that are being joined."""

    def __init__(self, unjoined: list[Unjoined], done: Callable[[], None]) -> None:
        self._unjoined = unjoined
        self._joined: list[bytes] = []
        self._done = done

    def join(self) -> None:
        """On the thread: a join of `bytes` lets others run if it is large."""
        self._joined = [b"".join(each.pieces) for each in self._unjoined]

    def place(self) -> None:
        for each, value in zip(self._unjoined, self._joined, strict=True):
            each.command[each.at] = value
        self._unjoined.clear()
        self._done()
