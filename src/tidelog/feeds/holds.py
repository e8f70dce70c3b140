"""Holds of named feeds: how far the reader of a name has come, for which the journal keeps what it has not read.

A hold belongs to a database and a name. It is a named holder of the store (`store/holds.py`), called
`feed <database>:<name>`. Early versions called it `feed:<name>`, whatever the database: such a hold goes to the first
reader that asks for its name.

A hold only moves forwards, by FEED ACK. It is let go when it has not moved for too long; its next reader is told so.
Each change is a transaction like any other, or a part of one: it is durable when they are, and followers get it. A
promoted follower has the holds, and the journal that they hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog import limits
from tidelog.errors import ClientError, HolderLapsed, LimitExceeded
from tidelog.ids import Ts
from tidelog.journal.retention import Holder, check_name, first_lapsed
from tidelog.ports import Clock
from tidelog.store.hold_changes import change_holds
from tidelog.store.store import Store
from tidelog.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class FeedHold:
    """A hold, as FEED HOLDS shows it."""

    database: int | None
    """None: an earlier version made it, and nobody has asked for it since."""
    name: str
    ts: Ts
    """Everything after it is kept."""
    idle_us: int
    """Since it last moved."""
    lapsed: str | None
    """Why it was let go."""


class FeedHolds:
    """The holds of all named feeds."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._journal = store.journal
        self._named = store.holds.by_name
        self._clock = clock

    def find(self, database: int, name: str) -> Holder | None:
        """The hold of a name; None if there is none. `HolderLapsed` if it was let go."""
        found = self._find_any(database, name)
        if found is not None and found.lapsed is not None:
            raise HolderLapsed(f"the feed named {name!r} was let go: {found.lapsed}", reason=found.lapsed)
        return found

    def _find_any(self, database: int, name: str) -> Holder | None:
        """The same, let go or not."""
        return self._named.get(holder_name(database, name)) or self._named.get(_early_name(name))

    def get(self, database: int, name: str) -> Holder:
        """The hold from which a reader goes on. A name that nobody has begun is most likely a mistake, and to begin now
        would lose what the reader has not read."""
        found = self.find(database, name)
        if found is None:
            raise ClientError(
                f"there is no feed named {name!r}: the first one says with SINCE or INITIAL where it begins "
                f"(FEED POSITION tells the ts of now)"
            )
        return found

    def begin(self, database: int, name: str, ts: Ts) -> None:
        """Hold everything after `ts`, unless the hold of that name keeps more. One that was let go begins anew."""
        own, found = holder_name(database, name), self._find_any(database, name)
        if found is None:
            check_name(own)
            change_holds(self._store, [Holder(own, ts, self._clock.wall_us())], self._make_room())
        elif found.lapsed is not None or found.ts > ts:
            self._change(found, Holder(own, ts, self._clock.wall_us()))
        elif found.name != own:
            self._change(found, found._replace(name=own))

    def _make_room(self) -> list[str]:
        """Which other hold goes for a new one: it was let go, and its reader never came to hear of it."""
        if len(self._named) < limits.HOLDERS_MAX:
            return []
        lapsed = first_lapsed(self._named.values())
        if lapsed is None:
            raise LimitExceeded(f"there are {limits.HOLDERS_MAX} named feeds already")
        return [lapsed]

    def _change(self, before: Holder, after: Holder, joined: Transaction | None = None) -> None:
        change_holds(self._store, [after], [before.name] if before.name != after.name else [], joined)

    def acknowledge(self, database: int, name: str, ts: Ts, joined: Transaction | None = None) -> None:
        """The reader of a name needs nothing at or below `ts` any more: a transaction, or a part of `joined`."""
        now_us = self._clock.wall_us()
        if ts > max(self._journal.hlc.last, now_us):
            raise ClientError(f"{ts} lies ahead of the clock here")
        found = self.find(database, name)
        if found is None:
            raise _unknown(name)
        seen = min(ts, self._journal.writer.visible.ts)
        moved = Holder(holder_name(database, name), max(found.ts, ts), now_us, epoch=self._journal.epoch_id, seen=seen)
        self._change(found, moved, joined)

    def drop(self, database: int, name: str, joined: Transaction | None = None) -> None:
        """Keep nothing for a name any more, also if it was let go already."""
        found = self._find_any(database, name)
        if found is None:
            raise _unknown(name)
        change_holds(self._store, [], [found.name], joined)

    def all(self) -> list[FeedHold]:
        """By database and name."""
        now_us = self._clock.wall_us()
        found = [
            FeedHold(*where, holder.ts, max(0, now_us - holder.moved_us), holder.lapsed)
            for holder in self._named.values()
            if (where := _database_and_name(holder.name)) is not None
        ]
        return sorted(found, key=lambda hold: (-1 if hold.database is None else hold.database, hold.name))


def holder_name(database: int, name: str) -> str:
    return f"feed {database}:{name}"


def _early_name(name: str) -> str:
    return f"feed:{name}"


def _database_and_name(holder: str) -> tuple[int | None, str] | None:
    """None: it is the holder of something else."""
    kind, colon, name = holder.partition(":")
    word, _, database = kind.partition(" ")
    if word != "feed" or not colon:
        return None
    return (int(database) if database else None), name


def _unknown(name: str) -> ClientError:
    return ClientError(f"there is no feed named {name!r}")
