"""Channels over HTTP without a server of ours in the same process: on a Redis, or on a Tidelog elsewhere.

Several such gateways may run on one backend: a message that is published at one wakes those who wait at the others, and
a handle that one gave out is good at all of them.

    start   open the port; the backend need not be there yet (/probe/readiness tells). One that knows no replicas cannot
            confirm publishes: if that is asked for, there is no start
    stop    on SIGTERM or SIGINT: polls that wait return what there is, requests under way are answered, then the port
            and the connections to the backend are closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels import Channels, Confirmation, OpenPolicy, backend_at
from tidelog.channels.http import ChannelsApp, HttpSettings
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.engine.password import Password
from tidelog.gateway.access import refusal
from tidelog.gateway.app import Gateway
from tidelog.gateway.channels import admin_gate, channel_samples, password_gate
from tidelog.gateway.hosts import HostGuard
from tidelog.gateway.ruled_channels import RuledChannels
from tidelog.gateway.sample import CONTENT_TYPE, render
from tidelog.ports import Clock
from tidelog.server.listener import allow_descriptors, bind_tcp
from tidelog.server.signals import stopped_by_signals


@dataclass(frozen=True, slots=True)
class AloneConfig:
    """How it runs."""

    backend: ServerAddress
    host: str
    port: int
    """0: any that is free."""
    password: bytes | None = field(default=None, repr=False)
    """None: only this machine is served."""
    hosts: tuple[str, ...] = ()
    """Names that it may be asked under, beside those of the loopback interface."""
    origins: tuple[str, ...] = ()
    """Pages of other sites that may use it (CORS)."""
    admin_token: bytes | None = field(default=None, repr=False)
    polls_max: int = limits.CHANNEL_POLLS_DEFAULT
    per_address_max: int = limits.HTTP_PER_ADDRESS_DEFAULT
    confirm_replicas: int = 0
    handle_keys: tuple[bytes, ...] = field(default=(), repr=False)
    rules: str | None = None
    """The file that says which channels there are; None: all ..."""
    expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    """... which keep messages for so long."""
    has_open_metrics: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None


class AlonePages:
    """The application, and beside it /metrics and /health."""

    def __init__(
        self, channels: ChannelsApp, password: Password, webhooks: WebhookCounters | None, *, has_open_metrics: bool
    ) -> None:
        self._channels = channels
        self._webhooks = webhooks
        self._password = password
        self._has_open_metrics = has_open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page: ASGIApp = self._channels
        is_read = scope["method"] in ("GET", "HEAD")
        if scope["path"] == "/metrics" and is_read:
            answer = None if self._has_open_metrics else await refusal(self._password, Request(scope))
            page = answer or PlainTextResponse(
                render(channel_samples(self._channels, self._webhooks)), media_type=CONTENT_TYPE
            )
        elif scope["path"] == "/health" and is_read:
            page = JSONResponse({"status": "ok"})
        await page(scope, receive, send)


async def serve_alone(config: AloneConfig, clock: Clock, on_ready: Callable[[int], None]) -> None:
    """Run until SIGTERM or SIGINT; `on_ready` is told the port."""
    stopping = asyncio.Event()
    with stopped_by_signals(stopping.set):
        await _serve_until(stopping, config, clock, on_ready)


async def _serve_until(
    stopping: asyncio.Event, config: AloneConfig, clock: Clock, on_ready: Callable[[int], None]
) -> None:
    _, connections_max = allow_descriptors(2 * limits.CHANNEL_CALLS_MAX, config.polls_max + limits.HTTP_CONNECTIONS_MAX)
    password = Password(config.password, clock)
    backend = backend_at(config.backend)
    confirm = Confirmation(config.confirm_replicas) if config.confirm_replicas else None
    async with Channels(backend, handle_keys=config.handle_keys, confirm=confirm) as channels:
        await channels.check_confirmation()
        ruled = None if config.rules is None else RuledChannels(config.rules, channels, backend)
        app = ChannelsApp(
            channels,
            OpenPolicy(config.expire_ms) if ruled is None else ruled.policy,
            HttpSettings(
                polls_max=max(1, min(config.polls_max, connections_max - limits.HTTP_CONNECTIONS_MAX // 2)),
                origins=frozenset(config.origins),
                admin_gate=admin_gate(config.admin_token, clock),
                gate=password_gate(password) if ruled is None else ruled.gate(password),
            ),
        )
        webhooks = None if ruled is None else ruled.webhooks
        pages = AlonePages(app, password, webhooks, has_open_metrics=config.has_open_metrics)
        gateway = Gateway(
            HostGuard(pages, config.hosts, is_protected=lambda: not password.is_needed, origins=config.origins),
            bind_tcp(config.host, config.port),
            clock,
            per_address_max=config.per_address_max,
            connections_max=connections_max,
            tls_cert=config.tls_cert,
            tls_key=config.tls_key,
        )
        await gateway.start()
        if ruled is not None:
            ruled.start()
        on_ready(gateway.port)
        await stopping.wait()
        app.stop_waiting()
        await gateway.stop()
        if ruled is not None:
            await ruled.aclose()
