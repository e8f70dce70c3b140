"""All clients that are connected, and how many commands they have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.engine.session import Session


class Sessions:
    """The clients of a server, in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[int, Session] = {}
        self._last_id = 0
        self._commands_before = 0
        """Commands of clients that are gone, less those that no longer count."""

    def __len__(self) -> int:
        return len(self._by_id)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, session: Session) -> None:
        self._by_id[session.id] = session

    def remove(self, session: Session) -> None:
        if self._by_id.pop(session.id, None) is not None:
            self._commands_before += session.command_count

    def all(self) -> list[Session]:
        return list(self._by_id.values())

    def find(self, session_id: int) -> Session | None:
        return self._by_id.get(session_id)

    def states_changed(self) -> None:
        """Something that decides which path commands take has changed for all clients."""
        for session in self._by_id.values():
            session.state_changed()

    def let_in(self) -> None:
        """There is no password any more: no client has to authenticate."""
        for session in self._by_id.values():
            if not session.is_authenticated:
                session.authenticate()

    @property
    def command_count(self) -> int:
        """Commands of all clients, also of those that are gone."""
        return self._commands_before + sum(session.command_count for session in self._by_id.values())

    def reset_count(self) -> None:
        self._commands_before -= self.command_count
