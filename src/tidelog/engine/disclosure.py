"""What replies may tell of keys: asked while changes of these cannot be written, and may be lost."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.engine.dispatch import find_command
from tidelog.engine.table import NO_KEYS, CommandTable, HandlerKind, find_keys
from tidelog.errors import CommandError
from tidelog.resp.exact import Words


class Asked:
    """The commands that a client's replies of one turn answer, and those of a MULTI that has begun."""

    __slots__ = ("commands",)

    def __init__(self) -> None:
        self.commands: list[Words] | None = None
        """All that were run, and perhaps some behind them; None: there are none."""

    def add(self, commands: list[Words], watched: Iterable[tuple[int, bytes]]) -> None:
        """More of them; `watched`: what the client watches, which EXEC may tell of."""
        known = [] if self.commands is None else self.commands
        known += commands
        keys = [key for _, key in watched]
        if keys:
            known.append([b"WATCH", *keys])
        self.commands = known

    def may_tell_of(self, keys: frozenset[bytes] | None, table: CommandTable, are_writes_refused: bool) -> bool:
        """Whether the replies may depend on what these keys hold; None: on what any key holds.

        `are_writes_refused`: they were when these ran, so the reply to a write says only that. EXEC does not count by
        itself: the commands of its MULTI do. INFO tells how many keys there are, and is to be answered all the same.
        """
        return any(_may_tell_of(keys, table, words, are_writes_refused) for words in self.commands or ())


def _may_tell_of(keys: frozenset[bytes] | None, table: CommandTable, words: Words, are_writes_refused: bool) -> bool:
    try:
        row = find_command(table, words)
        if are_writes_refused and row.writes(words):
            return False
        if row.keys == NO_KEYS:
            return row.kind is not HandlerKind.CONNECTION  # DBSIZE, KEYS, SCAN, FLUSHALL ...
        return keys is None or not keys.isdisjoint(find_keys(row.keys, words))
    except CommandError:
        return False  # and an error is its reply
