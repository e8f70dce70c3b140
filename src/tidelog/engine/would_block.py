"""Commands that wait: what a handler raises when there is nothing to answer yet, or much to look at before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.resp.encoder import NULL_ARRAY, Reply
from tidelog.store.range_removal import RangeRemoval


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
        """The command to run again: as the client sent it, but with words such as `$` replaced by what they meant."""
        self.timeout_ms = timeout_ms
        """0: it waits for ever."""
        self.operations = operations
        """Operations that are applied although the command waits, such as one that makes a group."""
        self.group = group
        """The group, whose readers all see the same entries; None: the reader is in no group."""
        self.due_ms = due_ms
        """When something becomes ready by itself (absolute); 0: never."""
        self.needs_key = needs_key
        """Do not run it again while none of its keys exists: it would make again what somebody has just deleted."""
        self.outlasts_types = outlasts_types
        """A key of another type does not end its wait."""
        self.timed_out = timed_out
        """The reply when the time is over."""


class TakesSteps(Exception):
    """The command is to be run again once a range has been looked for, step by step, while others go on."""

    def __init__(self, removal: RangeRemoval) -> None:
        super().__init__()
        self.removal = removal
