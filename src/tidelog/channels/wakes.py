"""Tells those who wait for messages of a channel that there may be some. One pub/sub connection serves a process.

A wake is a hint: it may come in vain, several may be one, and it may get lost. So a listener only ever learns that it
should look, and it looks by itself every few seconds. That it misses nothing in between rests on an order:

    1. listen      the channel is subscribed to, unless it already is
    2. look        fetch what there is
    3. wait        for a wake since (1); then (2) again

A message that is published before the subscription counts comes without a wake. Therefore the confirmation of the
subscription is a wake, too; so is the loss of the connection, after which everything is subscribed to again and
confirmed again. That a connection is lost is never an error for anybody who waits.

                     listen                  confirmed
    (not there) ────────────► asked for ────────────────► heard      each arrow to the right wakes
         ▲                        ▲                          │
         │                        └───── connection lost ────┤       so does this one
         └─────────────── nobody listens for a while ────────┘

A channel that nobody listens to any more stays subscribed for some seconds: a client that polls comes back, and then
needs no second look. The number of channels is bounded; beyond it one only looks every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from random import Random

import redis

from tidelog import limits
from tidelog.channels.backend import WakeLink
from tidelog.errors import EnvironmentFault


class WakeListener:
    """One that waits for a channel."""

    __slots__ = ("_due_in_s", "_is_stopped", "_look", "_woken")

    def __init__(self, due_in_s: Callable[[], float]) -> None:
        self._woken = asyncio.Event()
        self._due_in_s = due_in_s
        self._look: asyncio.Timeout | None = None
        """The look that is under way."""
        self._is_stopped = False

    async def wait(self, timeout_s: float) -> bool:
        """Return when it is time to look: after a wake, after some seconds, or when the time is over; False: a stop."""
        try:
            async with asyncio.timeout(min(timeout_s, self._due_in_s())):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self._woken.clear()
        return not self._is_stopped

    def look(self) -> asyncio.Timeout:
        """A block for a look at what there is, which a stop ends with a `TimeoutError`: the backend may hang."""
        self._look = asyncio.timeout(None)
        return self._look

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._woken.set()
        if self._look is not None:
            with suppress(RuntimeError):  # it is over, or has not begun
                self._look.reschedule(_now_s())


class _Topic:
    """A channel that is subscribed to, or is to be."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: set[WakeListener] = set()

    def wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Wakes:
    """The channels that this process listens to."""

    def __init__(self, open_link: Callable[[], Awaitable[WakeLink]], random: Random) -> None:
        """`open_link`: gives a connection, which need not be to the same server each time."""
        self._open_link = open_link
        self._random = random
        self._topics: dict[bytes, _Topic] = {}
        self._listeners: set[WakeListener] = set()
        """All, also those for whom there was no topic left."""
        self._idle: dict[bytes, float] = {}
        """Topics that nobody listens to, and since when: the oldest first."""
        self._asked: set[bytes] = set()
        """Topics that the present connection was told to subscribe to."""
        self._changed: set[bytes] = set()
        """Topics that may have to be subscribed to, or no longer."""
        self._has_changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.is_stopped = False
        self.wake_count = 0
        """Wakes that came, whether or not anybody waited."""
        self.loss_count = 0
        """How often the connection was lost."""

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @contextmanager
    def listen(self, name: bytes) -> Iterator[WakeListener]:
        """Be woken until the end of the block. It begins at once; the first wake is the confirmation, if it is new."""
        listener = WakeListener(self._due_in_s)
        topic = self._topic(name)
        self._listeners.add(listener)
        if topic is not None:
            topic.listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if topic is not None:
                topic.listeners.discard(listener)
                if not topic.listeners:
                    self._idle[name] = _now_s()

    def stop(self) -> None:
        """Wake all, for good, and end their looks."""
        self.is_stopped = True
        for listener in self._listeners:
            listener.stop()

    async def aclose(self) -> None:
        self.stop()
        if self._task is not None:
            await _ended(self._task)
            self._task = None

    # --- topics -----------------------------------------------------------------------------------------------

    def _topic(self, name: bytes) -> _Topic | None:
        """None: there are too many."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="channels: wakes")
        self._idle.pop(name, None)
        found = self._topics.get(name)
        if found is None:
            if len(self._topics) >= limits.CHANNEL_WAKES_MAX:
                if not self._idle:
                    return None
                self._drop(next(iter(self._idle)))
            found = self._topics[name] = _Topic()
            self._note_change(name)
        return found

    def _drop(self, name: bytes) -> None:
        del self._idle[name], self._topics[name]
        self._note_change(name)

    def _note_change(self, name: bytes) -> None:
        self._changed.add(name)
        self._has_changed.set()

    def _drop_idle(self) -> None:
        """Those that nobody came back to."""
        longest = _now_s() - limits.CHANNEL_WAKES_LINGER_S
        while self._idle and next(iter(self._idle.values())) <= longest:
            self._drop(next(iter(self._idle)))

    def _wake_all(self) -> None:
        for topic in self._topics.values():
            topic.wake()

    def _due_in_s(self) -> float:
        """Not all look at the same moment, even if they began to wait at the same one."""
        return limits.CHANNEL_LOOK_S * self._random.uniform(0.8, 1.2)

    # --- the connection ---------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        pause_s = limits.CHANNEL_WAKES_RECONNECT_S_MIN
        while True:
            link: WakeLink | None = None
            try:
                link = await self._open_link()
                await link.connect()
                pause_s = limits.CHANNEL_WAKES_RECONNECT_S_MIN
                await self._use(link)
            except (redis.RedisError, EnvironmentFault, OSError):
                pause_s = min(2 * pause_s, limits.CHANNEL_WAKES_RECONNECT_S_MAX)
            finally:
                if link is not None:  # also one that was only half made when we were told to stop
                    await link.disconnect(nowait=True)
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))

    async def _use(self, link: WakeLink) -> None:
        """Until the connection is lost."""
        self._asked.clear()
        self._changed = set(self._topics)
        self._has_changed.set()
        reading = asyncio.create_task(self._read(link))
        telling = asyncio.create_task(self._tell(link))
        try:
            done, _ = await asyncio.wait((reading, telling), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, redis.RedisError | OSError):
                    raise error
        finally:
            await _ended(reading, telling)
            self.loss_count += 1
            self._wake_all()

    async def _read(self, link: WakeLink) -> None:
        is_asked = False
        while True:
            reply = await link.read_response(timeout=limits.CHANNEL_WAKES_SILENT_S, disconnect_on_error=False)
            if reply is not None:
                is_asked = False
                self._take(reply)
            elif is_asked:
                return  # not even an answer: a connection that died without a sign
            else:
                is_asked = True
                await self._send(link, "PING")

    def _take(self, reply: object) -> None:
        match reply:
            case [b"message", bytes(name), _]:
                self.wake_count += 1
            case [b"subscribe", bytes(name), _]:
                pass
            case _:
                return  # that a topic has ended, or the answer to a PING
        topic = self._topics.get(name)
        if topic is not None:
            topic.wake()

    async def _tell(self, link: WakeLink) -> None:
        """Subscribe and unsubscribe, as listeners come and go."""
        while True:
            try:
                async with asyncio.timeout(limits.CHANNEL_WAKES_LINGER_S / 2):
                    await self._has_changed.wait()
            except TimeoutError:
                self._drop_idle()
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            begun = [name for name in changed if name in self._topics and name not in self._asked]
            ended = [name for name in changed if name not in self._topics and name in self._asked]
            self._asked.update(begun)
            self._asked.difference_update(ended)
            await self._send_names(link, "SUBSCRIBE", begun)
            await self._send_names(link, "UNSUBSCRIBE", ended)

    async def _send_names(self, link: WakeLink, command: str, names: list[bytes]) -> None:
        rest = iter(names)
        while some := list(islice(rest, limits.CHANNEL_WAKES_AT_ONCE)):
            await self._send(link, command, *some)

    async def _send(self, link: WakeLink, *words: str | bytes) -> None:
        async with self._sending:
            await link.send_command(*words, check_health=False)


async def _ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they have ended: `asyncio.wait_for`, with which redis-py sends, may swallow a cancellation.

    Whoever ends our own task does the same, and may cancel it once more while it waits here. That must not leave the
    others behind.
    """
    left = set(tasks)
    is_cancelled = False
    while left:
        for task in left:
            task.cancel()
        try:
            _, left = await asyncio.wait(left, timeout=limits.CHANNEL_CANCEL_S)
        except asyncio.CancelledError:
            is_cancelled = True
            left = {task for task in left if not task.done()}
    for task in tasks:
        if not task.cancelled():
            task.exception()  # it was looked at, or does not matter any more
    if is_cancelled:
        raise asyncio.CancelledError


def _now_s() -> float:
    return asyncio.get_running_loop().time()
