"""Makes the calls of one webhook. A call succeeds if the receiver answers with a status from 200 to 299, in time.

aiohttp is the client: its connector takes a resolver and makes its sockets through a function of ours, so that a call
goes to an address that was checked (`addresses.py`) while `Host` and TLS keep the name. Each webhook has connections
of its own, since one may be allowed to call what another is not.

What a call never does: use a proxy of the environment, keep cookies, unpack a response, read more of one than a bound,
or follow a redirect by itself. Redirects are followed only if that is configured, only those that keep method and body
(307 and 308), never from https to http, each to an address that is checked anew; headers of the configuration, which
may be secrets, go to the first host only.

Neither URLs nor headers nor bodies are logged or told in reasons: all of them may have secrets.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from tidelog import limits
from tidelog.channels.message import ChannelMessage
from tidelog.channels.webhooks.addresses import (
    AddressLookup,
    AddressRefused,
    CheckedResolver,
    checked_socket,
    looked_up,
)
from tidelog.channels.webhooks.signature import signature_header
from tidelog.channels.webhooks.webhook_rule import FilledRequest, WebhookRule, WebhookUse

_FOLLOWED = (307, 308)


class SendOutcome(NamedTuple):
    """What became of a call."""

    is_sent: bool
    reason: str
    """For logs and dead letters; without secrets."""
    retry_after_ms: int | None = None
    """How long the receiver asks to be left alone."""


class WebhookSender:
    """The connections of one webhook."""

    def __init__(
        self,
        webhook: WebhookRule,
        *,
        now_s: Callable[[], float],
        lookup: AddressLookup = looked_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        now_s     unix time
        lookup    gives the addresses of a name
        tls       whom to trust; None: those that this machine trusts
        """
        self.webhook = webhook
        self._now_s = now_s
        self._turns = asyncio.Semaphore(webhook.calls_max)
        self._calls = 0
        self._is_retired = False
        networks = webhook.allowed_networks
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=CheckedResolver(networks, lookup),
                socket_factory=checked_socket(networks),
                use_dns_cache=False,
                limit=webhook.calls_max,
                ssl=tls if tls is not None else True,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=webhook.timeout_ms / 1000),
            auto_decompress=False,
            trust_env=False,
        )

    async def send(self, use: WebhookUse, message: ChannelMessage, *, attempt: int, fence: int) -> SendOutcome:
        """Make a call for a message."""
        try:
            request = use.filled(message)
        except ValueError as problem:
            return SendOutcome(False, str(problem))
        self._calls += 1
        try:
            async with self._turns:
                return await self._call(request, self._own_headers(use, message, request, attempt, fence))
        finally:
            self._calls -= 1
            if self._is_retired and not self._calls:
                await self._session.close()

    async def retire(self) -> None:
        """Make no new connection idle; close when no call is under way."""
        self._is_retired = True
        if not self._calls:
            await self._session.close()

    async def aclose(self) -> None:
        await self._session.close()

    def _own_headers(
        self, use: WebhookUse, message: ChannelMessage, request: FilledRequest, attempt: int, fence: int
    ) -> dict[str, str]:
        webhook = self.webhook
        headers = {
            "Content-Type": webhook.content_type,
            "User-Agent": "tidelog",
            "Tidelog-Webhook": webhook.name,
            "Tidelog-Channel": use.channel,
            "Tidelog-Message-Id": message.id,
            "Tidelog-Attempt": str(attempt),
            "Tidelog-Fence": str(fence),
        }
        if webhook.secrets:
            now_s = int(self._now_s())
            headers["Tidelog-Timestamp"] = str(now_s)
            headers["Tidelog-Signature"] = signature_header(
                webhook.secrets, now_s, use.channel, message.id, request.body
            )
        return headers

    async def _call(self, request: FilledRequest, own_headers: dict[str, str]) -> SendOutcome:
        url = request.url
        headers = {**own_headers, **dict(request.headers)}
        try:
            async with asyncio.timeout(self.webhook.timeout_ms / 1000):
                for _ in range(self.webhook.redirects_max + 1):
                    outcome, location = await self._exchange(url, headers, request.body)
                    if location is None:
                        return outcome
                    following = _followed(url, location)
                    if following is None:
                        return SendOutcome(False, "redirected to what is not followed")
                    if _origin(following) != _origin(url):
                        headers = own_headers
                    url = following
                return SendOutcome(False, "redirected" if not self.webhook.redirects_max else "redirected too often")
        except TimeoutError:
            return SendOutcome(False, f"no answer within {self.webhook.timeout_ms} ms")
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            return SendOutcome(False, _reason_of(error))

    async def _exchange(self, url: str, headers: dict[str, str], body: bytes) -> tuple[SendOutcome, str | None]:
        """One request and its response; the second value is where it redirects to."""
        async with self._session.request(
            self.webhook.method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
        ) as response:
            await _read_bounded(response)
            status = response.status
            if status in _FOLLOWED and (location := response.headers.get("Location")):
                return SendOutcome(False, f"status {status}"), location
            if 200 <= status <= 299:
                return SendOutcome(True, f"status {status}"), None
            return SendOutcome(False, f"status {status}", _retry_after_ms(response.headers.get("Retry-After"))), None


async def _read_bounded(response: aiohttp.ClientResponse) -> None:
    """Read a response to its end, so that the connection can be used again, unless it is long."""
    left = limits.WEBHOOK_RESPONSE_BYTES_MAX
    while left > 0:
        data = await response.content.read(left)
        if not data:
            return
        left -= len(data)
    response.close()


def _followed(url: str, location: str) -> str | None:
    """The URL that a redirect leads to; None if it is not one to follow."""
    if len(location) > limits.WEBHOOK_URL_LENGTH_MAX or not location.isascii() or not location.isprintable():
        return None
    try:
        following = urljoin(url, location)
        parts = urlsplit(following)
        _ = parts.port
    except ValueError:
        return None
    allowed = ("https",) if url.startswith("https:") else ("http", "https")
    if parts.scheme not in allowed or not parts.hostname or "@" in parts.netloc:
        return None
    return following.partition("#")[0]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _retry_after_ms(text: str | None) -> int | None:
    """Only as a number of seconds; the other form, a date, is of another clock."""
    return int(text) * 1000 if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _reason_of(error: Exception) -> str:
    """The kind of an error: its text may have the URL."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return "an address that webhooks may not call"
        cause = cause.__cause__ or getattr(cause, "os_error", None) or cause.__context__
    return f"the call failed: {type(error).__name__}"
