"""WATCH: tells clients that a key they watch has changed before their EXEC.

Watchers are told before a key changes, through the database's observer. It is set only while some key is watched, so
otherwise a change costs nothing more.
"""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """A client that watches keys."""

    watched: set[tuple[int, bytes]]
    is_dirty: bool


class Watchable(Protocol):
    """A database."""

    number: int

    def find(self, key: bytes) -> object | None: ...


class RangeOfKeys(Protocol):
    """Some keys that go together."""

    def has(self, key: bytes) -> bool: ...


class Watches:
    """All watched keys of a store."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[int, bytes], set[int]] = {}
        self._by_identity: dict[int, Watcher] = {}

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, watcher: Watcher, database: int, key: bytes) -> None:
        watcher.watched.add((database, key))
        self._watchers.setdefault((database, key), set()).add(id(watcher))
        self._by_identity[id(watcher)] = watcher

    def forget(self, watcher: Watcher) -> None:
        """End all watches of a client, which then starts clean, with a new set: who has the old one still sees it."""
        for place in watcher.watched:
            watchers = self._watchers.get(place, set())
            watchers.discard(id(watcher))
            if not watchers:
                self._watchers.pop(place, None)
        self._by_identity.pop(id(watcher), None)
        watcher.watched = set()
        watcher.is_dirty = False

    def touch(self, database: Watchable, key: bytes | None) -> None:
        """A key is about to change; None: every key that the database has."""
        number = database.number
        if key is None:
            places = [place for place in self._watchers if place[0] == number and database.find(place[1]) is not None]
        else:
            places = [(number, key)]
        self._mark(places)

    def touch_range(self, database: Watchable, removal: RangeOfKeys) -> None:
        """The keys of a range are about to go."""
        number = database.number
        self._mark(
            [
                place
                for place in self._watchers
                if place[0] == number and removal.has(place[1]) and database.find(place[1]) is not None
            ]
        )

    def _mark(self, places: list[tuple[int, bytes]]) -> None:
        for place in places:
            for identity in self._watchers.get(place, ()):
                self._by_identity[identity].is_dirty = True
