"""The channels of a server whose backend is that server itself.

They are a client of it like any other: what they write is journaled, fed and replicated as anybody's commands are.
They connect by way of a pair of sockets inside the process, which needs no port, no password and no TLS, and goes on
when the password is changed. Nothing waits for anything in the server's loop: calls and replies pass through it in
turn, as those of other clients do.

The connections are made with the first call. The server stops them after the gateway, whose last answers need them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.channels.backend import Backend
from tidelog.channels.channels import Channels
from tidelog.channels.http import ChannelsApp, HttpSettings
from tidelog.channels.http.request_log import log_requests
from tidelog.channels.pipelined import PipelinedBackend
from tidelog.channels.policy import OpenPolicy
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.engine.password import Password
from tidelog.gateway.channels import admin_gate, password_gate
from tidelog.ports import Clock
from tidelog.server.configuration import ServerConfig

if TYPE_CHECKING:
    from tidelog.gateway.ruled_channels import RuledChannels

MakeConnection = Callable[[], asyncio.Protocol]


class OwnChannels:
    """The application, and its way to the server."""

    def __init__(
        self,
        config: ServerConfig,
        password: Password,
        clock: Clock,
        polls_max: int,
        make_connection: MakeConnection,
    ) -> None:
        """`make_connection`: the server's side of a connection."""
        self._make_connection = make_connection
        backend = PipelinedBackend(self._open_link, "this server")
        self._channels = Channels(backend)
        self._ruled = _ruled(config.channel_rules, self._channels, backend)
        if config.channel_log:
            log_requests()
        settings = HttpSettings(
            polls_max=max(1, polls_max),
            origins=frozenset(config.channel_origins),
            admin_gate=admin_gate(config.channel_admin_token, clock),
            gate=password_gate(password) if self._ruled is None else self._ruled.gate(password),
        )
        policy = OpenPolicy(config.channel_expire_ms) if self._ruled is None else self._ruled.policy
        self.app = ChannelsApp(self._channels, policy, settings)

    @property
    def webhooks(self) -> WebhookCounters | None:
        """For metrics."""
        return None if self._ruled is None else self._ruled.webhooks

    def start(self) -> None:
        """The server takes connections."""
        if self._ruled is not None:
            self._ruled.start()

    async def _open_link(self, make_client: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        await loop.connect_accepted_socket(self._make_connection, theirs)
        _, client = await loop.create_unix_connection(make_client, sock=ours)
        return client

    async def aclose(self) -> None:
        if self._ruled is not None:
            await self._ruled.aclose()
        await self._channels.aclose()


def _ruled(path: str | None, channels: Channels, backend: Backend) -> RuledChannels | None:
    if path is None:
        return None
    from tidelog.gateway.ruled_channels import RuledChannels  # heavy, and most servers have no rules

    return RuledChannels(path, channels, backend)
