"""Channels beside the other pages of a server: their paths, their password and their numbers.

With a password, calls on channels need it as all of HTTP does. Probes and the description of the calls need none: they
tell nothing. Admin calls need their own token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.channels.http import CallGate, ChannelsApp
from tidelog.channels.http.admin import ADMIN_REJECTED
from tidelog.channels.http.answer import Answer, error_answer
from tidelog.channels.http.call import HttpCall
from tidelog.channels.http.routes import OWN_PARTS
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.engine.password import Password
from tidelog.gateway.access import refused_login
from tidelog.gateway.sample import Sample
from tidelog.ports import Clock

_BEARER: Final = ((b"www-authenticate", b"Bearer"),)
_OF_WEBHOOKS: Final = (
    ("sent", "counter", "Messages that a receiver took."),
    ("failed", "counter", "Calls that did not succeed."),
    ("retried", "counter", "Calls that were made again."),
    ("dead_lettered", "counter", "Messages that went to the channel for dead letters."),
    ("waiting", "gauge", "Messages that wait for their next attempt."),
    ("lost_leases", "counter", "How often another gateway took over in the middle of the work."),
)
"""Of `WebhookCounts`: name, kind and help."""


class ChannelPaths:
    """Hands requests for channels to their application, and all others on."""

    def __init__(self, app: ASGIApp, channels: ASGIApp) -> None:
        self._app = app
        self._channels = channels

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hot."""
        first_part = scope["path"].split("/", 2)[1:2] if scope["type"] == "http" else []
        app = self._channels if OWN_PARTS.intersection(first_part) else self._app
        await app(scope, receive, send)


def password_gate(password: Password) -> CallGate:
    """Asks for the password, if there is one at the moment."""

    async def gate(call: HttpCall) -> Answer | None:
        if not password.is_needed:
            return None
        given = [value.decode("latin-1") for name, value in call.scope["headers"] if name == b"authorization"]
        refused = await refused_login(password, given, call.client)
        if refused is None:
            return None
        headers = tuple((name.encode(), value.encode()) for name, value in refused.headers.items())
        return error_answer(refused.status, refused.message, "tidelog.channels.unauthorized", headers)

    return gate


def admin_gate(token: bytes | None, clock: Clock) -> CallGate | None:
    """Asks for the admin token; wrong ones are answered late, as wrong passwords are. None: there is no token."""
    if token is None:
        return None
    secret = Password(token, clock)

    async def gate(call: HttpCall) -> Answer | None:
        given = call.bearer
        if given is None:
            return error_answer(401, "this needs the admin token: Authorization: Bearer ...", ADMIN_REJECTED, _BEARER)
        verdict = secret.check(given.encode("latin-1"), call.client)
        if verdict.is_right:
            return None
        if verdict.retry_after_s:
            headers = ((b"retry-after", b"%d" % verdict.retry_after_s),)
            return error_answer(429, "too many wrong admin tokens", ADMIN_REJECTED, headers)
        if verdict.delay_s:
            await asyncio.sleep(verdict.delay_s)
        return error_answer(403, "that is not the admin token", ADMIN_REJECTED)

    return gate


def channel_samples(channels: ChannelsApp | None, webhooks: WebhookCounters | None = None) -> Iterator[Sample]:
    """The numbers of channels and of their webhooks, for /metrics."""
    if channels is not None:
        yield from (Sample(*row) for row in channels.figures.rows())
    counts = [] if webhooks is None else list(webhooks)
    for name, kind, text in _OF_WEBHOOKS:
        for webhook, count in counts:
            total = "" if kind == "gauge" else "_total"
            value = getattr(count, name)
            yield Sample(f"tidelog_webhook_{name}{total}", kind, text, value, f'{{webhook="{webhook}"}}')
