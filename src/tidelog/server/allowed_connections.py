"""How many connections of each kind a server may have: what is configured, or less if the system allows less."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.server.configuration import ServerConfig
from tidelog.server.listener import allow_descriptors

_LOG: Final = logging.getLogger("tidelog")


class AllowedConnections(NamedTuple):
    """How many there may be."""

    clients: int
    """Redis clients."""
    http: int
    """Over HTTP ..."""
    feeds: int
    """... of which these may be feeds ..."""
    polls: int
    """... and these may be polls of channels that wait."""


def allowed_connections(config: ServerConfig) -> AllowedConnections:
    """As many as the system allows; the log tells if they are fewer than was asked for."""
    has_http = config.http_port is not None
    polls = config.channel_polls if config.channels else 0
    http = config.http_feeds + polls + limits.HTTP_CONNECTIONS_MAX
    clients_allowed, http_allowed = allow_descriptors(config.maxclients, http if has_http else 0)
    if clients_allowed < config.maxclients:
        _LOG.warning(
            "the system allows too few open files for %d clients and %d connections over HTTP: at most %d and %d",
            config.maxclients,
            http if has_http else 0,
            clients_allowed,
            http_allowed,
        )
    return AllowedConnections(
        clients_allowed, http_allowed, http_allowed * config.http_feeds // http, http_allowed * polls // http
    )
