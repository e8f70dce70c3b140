"""Commands that wait: what a handler raises when there is nothing to answer yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.resp.encoder import NULL_ARRAY, Reply


class WouldBlock(Exception):
    """The command is to be run again when one of its keys has changed, or a time has come."""

    def __init__(
        self,
        keys: Sequence[bytes],
        arguments: Sequence[bytes],
        timeout_ms: int,
        *,
        operations: Sequence[Any] = (),
        group: bytes | None = None,
        due_ms: int = 0,
        needs_key: bool = False,
        outlasts_types: bool = False,
        timed_out: Reply = NULL_ARRAY,
    ) -> None:
        super().__init__()
        self.keys = keys
        self.arguments = arguments
        """What is run again: as the client sent it, with words such as `$` replaced by what they meant at first."""
        self.timeout_ms = timeout_ms
        """0: it waits for ever."""
        self.operations = operations
        """What has changed already, such as a group that was made."""
        self.group = group
        """Whose readers all see the same; None: a reader by itself."""
        self.due_ms = due_ms
        """When something becomes ready by itself (absolute); 0: never."""
        self.needs_key = needs_key
        """It is not run again while none of its keys is there: it would make what somebody has just deleted."""
        self.outlasts_types = outlasts_types
        """A key of another type does not end its wait."""
        self.timed_out = timed_out
        """The reply when the time is over."""
