"""Holds of named feeds: how far the reader of a name has come, for which the journal keeps what it has not read.

A hold belongs to a database and a name. It is a durable holder of the journal (`journal/retention.py`), called
`feed <database>:<name>`. Earlier versions called it `feed:<name>`, whatever the database: such a hold goes to the first
reader that asks for its name.

A hold only moves forwards, by FEED ACK. It is let go when it has not moved for too long; its next reader is told so.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import ClientError, HolderLapsed
from tidelog.ids import Ts
from tidelog.journal.journal import Journal
from tidelog.journal.retention import Holder
from tidelog.ports import Clock


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

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._holders = journal.holders
        self._clock = clock

    def find(self, database: int, name: str) -> Holder | None:
        """The hold of a name; None if there is none. `HolderLapsed` if it was let go."""
        own = holder_name(database, name)
        if own not in self._holders and _earlier_name(name) in self._holders:
            self._holders.rename(_earlier_name(name), own)
        return self._get(own, name) if own in self._holders else None

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
        try:
            found = self.find(database, name)
        except HolderLapsed:
            found = None
        if found is None or found.ts > ts:
            self._holders.hold(holder_name(database, name), ts, self._clock.wall_us(), durable=True)

    def acknowledge(self, database: int, name: str, ts: Ts) -> None:
        """The reader of a name needs nothing at or below `ts` any more."""
        if ts > max(self._journal.hlc.last, self._clock.wall_us()):
            raise ClientError(f"{ts} lies ahead of the clock here")
        if self.find(database, name) is None:
            raise _unknown(name)
        seen = min(ts, self._journal.writer.visible.ts)
        epoch = self._journal.epoch_id
        self._holders.move(holder_name(database, name), ts, self._clock.wall_us(), epoch, seen)

    def drop(self, database: int, name: str) -> None:
        """Keep nothing for a name any more, also if it was let go already."""
        for known in (holder_name(database, name), _earlier_name(name)):
            if known in self._holders:
                self._holders.release(known)
                return
        raise _unknown(name)

    def all(self) -> list[FeedHold]:
        """By database and name."""
        now_us = self._clock.wall_us()
        found = [
            FeedHold(*where, holder.ts, max(0, now_us - holder.moved_us), holder.lapsed)
            for holder in self._holders.all()
            if (where := _database_and_name(holder.name)) is not None
        ]
        return sorted(found, key=lambda hold: (-1 if hold.database is None else hold.database, hold.name))

    def _get(self, holder: str, name: str) -> Holder:
        """Errors have the name that the client gave."""
        try:
            return self._holders.get(holder)
        except HolderLapsed as error:
            raise HolderLapsed(f"the feed named {name!r} was let go: {error.reason}", reason=error.reason) from error


def holder_name(database: int, name: str) -> str:
    return f"feed {database}:{name}"


def _earlier_name(name: str) -> str:
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
