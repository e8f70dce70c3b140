"""How commands of the hot path are called.

    run(commands, at, out) -> at

A run handles commands from a place in a buffer on, as long as they are its own in their plain form. It appends their
replies to `out` and returns the place of the first command that it did not handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.resp.exact import Words
from tidelog.store.store import Store

Commands = list[Words]
HotRun = Callable[[Commands, int, list[bytes]], int]
HotCommands = dict[bytes, HotRun]
"""By name."""
MakeHotCommands = Callable[[Store, int, int, bool, bool], HotCommands]
"""(store, database, protocol, with writes, with MULTI) -> the hot commands of sessions like that."""

NOTHING_HOT: Final[HotCommands] = {}
"""For a session that is not plain."""
