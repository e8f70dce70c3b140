"""Which settings about copies in object stores go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.server.configuration import ServerConfig

GivenSettings = Mapping[str, tuple[str, Any]]
"""Of every setting that is given, where, and what it says."""


def problem_of_copies(config: ServerConfig, found: GivenSettings) -> str | None:
    """What does not go together, with where it is said; None: all does."""
    return _problem_of_history(config, found) or _problem_of_following(config, found)


def _problem_of_history(config: ServerConfig, found: GivenSettings) -> str | None:
    """Of node files that lie only in a copy."""
    if config.local_history_us is not None:
        origin = found["local-history"][0]
        if config.ship_to is None:
            return f"{origin} needs ship-to beside it: what is not on disk must be somewhere else"
        if config.local_history_us > config.ship_keep_us:
            return (
                f"{origin} is more than ship-keep: it is by the snapshots in the copy that a server knows how old its "
                f"files are, so they must be kept for as long"
            )
    if config.restore_lazy and config.restore_from is None:
        return f"{found['restore-lazy'][0]} needs restore-from beside it"
    return None


def _problem_of_following(config: ServerConfig, found: GivenSettings) -> str | None:
    """A server that follows a copy takes its data from nowhere else, and never ships over it."""
    if config.follow_from is None:
        return None
    origin = found["follow-from"][0]
    if config.replicaof is not None:
        return f"{origin} and {found['replicaof'][0]}: a server follows a copy or a leader, not both"
    if config.restore_from is not None:
        return (
            f"{origin} and {found['restore-from'][0]}: a server that follows a copy fetches its data itself. Without "
            f"restore-from it does that; without follow-from it goes on with the database as its leader"
        )
    if config.ship_to is not None and config.ship_to.rstrip("/") == config.follow_from.rstrip("/"):
        return (
            f"{origin} and {found['ship-to'][0]} name the same place. Once it is promoted, this server ships a "
            f"database of its own: name another place for that"
        )
    return None
