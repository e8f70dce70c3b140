"""A gateway in this process, as far as webhooks are concerned: channels, and a runner beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from tidelog.address import ServerAddress
from tidelog.channels import Channels, backend_at, message_of
from tidelog.channels.rules import ChannelRules
from tidelog.channels.webhooks.runner import WebhookRunner


class Gateway:
    def __init__(self, channels: Channels, runner: WebhookRunner) -> None:
        self.channels = channels
        self.runner = runner

    async def publish(self, channel: str, *ids: str, value: object = "x") -> None:
        """As the gateway does it: webhooks first, so that they miss nothing."""
        for each in ids:
            await self.runner.prepare(channel)
            await self.channels.publish(channel, message_of(each, value), expire_ms=600_000)


@asynccontextmanager
async def gateway(url: str, rules: Callable[[], ChannelRules], *, starts: bool = True) -> AsyncIterator[Gateway]:
    """`starts`: it also looks for channels by itself."""
    backend = backend_at(ServerAddress.parse(url, takes_settings=True, takes_cluster=True))
    async with Channels(backend) as channels:
        runner = WebhookRunner(channels, backend, rules, random=Random(1))
        if starts:
            runner.start()
        try:
            yield Gateway(channels, runner)
        finally:
            await runner.aclose()
