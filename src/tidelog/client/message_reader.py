"""The messages of a subscriber, one by one: when each counts as handled, and when that is acknowledged.

                    asks for the next one             acknowledge
    in hand ───────────────────────────────► handled ─────────────► never comes again
       │             leaves the `async with` block                  the fetch is used up, a second has passed,
       │             without an error                               or the block ends
       │
       └── an error leaves the block, or the loop was left without a block: it comes again

A message is in the consumer's hands until the consumer asks for the next one: that says that it is handled. A loop
that is left by `break` says nothing. In an `async with` block the end of the block does: without an error, the message
in hand is handled; with one, it is not, and those before it are. Without a block nobody hears of the end, and whatever
was not acknowledged until then comes again.

Acknowledgements wait a little for more, as one does for all before it. So a consumer that is killed gets again what
it handled in the last second, at most the messages of one fetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

from tidelog import limits
from tidelog.client.message_source import COME_AGAIN, MessageSource
from tidelog.client.received_message import ReceivedMessage
from tidelog.errors import ServerUnreachable, TidelogError

_LOG: Final = logging.getLogger("tidelog.client")


class MessageReader(AsyncIterator[ReceivedMessage]):
    """An asynchronous iterator of messages, for one task at a time.

    Messages come in order, each at least once. The iterator does not end; it waits for the next message.
    """

    def __init__(self, source: MessageSource) -> None:
        self._source = source
        self._fetched: deque[ReceivedMessage] = deque()
        self._in_hand: ReceivedMessage | None = None
        """Given out last, and nobody has said that it is handled."""
        self._handled: ReceivedMessage | None = None
        """The last one that is handled and not acknowledged; all before it are handled, too."""
        self._acknowledged_s = 0.0
        """When the last acknowledgement was sent, or the last messages were fetched."""
        self._waiting: asyncio.Task[Any] | None = None
        """The task that asks for the next message."""
        self._has_ended = asyncio.Event()
        """Set when it has got its answer."""
        self._is_closed = False
        self._is_interrupted = False
        """The one who waits was cancelled by `aclose`."""

    @property
    def is_new(self) -> bool | None:
        """Whether the subscriber was made when reading began: it gets what was published since. None: not begun."""
        return self._source.is_new

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, when there is one. The one before is handled."""
        if self._waiting is not None:
            raise RuntimeError("another task is already waiting for the next message of this subscriber")
        task = self._waiting = asyncio.current_task()
        assert task is not None
        self._has_ended.clear()
        cancelled_before = task.cancelling()
        try:
            return await self._next()
        except asyncio.CancelledError:
            # It may be that of `aclose`, and then it is no business of the task's, unless another one came with it.
            if self._is_interrupted and task.uncancel() <= cancelled_before:
                raise StopAsyncIteration from None
            raise
        finally:
            self._waiting = None
            self._has_ended.set()

    async def acknowledge(self) -> None:
        """All messages that were given out are handled, also the last one: acknowledge them now."""
        self._finish_in_hand()
        await self._acknowledge()

    async def aclose(self) -> None:
        """End the iterator, also for a task that waits for the next message. Nothing is acknowledged any more."""
        self._is_closed = True
        self._fetched.clear()
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._is_interrupted = True
            self._waiting.cancel()
            await self._has_ended.wait()

    async def __aenter__(self) -> Self:
        """Subscribe at once, so that no message is missed from here on."""
        await self._source.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Acknowledge what was handled; after an error, not the message in hand."""
        if kind is None:
            self._finish_in_hand()
        problem: TidelogError | None = None
        try:
            async with asyncio.timeout(limits.CLIENT_CHANNEL_LEAVE_S):
                await self._acknowledge()
        except TimeoutError:
            problem = ServerUnreachable(f"no reply for {limits.CLIENT_CHANNEL_LEAVE_S:g} s: {COME_AGAIN}")
        except TidelogError as error:
            problem = error
        finally:
            await self.aclose()
        if problem is not None:
            if kind is None:
                raise problem
            _LOG.warning("%s: %s", COME_AGAIN, problem)

    # --- steps ------------------------------------------------------------------------------------------------

    def _finish_in_hand(self) -> None:
        if self._in_hand is not None:
            self._handled, self._in_hand = self._in_hand, None

    async def _next(self) -> ReceivedMessage:
        self._finish_in_hand()
        if self._is_closed:
            raise StopAsyncIteration
        await self._source.begin()
        if not self._fetched or _now_s() - self._acknowledged_s >= limits.CLIENT_CHANNEL_ACK_S:
            await self._acknowledge()
        if not self._fetched:
            self._fetched.extend(await self._source.fetch())
            self._acknowledged_s = _now_s()
        if not self._fetched:
            raise StopAsyncIteration  # the client was closed
        self._in_hand = self._fetched.popleft()
        return self._in_hand

    async def _acknowledge(self) -> None:
        handled = self._handled
        if handled is not None and not self._is_closed:
            await self._source.acknowledge(handled)
            self._acknowledged_s = _now_s()
            if self._handled is handled:
                self._handled = None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
