"""One direction of a simulated connection: what is on its way from the kernel of one host to that of another.

It keeps what TCP keeps. Segments arrive in their order, each after the delay of the route. While the way is cut,
they stall, and go out again some time after it is healed. If nobody is at the other end any more, its host answers with
a reset, provided that the answer finds its way back. A reset itself is not repeated: it may be lost.

A sender whose kernel is gone (its machine crashed, or it has given up) repeats nothing: the flow is abandoned, and of
what is on its way a prefix arrives.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.testing.link import SimulatedLink
    from tidelog.testing.network import SimulatedNetwork

RESET_BY_PEER: Final = "Connection reset by peer"


class Signal(Enum):
    """What is on its way beside bytes."""

    OPENED = 1
    """The last word of connecting: the side that listens may accept."""
    CLOSED = 2
    RESET = 3


class Flow:
    """Segments on their way from a source to a target. Hot: all bytes come through here."""

    __slots__ = (
        "_arriving",
        "_network",
        "_owed_bytes",
        "_segments",
        "_source",
        "_target",
        "is_abandoned",
        "is_stalled",
        "outstanding_bytes",
    )

    def __init__(self, network: SimulatedNetwork, source: SimulatedLink, target: SimulatedLink) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._segments: deque[tuple[int, bytes | Signal]] = deque()
        """With the moment when each arrives, if those before it have arrived: none overtakes another."""
        self._arriving = False
        """The loop will call for the first segment."""
        self._owed_bytes = 0
        """Read by the target, but the source cannot be told while the way back is cut."""
        self.outstanding_bytes = 0
        """Put and, as far as the source knows, not read yet: what the kernels of both sides hold."""
        self.is_stalled = False
        self.is_abandoned = False

    @property
    def is_waiting(self) -> bool:
        """Whether something is on its way."""
        return bool(self._segments)

    def put(self, segment: bytes | Signal) -> None:
        """Send it on its way."""
        network, source, target = self._network, self._source, self._target
        size = 0
        if type(segment) is bytes:
            size = len(segment)
            self.outstanding_bytes += size
        arrives_us = network.arrival_us(source.host, target.host, size)
        self._segments.append((arrives_us, segment))
        if not self._arriving and not self.is_stalled:
            self._arriving = True
            network.loop.call_at(arrives_us, self._arrive)
        if network.has_trouble:
            source.watch()

    def _arrive(self) -> None:
        self._arriving = False
        network, source, target, segments = self._network, self._source, self._target, self._segments
        now_us = network.clock.monotonic_us()
        while segments:
            arrives_us, segment = segments[0]
            if arrives_us > now_us:
                self._arriving = True
                network.loop.call_at(arrives_us, self._arrive)
                return
            if not network.is_reachable(source.host, target.host):
                self._stall()
                return
            if segment is Signal.OPENED:
                target.open()  # if nobody listens any more, it is gone now
            if target.is_gone and segment is not Signal.RESET and not source.is_over:
                self._answer_with_reset()
                return
            segments.popleft()
            if type(segment) is bytes:
                target.take(segment)
            elif segment is Signal.CLOSED:
                target.take_end()
            elif segment is Signal.RESET:
                target.fail(RESET_BY_PEER)

    def _stall(self) -> None:
        if self.is_abandoned:
            self._segments.clear()
        else:
            self.is_stalled = True
            self._source.watch()

    def _answer_with_reset(self) -> None:
        network, source, target = self._network, self._source, self._target
        if not network.is_reachable(target.host, source.host):
            self._stall()
            return
        self._segments.clear()
        back_us = network.arrival_us(target.host, source.host, 0)
        network.loop.call_at(back_us, lambda: source.fail(RESET_BY_PEER))

    def read(self, size: int) -> None:
        """The target has read so much: the source may send more."""
        network = self._network
        if network.has_trouble and not network.is_reachable(self._target.host, self._source.host):
            self._owed_bytes += size
        else:
            self.outstanding_bytes -= size
            if self._source.unsent_bytes:
                back_us = network.arrival_us(self._target.host, self._source.host, 0)
                self._source.pump_later(back_us - network.clock.monotonic_us())

    def retry(self) -> None:
        """The network has changed: what has stalled may go on, after the time that TCP waits between two attempts."""
        network = self._network
        if network.is_reachable(self._target.host, self._source.host):
            owed, self._owed_bytes = self._owed_bytes, 0
            self.read(owed)
        if self.is_stalled and network.is_reachable(self._source.host, self._target.host):
            self.is_stalled = False
            self._arriving = True
            network.loop.call_at(network.retry_at_us(), self._arrive)

    def abandon(self) -> None:
        """Nothing is repeated any more, and of what is on its way a prefix arrives, down to a part of a segment."""
        self.is_abandoned = True
        segments, rng = self._segments, self._network.rng
        if self.is_stalled:
            self.is_stalled = False
            segments.clear()
            return
        kept = rng.randrange(len(segments) + 1)
        while len(segments) > kept:
            arrives_us, dropped = segments.pop()
            if len(segments) == kept and type(dropped) is bytes and (size := rng.randrange(len(dropped))):
                segments.append((arrives_us, dropped[:size]))
                return
