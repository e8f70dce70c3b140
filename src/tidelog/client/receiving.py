"""The messages of a channel for code without an event loop: a function is called with each message.

As with feeds (`listening.py`), everything runs in the thread of the caller. What a signal handler raises (Ctrl-C)
arrives when the work has ended in order, or in the function if it is just running (`interruption.py`). A message counts
as handled when the function has returned, unless `handled` says otherwise: a consumer that hands messages on may hear
only later that they have arrived. Messages are read on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from tidelog import limits
from tidelog.client.interruption import InterruptibleLoop
from tidelog.client.listening import Listener
from tidelog.client.message_source import COME_AGAIN, MessageSource
from tidelog.client.received_message import ReceivedMessage
from tidelog.errors import ServerUnreachable, TidelogError

_LOG: Final = logging.getLogger("tidelog.client")

Take = Callable[[ReceivedMessage], bool]
"""Gets a message; true: that is enough."""


def receive(
    listener: Listener,
    channel: str,
    subscriber: str,
    take: Take,
    *,
    handled: Callable[[], ReceivedMessage | None] | None = None,
    on_begin: Callable[[bool], None] = lambda _: None,
    on_idle: Callable[[], None] = lambda: None,
    idle_s: float | None = None,
    on_end: Callable[[bool], None] = lambda _: None,
    follows: bool = True,
    channel_options: dict[str, Any] | None = None,
    **wanted: Any,
) -> None:
    """Handle the messages of a subscriber, until `take` says that it is enough; as long as the process lives.

    handled           the last message that is handled, and all before it; None: those that `take` has returned from
    on_begin          called when reading begins, with whether the subscriber is new
    on_idle           called after each fetch, and every `idle_s` while there is nothing to read
    on_end            called before the last acknowledgement, with whether it came to its end
    follows           wait for more when all messages are read. False: that is the end
    channel_options   of `Client.channel`
    wanted            of `SubscribeRequest`
    """
    source = listener.client.channel(channel, **channel_options or {}).source(subscriber, **wanted)
    receiving = _Receiving(source, take, handled, on_idle, idle_s, follows, listener.interruptible)
    listener.run(receiving.run(on_begin, on_end))


class _Receiving:
    """One call of `receive`."""

    def __init__(
        self,
        source: MessageSource,
        take: Take,
        handled: Callable[[], ReceivedMessage | None] | None,
        on_idle: Callable[[], None],
        idle_s: float | None,
        follows: bool,
        interruptible: InterruptibleLoop,
    ) -> None:
        self._source = source
        self._take = take
        self._handled = handled or (lambda: self._taken)
        self._on_idle = on_idle
        self._idle_s = idle_s
        self._follows = follows
        self._calling = interruptible.calling
        self._taken: ReceivedMessage | None = None
        self._acknowledged: ReceivedMessage | None = None

    async def run(self, on_begin: Callable[[bool], None], on_end: Callable[[bool], None]) -> None:
        is_at_end = False
        try:
            await self._source.begin()
            with self._calling():
                on_begin(bool(self._source.is_new))
            while not self._take_all(await self._fetch()):
                await self._go_on()
                if not self._follows and not self._source.has_more:
                    break
            is_at_end = True
        finally:
            try:
                with self._calling():
                    on_end(is_at_end)
            finally:
                await self._leave(is_at_end)

    async def _fetch(self) -> list[ReceivedMessage]:
        fetching = asyncio.ensure_future(self._source.fetch(waits=self._follows))
        try:
            while True:
                done, _ = await asyncio.wait([fetching], timeout=self._idle_s)
                if done:
                    return fetching.result()
                await self._go_on()
        finally:
            if not fetching.done():
                fetching.cancel()
                await asyncio.wait([fetching])
                if not fetching.cancelled():
                    fetching.exception()  # it does not matter any more

    def _take_all(self, messages: list[ReceivedMessage]) -> bool:
        with self._calling():
            for message in messages:
                is_enough = self._take(message)
                self._taken = message
                if is_enough:
                    return True
        return False

    async def _go_on(self) -> None:
        with self._calling():
            self._on_idle()
        await self._acknowledge()

    async def _acknowledge(self) -> None:
        message = self._handled()
        if message is not None and message is not self._acknowledged:
            await self._source.acknowledge(message)
            self._acknowledged = message

    async def _leave(self, is_at_end: bool) -> None:
        problem: TidelogError | None = None
        try:
            async with asyncio.timeout(limits.CLIENT_CHANNEL_LEAVE_S):
                await self._acknowledge()
        except TimeoutError:
            problem = ServerUnreachable(f"no reply for {limits.CLIENT_CHANNEL_LEAVE_S:g} s: {COME_AGAIN}")
        except TidelogError as error:
            problem = error
        if problem is not None:
            if is_at_end:
                raise problem
            _LOG.warning("%s: %s", COME_AGAIN, problem)  # something else is told already
