"""Runs the webhooks of a gateway: finds the channels that have some, and keeps a worker on each that has messages.

A runner learns of a channel in two ways:

- The gateway calls `prepare` before it publishes or subscribes. That makes the subscribers of the channel's webhooks,
  so that not even the first message of a channel is missed, and starts their workers. It costs a call to the backend
  when a channel is first used and twice a minute from then on, and nothing in between.
- Every half a minute all channels of the backend are looked through. So messages are found that another gateway left
  when it died, that this one left at its last stop, or that other programs published. A channel that another program
  made gets its subscribers here; what was published before is not sent.

A worker ends when its channel is quiet; a channel without messages costs nothing but the look. The look does not keep
channels alive: an idle channel and its subscribers expire as configured.

Gateways need not know of each other: a lease decides which of them sends (`lease.py`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from random import Random
from typing import Final

from tidelog import limits
from tidelog.channels.backend import Backend
from tidelog.channels.channels import Channels
from tidelog.channels.listing import ListedChannel
from tidelog.channels.message import ChannelMessage
from tidelog.channels.rules import ChannelRules
from tidelog.channels.webhooks.addresses import AddressLookup, looked_up
from tidelog.channels.webhooks.counters import WebhookCounters, WebhookCounts
from tidelog.channels.webhooks.dead_letter import DEAD_LETTER_SUBSCRIBER
from tidelog.channels.webhooks.sender import WebhookSender
from tidelog.channels.webhooks.webhook_rule import WebhookUse
from tidelog.channels.webhooks.worker import WebhookWorker, ended
from tidelog.errors import EnvironmentFault, InvalidChannel, SubscriptionNotFound

_LOG: Final = logging.getLogger("tidelog.channels")

_Pair = tuple[str, str]
"""The name of a webhook, and a channel."""


class WebhookRunner:
    """The webhooks of one process, for one event loop."""

    def __init__(
        self,
        channels: Channels,
        backend: Backend,
        rules: Callable[[], ChannelRules],
        *,
        time_s: Callable[[], float] = time.time,
        random: Random | None = None,
        lookup: AddressLookup = looked_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        channels    of the backend; the caller closes both, after the runner
        rules       those in force now; they may change at any time
        time_s      unix time
        lookup      gives the addresses of a name
        tls         whom to trust; None: those that this machine trusts
        """
        self.channels = channels
        self.backend = backend
        self.random = random or Random()
        self.counters = WebhookCounters()
        self.is_stopping = False
        self._rules = rules
        self._time_s = time_s
        self._lookup = lookup
        self._tls = tls
        self._senders: dict[str, WebhookSender] = {}
        self._workers: dict[_Pair, WebhookWorker] = {}
        self._tasks: dict[_Pair, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._subscribed_s: dict[_Pair, float] = {}
        """When the subscriber of a webhook was last made, or made sure of: the oldest first."""
        self._looking: asyncio.Task[None] | None = None
        self._is_full = False

    def start(self) -> None:
        """Begin to look for messages that are left to send."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_for_ever(), name="channels: webhooks")

    async def prepare(self, channel: str) -> None:
        """To be called before a channel is published to, or subscribed to: its webhooks miss nothing from then on.

        `InvalidChannel` if it is in no group.
        """
        for use in self._rules().match(channel).webhooks:
            due_s = min(limits.WEBHOOK_SUBSCRIBE_S, use.expire_ms / 4000)
            if _now_s() - self._subscribed_s.get((use.webhook.name, channel), float("-inf")) >= due_s:
                await self._subscribe(use)
            self._start_worker(use)

    async def aclose(self) -> None:
        """Let calls that are under way end, for some seconds, and stop."""
        self.is_stopping = True
        if self._looking is not None:
            await ended(self._looking)
        deadline_s = _now_s() + limits.WEBHOOK_STOP_S
        again_s: dict[_Pair, float] = {}
        while self._tasks:
            for pair, task in list(self._tasks.items()):
                is_due = not self._workers[pair].is_busy or _now_s() >= deadline_s
                if is_due and _now_s() >= again_s.get(pair, 0):
                    task.cancel()
                    again_s[pair] = _now_s() + limits.WEBHOOK_CANCEL_S
            await asyncio.wait(self._tasks.values(), timeout=limits.CHANNEL_CANCEL_S)
        if self._retiring:
            await asyncio.wait(self._retiring)
        for sender in self._senders.values():
            await sender.aclose()

    async def __aenter__(self) -> WebhookRunner:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- for workers ------------------------------------------------------------------------------------------

    def time_s(self) -> float:
        return self._time_s()

    def current_use(self, webhook: str, channel: str) -> WebhookUse | None:
        try:
            uses = self._rules().match(channel).webhooks
        except InvalidChannel:
            return None
        return next((use for use in uses if use.webhook.name == webhook), None)

    def sender(self, use: WebhookUse) -> WebhookSender:
        name = use.webhook.name
        found = self._senders.get(name)
        if found is not None and found.webhook != use.webhook:  # it was configured anew
            retiring = asyncio.create_task(found.retire())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
            found = None
        if found is None:
            found = WebhookSender(use.webhook, now_s=self._time_s, lookup=self._lookup, tls=self._tls)
            self._senders[name] = found
        return found

    def counts(self, webhook: str) -> WebhookCounts:
        return self.counters.of(webhook)

    def forget_subscriber(self, webhook: str, channel: str) -> None:
        self._subscribed_s.pop((webhook, channel), None)

    async def publish_dead_letter(self, channel: str, letter: ChannelMessage) -> None:
        try:
            expire_ms = self._rules().match(channel).expire_ms
        except InvalidChannel:
            expire_ms = limits.CHANNEL_EXPIRE_MS_DEFAULT  # the group was removed since the worker looked
        else:
            await self.prepare(channel)
        await self.channels.subscribe(channel, DEAD_LETTER_SUBSCRIBER, expire_ms=expire_ms)
        await self.channels.publish(channel, letter, expire_ms=expire_ms)

    # --- workers ----------------------------------------------------------------------------------------------

    async def _subscribe(self, use: WebhookUse) -> None:
        webhook = use.webhook
        pair = webhook.name, use.channel
        asked_s = _now_s()
        await self.channels.subscribe(use.channel, webhook.subscriber, expire_ms=use.expire_ms)
        self._subscribed_s.pop(pair, None)
        while len(self._subscribed_s) >= limits.WEBHOOK_CHANNELS_KEPT_MAX:
            del self._subscribed_s[next(iter(self._subscribed_s))]
        self._subscribed_s[pair] = asked_s

    def _start_worker(self, use: WebhookUse) -> None:
        pair = use.webhook.name, use.channel
        worker = self._workers.get(pair)
        if worker is not None:
            worker.notices += 1
            return
        if self.is_stopping:
            return
        if len(self._workers) >= limits.WEBHOOK_WORKERS_MAX:
            if not self._is_full:
                self._is_full = True
                _LOG.warning("there are %d workers for webhooks: further channels wait", len(self._workers))
            return
        self._workers[pair] = worker = WebhookWorker(self, *pair)
        task = self._tasks[pair] = asyncio.create_task(worker.run(), name=f"webhook {pair[0]} of {pair[1]}")
        task.add_done_callback(lambda task: self._note_end(worker, task))

    def _note_end(self, worker: WebhookWorker, task: asyncio.Task[None]) -> None:
        pair = worker.webhook, worker.channel
        del self._workers[pair], self._tasks[pair]
        self._is_full = False
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _LOG.error("the webhook %s of %s stopped and is started again later", *pair, exc_info=error)
        elif worker.notices != worker.seen and (use := self.current_use(*pair)) is not None:
            self._start_worker(use)  # the channel was used after the worker's last look

    # --- looking ----------------------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        while True:
            try:
                if self._rules().has_webhooks:
                    await self.look()
            except EnvironmentFault as error:
                _LOG.warning("channels could not be looked through for webhooks: %s", error)
            await asyncio.sleep(limits.WEBHOOK_SCAN_S * self.random.uniform(0.8, 1.2))

    async def look(self) -> None:
        """Look through all channels once."""
        cursor: str | None = None
        while True:
            page = await self.channels.list_page(cursor)
            for listed in page.channels:
                await self._look_at(listed)
            cursor = page.cursor
            if cursor is None:
                return
            await asyncio.sleep(limits.WEBHOOK_SCAN_PAUSE_S)

    async def _look_at(self, listed: ListedChannel) -> None:
        try:
            uses = self._rules().match(listed.channel).webhooks
        except InvalidChannel:
            return
        if listed.clock is None:
            return  # it has expired
        lags = {row.subscriber: row.lag for row in listed.subscribers}
        for use in uses:
            lag = lags.get(use.webhook.subscriber)
            if lag is None and not await self._has_messages(use):
                continue
            if lag != 0:
                self._start_worker(use)

    async def _has_messages(self, use: WebhookUse) -> bool:
        """Whether there is something to send; makes the subscriber if there is none."""
        try:
            fetched = await self.channels.fetch(use.channel, use.webhook.subscriber, messages_max=1)
        except SubscriptionNotFound:
            await self._subscribe(use)
            return False
        return fetched.handle is not None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
