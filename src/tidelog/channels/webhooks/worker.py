"""Sends the messages of one channel to one webhook, in order, for as long as this process has the lease.

                    another has it
              ┌────────────────────────┐
              ▼                        │
    ────► take the lease ──────────────┘
              │ taken
              ▼
          fetch one ───── nothing for a while ────► give the lease back, end
              │  ▲
              ▼  │ acknowledge
            send it ── failed ──► pause, longer each time ──► send it again ...
                                                              ... or publish it as a dead letter, and acknowledge

A message is acknowledged only after the receiver took it, or the channel of dead letters has it. If the process dies
in between, the next holder of the lease sends that message again: at least once. One message is fetched at a time, so
at most one comes twice; and none is sent before the one that precedes it is done with, so the order is that of the
channel.

If the lease is lost, a call that is under way is broken off. While a receiver fails, the subscriber is kept alive; the
message itself is in memory, and is tried for as long as the process lives even if it expires in the backend meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, Protocol, TypeVar

from tidelog import limits
from tidelog.channels.backend import Backend
from tidelog.channels.channels import Channels, FetchedMessages
from tidelog.channels.message import ChannelMessage
from tidelog.channels.webhooks.attempts import AttemptNote
from tidelog.channels.webhooks.counters import WebhookCounts
from tidelog.channels.webhooks.dead_letter import dead_letter
from tidelog.channels.webhooks.lease import WebhookLease
from tidelog.channels.webhooks.sender import SendOutcome, WebhookSender
from tidelog.channels.webhooks.webhook_rule import RetryRule, WebhookUse
from tidelog.errors import ChannelError, EnvironmentFault

_LOG: Final = logging.getLogger("tidelog.channels")

_Result = TypeVar("_Result")


class _Ended(Exception):
    """The webhook is no longer configured, the lease is lost, or the process stops."""


class WorkSource(Protocol):
    """What workers need of the runner."""

    channels: Channels
    backend: Backend
    random: Random
    is_stopping: bool

    def time_s(self) -> float:
        """Unix time."""

    def current_use(self, webhook: str, channel: str) -> WebhookUse | None:
        """The webhook as it is configured now; None: it is not any more."""

    def sender(self, use: WebhookUse) -> WebhookSender: ...

    def counts(self, webhook: str) -> WebhookCounts: ...

    def forget_subscriber(self, webhook: str, channel: str) -> None:
        """The subscriber is gone: it is to be made when the channel is next used, however soon that is."""

    async def publish_dead_letter(self, channel: str, letter: ChannelMessage) -> None: ...


class WebhookWorker:
    """A webhook on a channel, at work."""

    def __init__(self, source: WorkSource, webhook: str, channel: str) -> None:
        self._source = source
        self.webhook = webhook
        self.channel = channel
        self._subscriber_s = float("-inf")
        """When the subscriber was last kept alive."""
        self.is_busy = False
        """There is a message whose call is under way, or that is about to be acknowledged."""
        self._has_message = False
        self._attempts = AttemptNote(source.backend, channel, webhook)
        self._tried = "", 0
        """The message that was tried before this process had the lease, and how often."""
        self.notices = 0
        """How often somebody told that the channel is used ..."""
        self.seen = 0
        """... up to the last look."""

    async def run(self) -> None:
        """Until there is nothing to do."""
        source = self._source
        lease = WebhookLease(source.backend, self.channel, self.webhook, now_s=_now_s)
        if not await self._take(lease):
            return
        keeping = asyncio.create_task(self._keep(lease))
        delivering = asyncio.create_task(self._deliver(lease))
        try:
            await asyncio.wait((keeping, delivering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(keeping, delivering)
            with suppress(EnvironmentFault):  # then it ends by itself
                await lease.release()
        for task in (keeping, delivering):
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, _Ended):
                raise error

    async def _take(self, lease: WebhookLease) -> bool:
        """Until the lease is taken; False if nobody uses the channel any more while another has it."""
        used_s, notices = _now_s(), self.notices
        while True:
            try:
                if await lease.take(int(self._source.time_s() * 1000)):
                    return True
            except EnvironmentFault as error:
                _LOG.warning("the webhook %s of %s waits for the backend: %s", self.webhook, self.channel, error)
            if self.notices != notices:
                used_s, notices = _now_s(), self.notices
            self.seen = self.notices
            if _now_s() - used_s > limits.WEBHOOK_LINGER_S:
                return False
            await asyncio.sleep(limits.WEBHOOK_LEASE_MS / 3000 * self._source.random.uniform(0.8, 1.2))

    async def _keep(self, lease: WebhookLease) -> None:
        """Renew the lease until it is lost, and keep the subscriber alive while a message cannot be sent."""
        while True:
            use = self._source.current_use(self.webhook, self.channel)
            if use is None:
                raise _Ended
            await asyncio.sleep(min(limits.WEBHOOK_LEASE_MS / 3, use.expire_ms / 4) / 1000)
            try:
                if not await lease.renew():
                    break
                if self._has_message and _now_s() - self._subscriber_s >= use.expire_ms / 4000:
                    self._subscriber_s = _now_s()
                    await self._source.channels.subscribe(self.channel, use.webhook.subscriber, expire_ms=use.expire_ms)
            except EnvironmentFault as error:
                if not lease.is_held:
                    break
                _LOG.warning("the webhook %s of %s waits for the backend: %s", self.webhook, self.channel, error)
        self._source.counts(self.webhook).lost_leases += 1
        _LOG.warning("the webhook %s of %s lost its lease: another gateway may go on", self.webhook, self.channel)

    async def _deliver(self, lease: WebhookLease) -> None:
        if self._use().webhook.retry.attempts_max is not None:
            self._tried = await self._on_trouble(self._attempts.read)
        while True:
            self.seen = self.notices
            use = self._use()
            fetched = await self._on_trouble(partial(self._fetch, use))
            if fetched is None:
                self._source.forget_subscriber(self.webhook, self.channel)
                return
            if fetched.handle is None:
                if self.notices == self.seen:
                    return
                continue
            self._has_message = True
            try:
                for message in fetched.messages:
                    await self._send(lease, message)
                self._tried = "", 0
                self.is_busy = True
                await self._on_trouble(partial(self._acknowledge, use, fetched.handle))
            finally:
                self.is_busy = self._has_message = False

    async def _fetch(self, use: WebhookUse) -> FetchedMessages | None:
        try:
            return await self._source.channels.fetch_when_there(
                self.channel, use.webhook.subscriber, messages_max=1, timeout_s=limits.WEBHOOK_LINGER_S
            )
        except ChannelError:
            return None

    async def _acknowledge(self, use: WebhookUse, handle: str) -> None:
        try:
            await self._source.channels.acknowledge(
                self.channel, use.webhook.subscriber, handle, expire_ms=use.expire_ms
            )
        except ChannelError as error:
            # The subscriber expired, or the channel was removed: there is nothing to move any more.
            _LOG.warning("the webhook %s of %s could not acknowledge: %s", self.webhook, self.channel, error)

    async def _send(self, lease: WebhookLease, message: ChannelMessage) -> None:
        """Return when the receiver, or the channel of dead letters, has the message."""
        counts = self._source.counts(self.webhook)
        attempt = self._tried[1] if self._tried[0] == message.id else 0
        while True:
            attempt += 1
            use = self._use()
            if not lease.is_held:
                raise _Ended
            self.is_busy = True
            if attempt > 1:
                await self._note(use, message, attempt)
            outcome = await self._source.sender(use).send(use, message, attempt=attempt, fence=lease.token)
            if outcome.is_sent:
                counts.sent += 1
                if attempt > 1:
                    await self._note(use, message, 0)
                return
            counts.failed += 1
            retry, letters = use.webhook.retry, use.webhook.dead_letter
            is_last = retry.attempts_max is not None and attempt >= retry.attempts_max
            _LOG.warning(
                "the webhook %s could not send the message %s of %s (attempt %d%s): %s",
                self.webhook, message.id, self.channel, attempt, ", the last" if is_last else "", outcome.reason,
            )  # fmt: skip
            if is_last and letters is not None:
                letter = dead_letter(use, message, attempts=attempt, reason=outcome.reason)
                await self._on_trouble(partial(self._source.publish_dead_letter, letters, letter))
                counts.dead_lettered += 1
                await self._note(use, message, 0)
                return
            if attempt == 1:
                await self._note(use, message, attempt)
            self.is_busy = False
            await self._pause(counts, retry, attempt, outcome)
            counts.retried += 1

    async def _note(self, use: WebhookUse, message: ChannelMessage, attempt: int) -> None:
        """Keep how often a message was tried, if that matters; 0: it is done with."""
        if use.webhook.retry.attempts_max is None:
            return
        with suppress(EnvironmentFault):  # then it counts in this process only
            if attempt:
                await self._attempts.write(message.id, attempt, use.expire_ms)
            else:
                await self._attempts.clear()

    async def _pause(self, counts: WebhookCounts, retry: RetryRule, attempt: int, outcome: SendOutcome) -> None:
        counts.waiting += 1
        try:
            await asyncio.sleep(pause_ms(retry, attempt, outcome.retry_after_ms, self._source.random) / 1000)
        finally:
            counts.waiting -= 1

    async def _on_trouble(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """The result of a call, which is repeated while the backend does not answer."""
        while True:
            try:
                return await call()
            except EnvironmentFault as error:
                _LOG.warning("the webhook %s of %s waits for the backend: %s", self.webhook, self.channel, error)
            self._use()
            await asyncio.sleep(limits.WEBHOOK_TROUBLE_S * self._source.random.uniform(0.5, 1.0))

    def _use(self) -> WebhookUse:
        use = None if self._source.is_stopping else self._source.current_use(self.webhook, self.channel)
        if use is None:
            raise _Ended
        return use


def pause_ms(retry: RetryRule, failures: int, retry_after_ms: int | None, random: Random) -> float:
    """How long to wait after so many failures. A receiver may ask for more, up to the longest pause."""
    factor = retry.multiplier ** min(failures - 1, 64)
    pause = min(retry.interval_ms * factor, retry.interval_ms_max)
    if retry_after_ms is not None:
        pause = max(pause, min(retry_after_ms, retry.interval_ms_max))
    return pause + random.uniform(0, retry.jitter_ms)


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they have ended: `asyncio.wait_for`, with which redis-py sends, may swallow a cancellation."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=limits.CHANNEL_CANCEL_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # so that asyncio does not take it for forgotten


def _now_s() -> float:
    return asyncio.get_running_loop().time()
