"""Receivers of webhooks: real HTTP servers on loopback, which answer as a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from tests.channels.test_rules import rules_of
from tidelog import limits
from tidelog.channels.rules import ChannelRules


class ReceivedCall(NamedTuple):
    method: str
    path: str
    """With its query, as it came."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["Tidelog-Message-Id"]


Answer = Callable[[ReceivedCall], Awaitable[web.StreamResponse]]


async def fine(_call: ReceivedCall) -> web.StreamResponse:
    return web.Response()


class Receiver:
    """A server, and all calls that it got."""

    def __init__(self) -> None:
        self.calls: list[ReceivedCall] = []
        self.answer: Answer = fine
        self.port = 0
        self.at_once = 0
        self.at_once_max = 0

    @property
    def ids(self) -> list[str]:
        return [call.id for call in self.calls]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            call = ReceivedCall(request.method, request.path_qs, dict(request.headers), await request.read())
            call = call._replace(path=request.raw_path)
            self.calls.append(call)
            return await self.answer(call)
        finally:
            self.at_once -= 1

    async def got(self, count: int, timeout_s: float = 20) -> None:
        """Until so many calls have come."""
        async with asyncio.timeout(timeout_s):
            while len(self.calls) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    made = Receiver()
    runner = web.ServerRunner(web.Server(made.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()


def webhook_text(port: int, rest: str = "", *, retry: str = "", url: str = "", allows: bool = True) -> str:
    """A group `chat-<id>` with a webhook to a port; `rest`: more keys of the webhook."""
    return f"""
[[channels]]
regex = 'chat-(?P<id>[0-9a-z]+)'
expire = "10m"

[[channels.webhooks]]
name = "hook"
url = "{url or f"http://127.0.0.1:{port}/rooms/{{channel.id}}"}"
{'allow-networks = ["127.0.0.0/8"]' if allows else ""}
{rest}

[channels.webhooks.retry]
interval = "20ms"
interval-jitter = "10ms"
interval-max = "100ms"
{retry}

[[channels]]
regex = 'dead'
expire = "10m"
"""


def webhook_rules(folder: Path, port: int, rest: str = "", **options: Any) -> ChannelRules:
    return rules_of(webhook_text(port, rest, **options), folder)


@pytest.fixture
def quick_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that leases, looks and pauses take less than a second."""
    set_quick_limits(lambda name, value: monkeypatch.setattr(limits, name, value))


def set_quick_limits(put: Callable[[str, Any], None]) -> None:
    put("WEBHOOK_LEASE_MS", 900)
    put("WEBHOOK_LEASE_MARGIN_MS", 200)
    put("WEBHOOK_LINGER_S", 0.5)
    put("WEBHOOK_SCAN_S", 0.3)
    put("WEBHOOK_TROUBLE_S", 0.1)
    put("WEBHOOK_STOP_S", 1.0)
