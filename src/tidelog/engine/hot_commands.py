"""How commands of the hot path are called.

    run(commands, at, out) -> at

A run handles commands from a place in a buffer on, as long as they are its own in their plain form. It appends their
replies to `out` and returns the place of the first command that it did not handle. Its caller counts the commands in
between (`tallies`), but for a run of MULTI, which has several in it and counts them itself.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.resp.exact import Words

Commands = list[Words]
HotRun = Callable[[Commands, int, list[bytes]], int]
HotCommands = dict[bytes, HotRun]
"""By name."""
