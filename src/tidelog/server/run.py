"""Runs: how hot commands are called.

    run(commands, at, out) -> at

A run handles commands from a place in a buffer on, as long as they are its own in their plain form; it appends their
replies to `out` and returns the place of the first that it did not handle.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.resp.exact import Command

Commands = list[Command]
Run = Callable[[Commands, int, list[bytes]], int]
HotCommands = dict[bytes, Run]
"""By name."""
