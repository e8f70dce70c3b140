"""A webhook by configuration: where the messages of a group of channels are sent.

    [[channels.webhooks]]
    name = "chat-archive"
    method = "PUT"
    url = "https://archive.example.com/rooms/{channel.id}/{message.id}"
    secret-files = ["archive.secret"]

    [channels.webhooks.headers]
    X-Chat-Room = "{channel.id}"

    [channels.webhooks.retry]
    attempts = 20

The name is also that of the subscriber, so what was sent stays sent when anything else is changed. Scheme, host and
port of the URL have no places to fill in: no message and no name of a channel decides which server is called.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tidelog import limits
from tidelog.channels.message import ChannelMessage
from tidelog.channels.names import WEBHOOK_PREFIX, ChannelKeys
from tidelog.channels.settings_table import SettingsTable
from tidelog.channels.templates import MESSAGE_NAMES, TextTemplate, channel_names, channel_values, in_url
from tidelog.channels.token_keys import read_bounded
from tidelog.errors import InvalidChannel

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,39}", re.ASCII)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]{0,2000}", re.ASCII)
_OWN_HEADERS: Final = ("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade")
_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET")

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When a message that could not be sent is tried again."""

    attempts_max: int | None
    """Then it is a dead letter; None: it is tried for ever."""
    interval_ms: int
    """The pause after the first failure ..."""
    multiplier: float
    """... becomes so many times as long with each further one ..."""
    interval_ms_max: int
    """... up to this ..."""
    jitter_ms: int
    """... and up to so much is added by chance, so that not all come back at the same moment."""


@dataclass(frozen=True, slots=True)
class WebhookRule:
    """One webhook."""

    where: str
    """The file and the table, for errors."""
    name: str
    method: str
    url: TextTemplate
    headers: tuple[tuple[str, TextTemplate], ...] = field(repr=False)
    """May have secrets, such as a token for the receiver."""
    body: TextTemplate
    content_type: str
    secrets: tuple[bytes, ...] = field(repr=False)
    """Each of them signs; none: requests are not signed."""
    timeout_ms: int
    redirects_max: int
    calls_max: int
    """Under way at the same time, of all its channels."""
    retry: RetryRule
    dead_letter: str | None
    """The channel for messages that could not be sent."""
    allowed_networks: tuple[IpNetwork, ...]
    """May be called although they are private."""

    @property
    def subscriber(self) -> str:
        return f"{WEBHOOK_PREFIX}{self.name}"


class WebhookUse:
    """A webhook, for one channel."""

    __slots__ = ("_values", "channel", "expire_ms", "webhook")

    def __init__(self, webhook: WebhookRule, channel: str, expire_ms: int, captures: Mapping[str, str | None]) -> None:
        self.webhook = webhook
        self.channel = channel
        self.expire_ms = expire_ms
        self._values = channel_values(channel, captures)

    def filled(self, message: ChannelMessage) -> FilledRequest:
        """The request for a message; `ValueError` if there can be none."""
        webhook = self.webhook
        values = self._values | message_values(message)
        url = webhook.url.fill(values, in_url)
        body = webhook.body.fill(values)
        headers = [(name, template.fill(values)) for name, template in webhook.headers]
        if url is None or body is None or any(text is None for _, text in headers):
            raise ValueError("a template uses a group of the regex that took no part in the match")
        if len(url) > limits.WEBHOOK_URL_LENGTH_MAX:
            raise ValueError(f"the URL has more than {limits.WEBHOOK_URL_LENGTH_MAX} characters")
        return FilledRequest(url, tuple((name, text) for name, text in headers if text is not None), body.encode())


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """Templates of a webhook, filled in."""

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


def message_values(message: ChannelMessage) -> dict[str, str]:
    text = message.content.decode("utf-8", "replace")
    plain = text
    if text.startswith('"'):
        value = message.value
        # Half of a pair of UTF-16, which JSON may have, cannot be sent as UTF-8.
        plain = value.encode("utf-8", "replace").decode() if isinstance(value, str) else text
    return {"message.id": message.id, "message.content_json": text, "message.content": plain}


# --- reading it -------------------------------------------------------------------------------------------------


def read_webhook_rule(table: SettingsTable, folder: str, captures: Collection[str]) -> WebhookRule:
    """`folder`: where files with secrets are, unless their paths are absolute."""
    names = channel_names(captures)
    name = table.text("name")
    if _NAME.fullmatch(name) is None:
        table.refuse("name", f"must be a letter or a digit, then up to 39 more, or _ and - (it is {name!r})")
    dead_letter = table.optional_text("dead-letter")
    if dead_letter is not None:
        try:
            ChannelKeys(dead_letter)
        except InvalidChannel as problem:
            table.refuse("dead-letter", str(problem))
    rule = WebhookRule(
        where=table.where,
        name=name,
        method=table.choice("method", "POST", _METHODS),
        url=_read_url(table, names | MESSAGE_NAMES),
        headers=_read_headers(table, names | {"message.id"}),
        body=_template(table, "body", "{message.content_json}", names | MESSAGE_NAMES),
        content_type=table.text("content-type", "application/json"),
        secrets=_read_secrets(table, folder),
        timeout_ms=table.duration_ms("timeout", limits.WEBHOOK_TIMEOUT_MS_DEFAULT, 1, limits.WEBHOOK_TIMEOUT_MS_MAX),
        redirects_max=table.integer("max-redirects", 0, 0, limits.WEBHOOK_REDIRECTS_MAX),
        calls_max=table.integer("max-calls", limits.WEBHOOK_CALLS_DEFAULT, 1, limits.WEBHOOK_CALLS_MAX),
        retry=_read_retry(table, has_dead_letter=dead_letter is not None),
        dead_letter=dead_letter,
        allowed_networks=_read_networks(table),
    )
    if _HEADER_TEXT.fullmatch(rule.content_type) is None:
        table.refuse("content-type", "must be printable ASCII")
    table.finish()
    return rule


