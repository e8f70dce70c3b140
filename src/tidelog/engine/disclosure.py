"""What replies may tell of keys: asked while changes of these cannot be written, and may be lost.

Commands are remembered only if they can matter: those that ran while something was not written yet, and those of a
MULTI. Of a client that has itself changed something in a turn it is enough to know that. So the arguments of most
commands are freed right after they ran, while they are in the processor's cache: kept until the end of the turn, they
cost a pipeline of SETs a tenth.
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.dispatch import find_command
from tidelog.engine.table import NO_KEYS, CommandTable, HandlerKind, find_keys
from tidelog.errors import CommandError
from tidelog.resp.exact import Words

_ABOUT_HOLDS: Final = frozenset(["FEED|ACK", "FEED|DROP", "FEED|HOLDS"])
"""Commands that change the holds of named feeds, or tell of them."""

Watched = set[tuple[int, bytes]]
"""Databases and keys."""


class Asked:
    """The commands that a client's replies of one turn answer, and those of a MULTI that has begun."""

    __slots__ = ("buffers", "has_written", "watched")

    def __init__(self) -> None:
        self.buffers: list[list[Words]] = []
        """Those that matter, and perhaps others, as they came."""
        self.has_written = False
        """Some of them have changed something."""
        self.watched: list[Watched] = []
        """What the client watched meanwhile, which EXEC may tell of. Nothing is copied: it may be very many keys."""

    def add(self, commands: list[Words], watched: Watched) -> None:
        """More of them; `watched`: what the client watches now. A client that watches nothing more gets a new set."""
        self.buffers.append(commands)
        if watched and not (self.watched and self.watched[-1] is watched):
            self.watched.append(watched)

    def clear(self) -> None:
        """They are answered. Hot."""
        if self.buffers:
            self.buffers = []
        self.has_written = False
        if self.watched:
            self.watched = []

    def may_tell_of(self, keys: frozenset[bytes] | None, table: CommandTable, are_writes_refused: bool) -> bool:
        """Whether the replies may depend on what these keys hold; None: on what any key holds.

        `are_writes_refused`: they were when these ran, so the reply to a write says only that. EXEC does not count by
        itself: the commands of its MULTI do. INFO tells how many keys there are, and is to be answered all the same.
        """
        if self.has_written:
            return True
        for watched in self.watched:
            if watched and (keys is None or any(key in keys for _, key in watched)):
                return True
        return any(
            _may_tell_of(keys, table, words, are_writes_refused) for commands in self.buffers for words in commands
        )


def _may_tell_of(keys: frozenset[bytes] | None, table: CommandTable, words: Words, are_writes_refused: bool) -> bool:
    try:
        row = find_command(table, words)
        if are_writes_refused and row.writes(words):
            return False
        if "no_mandatory_keys" in row.flags:
            return True  # a script, which may look at any key
        if row.name.startswith("FUNCTION|") or row.name in _ABOUT_HOLDS:
            return not (are_writes_refused and "write" in row.flags)  # their changes name no key
        if row.keys == NO_KEYS:
            return row.kind is not HandlerKind.CONNECTION  # DBSIZE, KEYS, SCAN, FLUSHALL ...
        return keys is None or not keys.isdisjoint(find_keys(row.keys, words))
    except CommandError:
        return False  # and an error is its reply
