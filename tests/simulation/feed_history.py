"""What each database held after each transaction: the truth that feeds are measured by, kept in the plainest way.

noted       the state after a transaction, or after some at once
at(ts)      the state at any moment; None: inside of what happened at once, where nobody has looked
cut(ts)     what came after it was lost
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from tests.feeds.rebuilt import State, state_of
from tidelog.feeds.span import Span
from tidelog.store.store import Store

_EVERYTHING = [Span(b"", b"")]


class History:
    """Of some databases."""

    def __init__(self, databases: tuple[int, ...]) -> None:
        self._databases = databases
        self.times: list[int] = [0]
        self._states: list[dict[int, State] | None] = [{number: {} for number in databases}]

    def note(self, store: Store, *, is_one: bool = True) -> None:
        """Something may have happened: one transaction, or several at once."""
        ts = store.journal.writer.last_ts
        if ts <= self.times[-1]:
            return
        if not is_one:
            self._add(self.times[-1] + 1, None)
        self._add(ts, {number: state_of(store.database(number), _EVERYTHING) for number in self._databases})

    def _add(self, ts: int, state: dict[int, State] | None) -> None:
        if self.times[-1] == ts:
            self._states[-1] = state
        else:
            self.times.append(ts)
            self._states.append(state)

    def at(self, ts: int, database: int, is_wanted: Callable[[bytes], bool]) -> State | None:
        found = self._states[bisect_right(self.times, ts) - 1]
        if found is None:
            return None
        return {key: value for key, value in found[database].items() if is_wanted(key)}

    def cut(self, store: Store) -> list[int]:
        """The store was opened again; returns the times of what it has lost."""
        last_ts = store.journal.writer.last_ts
        kept = bisect_right(self.times, last_ts)
        lost = self.times[kept:]
        del self.times[kept:], self._states[kept:]
        if self._states[-1] is None:  # it ends inside of what happened at once
            self._add(last_ts, {number: state_of(store.database(number), _EVERYTHING) for number in self._databases})
        return lost