def _template(table: SettingsTable, key: str, default: str | None, names: Collection[str]) -> TextTemplate:
    try:
        return TextTemplate(table.text(key, default, length_max=limits.WEBHOOK_TEMPLATE_LENGTH_MAX), names)
    except ValueError as problem:
        table.refuse(key, str(problem))


def _read_url(table: SettingsTable, names: Collection[str]) -> TextTemplate:
    template = _template(table, "url", None, names)
    expected = "must be a URL such as https://host/path, with places to fill in only after the host"
    text = template.text
    if re.fullmatch(r"https?://[\x21-\x7e]+", text) is None or "\\" in text or "#" in text:
        table.refuse("url", expected)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        table.refuse("url", expected)
    if not parts.hostname or "{" in parts.netloc or "}" in parts.netloc:
        table.refuse("url", expected)
    if "@" in parts.netloc:
        table.refuse("url", "must have no name and password: write a header Authorization")
    return template


def _read_headers(table: SettingsTable, names: Collection[str]) -> tuple[tuple[str, TextTemplate], ...]:
    header_table = table.table("headers")
    headers: dict[str, tuple[str, TextTemplate]] = {}
    for name, text in header_table.entries() if header_table is not None else ():
        assert header_table is not None
        lower = name.lower()
        if _HEADER_NAME.fullmatch(name) is None or lower in _OWN_HEADERS or lower.startswith("tidelog-"):
            header_table.refuse(name, "cannot be set: it is made here, or is not the name of a header")
        if lower == "content-type":
            header_table.refuse(name, "is set with content-type, beside url")
        if lower in headers:
            header_table.refuse(name, "is there twice")
        if not isinstance(text, str) or _HEADER_TEXT.fullmatch(text) is None:
            header_table.refuse(name, "must be a text of at most 2000 printable ASCII characters")
        try:
            headers[lower] = name, TextTemplate(text, names)
        except ValueError as problem:
            header_table.refuse(name, str(problem))
    return tuple(headers.values())


def _read_secrets(table: SettingsTable, folder: str) -> tuple[bytes, ...]:
    secrets = []
    for path in table.texts("secret-files", (), count_max=4):
        try:
            secret = read_bounded(os.path.join(folder, path)).removesuffix(b"\n").removesuffix(b"\r")
        except ValueError as problem:
            table.refuse("secret-files", f"the file {path} {problem}")
        if len(secret) < limits.CHANNEL_TOKEN_SECRET_BYTES_MIN:
            least = limits.CHANNEL_TOKEN_SECRET_BYTES_MIN
            table.refuse("secret-files", f"the file {path} must have a secret of at least {least} bytes")
        secrets.append(secret)
    return tuple(secrets)


def _read_retry(table: SettingsTable, *, has_dead_letter: bool) -> RetryRule:
    retry = table.table("retry") or SettingsTable(f"{table.where}.retry", {})
    if retry.has("attempts") != has_dead_letter:
        if has_dead_letter:
            retry.refuse("attempts", "is missing: after so many, a message goes to the channel of dead-letter")
        retry.refuse("attempts", "needs dead-letter beside url; without one, a message is tried until it is sent")
    attempts = retry.integer("attempts", 1, 1, limits.WEBHOOK_ATTEMPTS_MAX)
    longest = limits.WEBHOOK_RETRY_MS_MAX
    rule = RetryRule(
        attempts if has_dead_letter else None,
        retry.duration_ms("interval", limits.WEBHOOK_RETRY_MS_DEFAULT, 1, longest),
        retry.number("interval-multiplier", 2.0, 1, 100),
        retry.duration_ms("interval-max", limits.WEBHOOK_RETRY_MS_MAX_DEFAULT, 1, longest),
        retry.duration_ms("interval-jitter", limits.WEBHOOK_RETRY_MS_DEFAULT // 2, 0, longest),
    )
    retry.finish()
    return rule


def _read_networks(table: SettingsTable) -> tuple[IpNetwork, ...]:
    networks = []
    for text in table.texts("allow-networks", ()):
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            table.refuse("allow-networks", f'must be networks such as "10.1.0.0/16" or "127.0.0.1/32" (not {text!r})')
    return tuple(networks)
