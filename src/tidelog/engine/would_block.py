"""Commands that wait: what a handler raises when there is nothing to answer yet, or much to look at before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.resp.encoder import NULL_ARRAY, Reply
from tidelog.store.range_removal import RangeRemoval

ALIKE: Final = b""
"""The kin of pops: whatever they would pop, their key has some of it or none."""


class WouldBlock(Exception):
    """The command is to be run again when one of its keys has changed, or a time has come."""

    def __init__(
        self,
        keys: Sequence[bytes],
        arguments: Sequence[bytes],
        timeout_ms: int,
        *,
        operations: Sequence[Any] = (),
        kin: bytes | None = None,
        awaits: type[Any] | None = None,
        due_ms: int = 0,
        needs_key: bool = False,
        timed_out: Reply = NULL_ARRAY,
        at_once: Reply = NULL_ARRAY,
    ) -> None:
        super().__init__()
        self.keys = keys
        self.arguments = arguments
        """The command to run again: as the client sent it, but with words such as `$` replaced by what they meant."""
        self.timeout_ms = timeout_ms
        """0: it waits for ever."""
        self.operations = operations
        """Operations that are applied although the command waits, such as one that makes a group."""
        self.kin = kin
        """Clients that wait for one key with the same command and kin are alike: if one of them gets nothing, nobody
        behind it would. None: each has to be tried."""
        self.awaits = awaits
        """Run it again only when the key that changed holds a value of this class; None: whatever it holds now."""
        self.due_ms = due_ms
        """When something becomes ready by itself (absolute); 0: never."""
        self.needs_key = needs_key
        """Do not run it again while none of its keys exists: it would make again what somebody has just deleted."""
        self.timed_out = timed_out
        """The reply when the time is over."""
        self.at_once = at_once
        """The reply where nobody may wait: inside EXEC and scripts."""


class TakesSteps(Exception):
    """The command is to be run again once a range has been looked for, step by step, while others go on."""

    def __init__(self, removal: RangeRemoval) -> None:
        super().__init__()
        self.removal = removal
