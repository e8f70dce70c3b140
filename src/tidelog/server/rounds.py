"""Rounds: clients that send much take turns, so that those that send little wait for one turn of the loop at most.

A turn has so much time, and runs so many pieces, for all clients that send much together. What comes when that is used
up waits in line, in bytes or as commands that were decoded and not run yet. The next turn begins with the line:

    new    clients that have not had a go since they sent something: all of them first, as far as the turn goes
    old    clients that had one and have more: one at least in each turn, then round and round

The sockets are looked at after each turn. A client that sends little is not put in line at all, so a PING never waits
for more than the rest of a turn. A client whose last command took longer than a turn may (a script, say) gets in line
as an old one with whatever it sends next, so that a turn has one such command of it, and not all that it has sent.
After such a command old ones wait for a turn, in which the loop reads what others have sent meanwhile.

Bytes alone would not bound a turn: a few of them may ask for much. Time alone would not do either: a clock that stands
still, as in tests, would never end a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidelog import limits


class Sender(Protocol):
    """A client that has sent more than has been run."""

    def take_go(self) -> None:
        """Run a piece of it, and get in line again if there is more."""


class Rounds:
    """The line, and what is left of the turn."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._new: deque[Sender] = deque()
        self._old: deque[Sender] = deque()
        self._pieces_left = limits.TURN_PIECES_MAX
        self._end_us = 0
        """When the turn's time is over; 0: nobody has asked yet."""
        self._is_resting = False
        """Old ones wait in the next turn."""
        self._has_rested = False
        """They did in the last one."""

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def begin_turn(self) -> None:
        """The turn before has ended. Hot: the clock is only asked when somebody sends much."""
        self._pieces_left = limits.TURN_PIECES_MAX
        self._end_us = 0

    @property
    def is_late(self) -> bool:
        """The time of this turn is over."""
        now_us = self._now_us()
        if not self._end_us:
            self._end_us = now_us + limits.TURN_US_MAX
        return now_us >= self._end_us

    def has_room(self) -> bool:
        """Whether one more piece may be run in this turn. It counts as run."""
        self._pieces_left -= 1
        return self._pieces_left >= 0 and not self.is_late

    def rest(self) -> None:
        """A command took longer than a turn may: others are first now. If such commands come all the time, old ones
        have a go all the same."""
        self._is_resting = not self._has_rested

    def add(self, sender: Sender, *, is_new: bool) -> None:
        """Put a client in line. It must not be in line already."""
        if is_new:
            self._new.append(sender)
        else:
            self._old.append(sender)

    def clear(self) -> None:
        """Those in line go on elsewhere."""
        self._new.clear()
        self._old.clear()

    def go(self) -> None:
        """Let clients in line run a piece each, until the turn is over. Its time begins here."""
        self._end_us = self._now_us() + limits.TURN_US_MAX
        while self._new and self.has_room():
            self._new.popleft().take_go()
        self._has_rested, self._is_resting = self._is_resting, False
        if self._has_rested:
            return
        for _ in range(limits.TURN_PIECES_MAX):
            if not self._old:
                return
            self._old.popleft().take_go()
            if not self.has_room():
                return
