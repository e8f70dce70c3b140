"""A link to a copy in an object store: to the follower it is a link like any other.

    connecting   the thread gets the newest manifest
    meeting      what the follower says goes to the thread, and what the copy answers comes back (`copy_session`)
    reading      the thread reads some, the follower takes it, and so on; once there is nothing more, it asks for the
                 next manifest about once a second

The follower's state machine does the rest. The thread works on one step at a time, and no further while the follower
takes nothing, so a link holds one step's bytes. Nobody ships any more: the link ends, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.errors import ReplicationError, TidelogError
from tidelog.ports import Clock, LinkOwner, Loop, NetworkAddress, Timer, Worker
from tidelog.replication.kinds import LinkSide
from tidelog.replication.message import EndReason, FollowerHello, LinkFarewell, LinkPing
from tidelog.replication.wire import PieceDecoder, encode
from tidelog.shipping.copy_session import STALE, CopySession

_LOOK_S: Final = 1.0
"""How often the follower is told that the link is there."""


class CopyLink:
    """`ports.NetworkLink`. For the loop's thread."""

    has_room = True
    unsent_bytes = 0

    def __init__(
        self,
        address: NetworkAddress,
        owner: LinkOwner,
        session: CopySession,
        clock: Clock,
        loop: Loop,
        worker: Worker,
    ) -> None:
        self.peer = address
        self._owner = owner
        self._session = session
        self._clock = clock
        self._loop = loop
        self._worker = worker
        self._decoder = PieceDecoder(LinkSide.FOLLOWER)
        self.is_open = False
        self._is_over = self._is_stopped = self._is_busy = self._has_met = False
        self._ready = b""
        """What was read and the follower has not taken."""
        self._look_timer = loop.call_soon(self._begin)
        self._poll_timer: Timer | None = None

    # --- steps of the thread ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._run(self._open, self._opened)

    def _open(self) -> bytes:
        self._session.open()
        return b""

    def _run(self, work: Callable[[], bytes], done: Callable[[], None]) -> None:
        """A step on the thread; what it read is delivered before `done`."""
        step = _Step(work, lambda: self._is_over)
        self._is_busy = True
        self._worker.submit(step.run, partial(self._ended, step, done))

    def _ended(self, step: _Step, done: Callable[[], None]) -> None:
        self._is_busy = False
        if self._is_over:
            return
        if step.problem is not None:
            self._lose(step.problem)
            return
        self._ready = step.found
        done()

    def _opened(self) -> None:
        self.is_open = True
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)
        self._owner.connected()

    def _answered(self) -> None:
        self._has_met = True
        self._deliver()

    def _deliver(self) -> None:
        """Hand over what is there, and go on."""
        if not self._is_idle:
            return
        data, self._ready = self._ready, b""
        if data:
            self._owner.received(data)
        if self._is_idle:
            self._go_on()

    @property
    def _is_idle(self) -> bool:
        """The thread may begin the next step."""
        return not (self._is_over or self._is_stopped or self._is_busy)

    def _go_on(self) -> None:
        session = self._session
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        if not session.is_level:
            self._poll_timer = self._loop.call_soon(self._read)
        elif session.is_silent:
            self._lose(STALE)
        else:
            self._poll_timer = self._loop.call_later(session.pause_s, self._read)

    def _read(self) -> None:
        if self._is_idle:
            self._run(self._session.read, self._deliver)

    def _look(self) -> None:
        """Once a second: the thread may wait for the store for longer than the follower waits for a word."""
        if self._is_over:
            return
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)
        if self._has_met and not self._is_stopped:
            self._owner.received(encode(LinkPing(self._clock.monotonic_us())))
            if self._session.is_silent and not self._is_over:
                self._lose(STALE)

    def _lose(self, reason: str) -> None:
        was_open = self.is_open
        self._end()
        self._owner.ended("by_peer" if was_open else "failed", reason)

    def _end(self) -> None:
        self._is_over, self.is_open, self._ready = True, False, b""
        self._look_timer.cancel()
        if self._poll_timer is not None:
            self._poll_timer.cancel()

    # --- ports.NetworkLink --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self.is_open:
            raise ValueError("the link is not open")
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if isinstance(message, FollowerHello):
                self._run(partial(self._session.meet, message), self._answered)
            elif isinstance(message, LinkFarewell) and message.reason is EndReason.DAMAGED:
                self._session.distrust_snapshot()

    def stop_receiving(self) -> None:
        self._is_stopped = True

    def resume_receiving(self) -> None:
        if self._is_stopped:
            self._is_stopped = False
            self._loop.call_soon(self._deliver)

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()


class _Step:
    """Something for the thread."""

    def __init__(self, work: Callable[[], bytes], is_over: Callable[[], bool]) -> None:
        self._work = work
        self._is_over = is_over
        """Whether nobody wants it any more: the thread is for the next link then."""
        self.found = b""
        self.problem: str | None = None
        """Why it did not work."""

    def run(self) -> None:
        try:
            self.found = b"" if self._is_over() else self._work()
        except ReplicationError as error:
            self.problem = str(error)
        except (TidelogError, OSError, ValueError) as error:
            self.problem = f"the copy cannot be read: {error}"
