"""The named holders of a store: whom the journal is kept for, though nobody may be connected (`journal/retention.py`).

They are state like keys: records make them (`types/hold.py`), so they are there after a restart and on every follower.
What they mean is for `feeds/`.
"""

from __future__ import annotations

from tidelog.ids import Ts
from tidelog.journal.retention import NOTHING, Holder


class NamedHolds:
    """Name -> holder. All databases share one."""

    __slots__ = ("_data_ts", "_last_ts", "_replaced", "by_name", "is_touched")

    def __init__(self) -> None:
        self.by_name: dict[str, Holder] = {}
        self.is_touched = False
        """They were changed since the last `note`."""
        self._last_ts = Ts(0)
        """The newest transaction that changed them ..."""
        self._data_ts = Ts(0)
        """... and the newest up to then that did something else. 0: it is not known, and may be that very one."""

        self._replaced = NOTHING

    def put(self, holder: Holder, data_ts: Ts) -> None:
        self._note_replaced(holder.name)
        self.by_name[holder.name] = holder
        self._data_ts, self.is_touched = data_ts, True

    def remove(self, name: str, data_ts: Ts) -> None:
        """Fine if it is not there."""
        self._note_replaced(name)
        self.by_name.pop(name, None)
        self._data_ts, self.is_touched = data_ts, True

    def _note_replaced(self, name: str) -> None:
        before = self.by_name.get(name)
        if before is not None and before.lapsed is None:
            self._replaced = min(self._replaced, before.ts)

    def take_replaced(self) -> Ts:
        """The lowest ts that one held before it moved, was let go or released, since this was last asked."""
        replaced, self._replaced = self._replaced, NOTHING
        return replaced

    def note(self, ts: Ts) -> None:
        """A transaction that has changed them has this ts."""
        self._last_ts, self.is_touched = ts, False

    def data_ts(self, last_ts: Ts) -> Ts:
        """The newest transaction that did anything else, if the newest of all is this one. Or a later one: never more
        than what is known is left out."""
        return self._data_ts or last_ts if last_ts == self._last_ts else last_ts
