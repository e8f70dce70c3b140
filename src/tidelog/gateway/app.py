"""The HTTP side of a server: /metrics for Prometheus, /health for load balancers, /feed for change feeds, and channels.

The pages only read. Everything runs on the server's own loop, between its turns, so what a page says is of one moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidelog import limits
from tidelog.channels.http import ChannelsApp
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.engine.engine import Engine
from tidelog.gateway.access import refusal
from tidelog.gateway.channels import ChannelPaths, channel_samples
from tidelog.gateway.feed import feed_page
from tidelog.gateway.hosts import HostGuard
from tidelog.gateway.http_connection import HttpClients, HttpConnection
from tidelog.gateway.metrics import collect
from tidelog.gateway.own_channels import MakeConnection, OwnChannels
from tidelog.gateway.request_line import RequestLine
from tidelog.gateway.sample import CONTENT_TYPE, render
from tidelog.ports import Clock
from tidelog.replication.message import LinkRole
from tidelog.server.allowed_connections import AllowedConnections
from tidelog.server.configuration import ServerConfig
from tidelog.server.facts import Facts
from tidelog.server.line_limit import LineLimit
from tidelog.server.listener import bind_tcp
from tidelog.server.memory import Memory


class ShownEngine:
    """What the pages are about at the moment. Another engine takes its place when the server replaces its store."""

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self.engine = engine
        self.facts = facts


def make_app(
    shown: ShownEngine,
    memory: Memory,
    hosts: Sequence[str],
    *,
    has_open_metrics: bool = False,
    channels: ChannelsApp | None = None,
    webhooks: WebhookCounters | None = None,
    origins: Collection[str] = (),
) -> Starlette:
    """The pages. /metrics tells what INFO does, and needs the same password unless it is open.

    shown       the engine; it may change, but its password does not
    channels    serves channels; None: they are off
    webhooks    what those of the channels have done
    origins     pages of other sites that may use the channels
    """

    password = shown.engine.password

    async def metrics(request: Request) -> Response:
        answer = None if has_open_metrics else await refusal(password, request)
        if answer is not None:
            return answer
        samples = chain(collect(shown.engine, shown.facts, memory), channel_samples(channels, webhooks))
        return PlainTextResponse(render(samples), media_type=CONTENT_TYPE)

    async def health(_request: Request) -> Response:
        engine = shown.engine
        if engine.gate.is_loading:
            fetched = engine.gate.fetched
            how_far = {} if fetched is None else {"loaded_bytes": fetched[0], "total_bytes": fetched[1]}
            return JSONResponse({"status": "loading", **how_far}, 503)
        refusal = engine.store.refusal
        if refusal is not None:
            return JSONResponse({"status": "not writable", "reason": str(refusal)}, 503)
        if engine.gate.is_out_of_memory:
            return JSONResponse({"status": "not writable", "reason": "used memory > 'maxmemory'"}, 503)
        return _health_of_role(engine)

    return Starlette(
        routes=[Route("/metrics", metrics), Route("/health", health), Route("/feed", feed_page(lambda: shown.engine))],
        middleware=[
            Middleware(RequestLine),
            Middleware(HostGuard, hosts=hosts, is_protected=lambda: not password.is_needed, origins=origins),
            *([] if channels is None else [Middleware(ChannelPaths, channels=channels)]),
        ],
    )


def _health_of_role(engine: Engine) -> Response:
    """A follower is well as long as it may be read from; a leader as long as it takes writes."""
    gate, replication = engine.gate, engine.replication
    if gate.read_refusal is not None:
        return JSONResponse({"status": "stale", "reason": gate.read_refusal}, 503)
    if replication is not None and replication.role is LinkRole.FOLLOWER:
        return JSONResponse({"status": "ok", "role": "follower"})
    if gate.write_refusal is not None:
        return JSONResponse({"status": "not writable", "reason": gate.write_refusal}, 503)
    return JSONResponse({"status": "ok"})


class _Uvicorn(uvicorn.Server):
    """Signals are the runtime's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Gateway:
    """Serves the pages until it is stopped."""

    def __init__(
        self,
        app: ASGIApp,
        sockets: list[socket.socket],
        clock: Clock,
        *,
        per_address_max: int = limits.HTTP_PER_ADDRESS_DEFAULT,
        connections_max: int | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        shown: ShownEngine | None = None,
        channels: OwnChannels | None = None,
    ) -> None:
        """`shown`: what the pages are about, if that is an engine. `channels`: those among the pages, which are closed
        with it."""
        self._shown = shown
        self._channels = channels
        self._has_data = False
        """There was an engine with data some time."""
        self.clients = HttpClients(per_address_max, connections_max)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=cast("type[asyncio.Protocol]", partial(HttpConnection, clients=self.clients)),
            server_header=False,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            timeout_keep_alive=limits.HTTP_IDLE_S_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = _Uvicorn(config)
        self._log = logging.getLogger("uvicorn.error")
        self._line_limit = LineLimit(clock)
        self._sockets = sockets
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._log.addFilter(self._line_limit)
        self._task = asyncio.create_task(self._server.serve(self._sockets))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.001)
        if self._task.done():
            self._task.result()

    def show(self, engine: Engine, facts: Facts) -> None:
        """Let the pages be about another engine. The first that has data sets channels in motion."""
        assert self._shown is not None
        self._shown.engine, self._shown.facts = engine, facts
        if not (self._has_data or engine.gate.is_loading):
            self._has_data = True
            if self._channels is not None:
                self._channels.start()

    async def stop(self) -> None:
        """Stop in order. Polls that wait return what there is: they ask their backend for it once more."""
        if self._channels is not None:
            self._channels.app.stop_waiting()
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._log.removeFilter(self._line_limit)
        if self._channels is not None:
            await self._channels.aclose()


def open_gateway(
    config: ServerConfig,
    allowed: AllowedConnections,
    engine: Engine,
    facts: Facts,
    memory: Memory,
    clock: Clock,
    make_connection: MakeConnection,
) -> Gateway:
    """The gateway of a server, at its port; `make_connection` is the server's side of a connection of its own parts."""
    assert config.http_port is not None
    channels = None
    if config.channels:
        channels = OwnChannels(config, engine.password, clock, allowed.polls, make_connection)
    shown = ShownEngine(engine, facts)
    app = make_app(
        shown,
        memory,
        config.http_hosts,
        has_open_metrics=config.metrics_open,
        channels=None if channels is None else channels.app,
        webhooks=None if channels is None else channels.webhooks,
        origins=config.channel_origins,
    )
    return Gateway(
        app,
        bind_tcp(config.host, config.http_port),
        clock,
        per_address_max=config.http_per_address,
        connections_max=allowed.http,
        tls_cert=config.tls_cert,
        tls_key=config.tls_key,
        shown=shown,
        channels=channels,
    )
