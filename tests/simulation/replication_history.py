"""What every leader has committed, as a tree: the truth that all servers and feeds are measured by.

    lineage      an epoch, with all epochs before it: one line of history from the beginning to that epoch's end
    place        an epoch's id and the ts of a transaction in it; inside an epoch one process has written, so a place is
                 one moment of one history, whoever has it
    moment       what was there at a place: the lsns, and the state

A server's own epochs and its last ts say where it claims to be. It must be exactly what was there then: so whatever a
server ever showed was a beginning of one history. Where several leaders have lived at a time, the tree has branches;
two places are on one history if one lies before the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import hiredis

from tests.feeds.rebuilt import LAST_ID, RULE
from tests.feeds.rebuilt import State as KnownState
from tests.simulation.recovery import require
from tests.simulation.store_model import State, difference, live_state
from tests.simulation.stream_model import PlainStream
from tidelog.journal.control import Epoch
from tidelog.journal.journal import Journal
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.streams.stream import Stream

Place = tuple[int, int]
"""Epoch and ts."""
BEGINNING: Final[Place] = (0, 0)
PRODUCERS: Final = -100
"""Added to the number of a database: the producers of its streams, with their keys."""


class Moment(NamedTuple):
    """What was there after a transaction."""

    lsns: tuple[int, ...]
    state: State


class Lineage(NamedTuple):
    """An epoch and all before it, oldest first."""

    epochs: tuple[Epoch, ...]

    def end_of(self, epoch_id: int) -> int | None:
        """The last ts of an epoch that counts on this line; -1: it is the newest and goes on. None: it is not on it."""
        for index, epoch in enumerate(self.epochs):
            if epoch.id == epoch_id:
                return self.epochs[index + 1].last_ts if index + 1 < len(self.epochs) else -1
        return None


def place_of(epochs: Sequence[Epoch], ts: int) -> Place:
    """Where a server with these epochs is whose last transaction has this ts."""
    for epoch in reversed(epochs):
        if epoch.last_ts < ts:
            return epoch.id, ts
    return BEGINNING


class SeenKeys:
    """Finds the keys of a database without walking through all of its slots: those that were seen in any before.

    If there are not as many of them as the database counts, it has others, which are then looked for.
    """

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}

    def of(self, database: Database) -> list[bytes]:
        found = [key for key in self._seen if database.peek(key) is not None]
        if len(found) != database.size:
            found = list(database.all_keys())
            self._seen.update(dict.fromkeys(found))
        return found


def full_state(store: Store, seen: SeenKeys | None = None) -> State:
    """All that a store has: keys with their values, expiries, groups, libraries, holds and producers."""
    state = live_state(store) if seen is None else live_state(store, seen.of)
    streams = [place for place, (value, _) in state.items() if type(value) is tuple and value[0] == "stream"]
    for number, key in streams:
        stream = store.databases[number].peek(key)
        assert isinstance(stream, Stream)
        if stream.producers:
            known = {name: (tuple(each.seqs), tuple(each.offsets)) for name, each in stream.producers.items()}
            state[PRODUCERS - number, key] = known, None
    return state


class ReplicationHistory:
    """All histories of one world."""

    def __init__(self) -> None:
        self._moments: dict[Place, Moment] = {}
        self._known: dict[tuple[Place, int], KnownState] = {}
        """What clients should know of a database at a place, once it was asked for."""
        self._times: dict[int, list[int]] = {}
        """Epoch -> when its transactions were."""
        self._lineages: dict[int, Lineage] = {}
        self._leader_of: dict[int, str] = {}
        """Epoch -> who has begun it, and alone may write in it."""
        self._seen = SeenKeys()
        self.compared = 0

    # --- what leaders do ----------------------------------------------------------------------------------------

    def note_epochs(self, journal: Journal, who: str, *, leads: bool) -> bool:
        """Somebody's newest epochs may have begun since: by itself, perhaps in a process that died in the middle."""
        is_new = False
        for index, epoch in enumerate(journal.epochs):
            if epoch.id in self._lineages:
                continue
            before = tuple(journal.epochs[:index])
            require(leads, who, "follows, and has begun", epoch)
            require(not before or self._lineages[before[-1].id].epochs == before, "epochs are lost:", before)
            require(epoch.last_ts == journal.writer.last_ts, epoch, "began after ts", journal.writer.last_ts)
            require(epoch.first_ts > epoch.last_ts, epoch, "begins before the end of the one before it")
            require(not before or epoch.first_ts > before[-1].first_ts, epoch, "begins before one before it:", before)
            self._lineages[epoch.id] = Lineage((*before, epoch))
            self._times[epoch.id] = []
            self._leader_of[epoch.id] = who
            is_new = True
        return is_new

    def commit(self, store: Store, before: Place, who: str) -> None:
        """A leader has made a transaction."""
        journal = store.journal
        epoch, ts = journal.epochs[-1], journal.writer.last_ts
        times = self._times[epoch.id]
        require(self._leader_of[epoch.id] == who, who, "writes in", epoch, "of", self._leader_of[epoch.id])
        require(ts >= epoch.first_ts, "ts", ts, "is below the first of", epoch)
        require(ts > (times[-1] if times else epoch.last_ts), "ts", ts, "is not above the last one")
        last = (epoch.id, times[-1]) if times else place_of(journal.epochs, epoch.last_ts)
        require(before == last, "it was committed after", before, "and epoch goes on after", last)
        times.append(ts)
        self._moments[epoch.id, ts] = Moment(journal.writer.next_lsns, full_state(store, self._seen))

    # --- what anybody has ---------------------------------------------------------------------------------------

    def lineage(self, epochs: Sequence[Epoch]) -> Lineage:
        """The line of history that a server with these epochs is on."""
        if not epochs:
            return Lineage(())
        found = self._lineages.get(epochs[-1].id)
        require(found is not None and found.epochs == tuple(epochs), "nobody has begun", epochs, "but", found)
        assert found is not None
        return found

    def has(self, lineage: Lineage, ts: int, wanted: Place) -> bool:
        """Whether a server that is at a ts of a line has what happened up to a place."""
        epoch, wanted_ts = wanted
        if wanted == BEGINNING:
            return True
        end = lineage.end_of(epoch)
        return end is not None and (wanted_ts <= end or end == -1) and wanted_ts <= ts

    def check(self, store: Store, who: str, *, in_all_slots: bool = False) -> None:
        """What a server has is what was there at the place that it says it is at."""
        journal = store.journal
        lineage = self.lineage(journal.epochs)
        place = place_of(journal.epochs, journal.writer.last_ts)
        require(place[1] == journal.writer.last_ts, who, "has ts", journal.writer.last_ts, "of no epoch")
        moment = self._moments.get(place)
        found = full_state(store, None if in_all_slots else self._seen)
        self.compared += 1
        if place == BEGINNING:
            require(not found, who, "has something before anything happened:", found)
            return
        require(moment is not None, who, "is at", place, "where nothing happened")
        assert moment is not None
        require(self.has(lineage, place[1], place), who, "is beyond the end of an epoch:", place, lineage)
        lsns = journal.writer.next_lsns
        require(lsns == moment.lsns, who, "at", place, "has lsns", lsns, "and should have", moment.lsns)
        require(found == moment.state, who, "at", place, ":", difference(moment.state, found))

    # --- what feeds may say -------------------------------------------------------------------------------------

    def known_at(self, lineage: Lineage, last_ts: int, ts: int, database: int) -> KnownState:
        """What a client should know of a database at a moment, by a server that is at `last_ts` of a line."""
        ts = min(ts, last_ts)
        for index in range(len(lineage.epochs) - 1, -1, -1):
            epoch = lineage.epochs[index]
            end = lineage.epochs[index + 1].last_ts if index + 1 < len(lineage.epochs) else ts
            times = self._times[epoch.id]
            count = bisect_right(times, min(ts, end))
            if count:
                return self._known_after((epoch.id, times[count - 1]), database)
        return {}

    def _known_after(self, place: Place, database: int) -> KnownState:
        known = self._known.get((place, database))
        if known is None:
            known = self._known[place, database] = _known(self._moments[place].state, database)
        return known

    def transactions_between(self, lineage: Lineage, after: int, upto: int) -> list[Place]:
        """What has happened on a line after a ts, up to another."""
        found = []
        for index, epoch in enumerate(lineage.epochs):
            end = lineage.epochs[index + 1].last_ts if index + 1 < len(lineage.epochs) else upto
            found += [(epoch.id, ts) for ts in self._times[epoch.id] if after < ts <= min(end, upto)]
        return found


def _known(state: State, database: int) -> KnownState:
    return {key: _shown(value) for (number, key), (value, _) in state.items() if number == database}


def _shown(value: Any) -> Any:
    """A value as a feed tells of it."""
    if isinstance(value, bytes):
        return value
    kind, inside = value
    if kind == "set":
        return kind, dict.fromkeys(inside, b"1")
    if kind == "list":
        return kind, list(inside)
    return (kind, _entries(inside)) if kind == "stream" else (kind, inside)


def _entries(stream: PlainStream) -> dict[int, Any]:
    reader = hiredis.Reader()
    found: dict[int, Any] = {}
    for offset, (id_, kind, tag, entry) in stream.entries.items():
        shown: Any = entry
        if kind:
            reader.feed(entry)
            shown = reader.gets()
        found[offset] = _id(id_), tag, shown
    if any(stream.rule):
        found[RULE] = stream.rule
    if stream.last_id:
        found[LAST_ID] = _id(stream.last_id)
    return found


def _id(id_: int) -> bytes:
    return b"%d-%d" % (id_ >> 64, id_ & 2**64 - 1)
