"""One side of a simulated connection: `ports.NetworkLink`, and the kernel's part of it.

What the process and its kernel each do is kept apart, because they fail apart:

- The process calls and is called back, on its own loop. When it is stopped, callbacks wait, and bytes that it has sent
  and not handed over yet (`unsent_bytes`) stay with it. When it dies they are lost.
- The kernel takes from the network what it has room for, tells the peer about an end, and finds out about a dead
  peer. It does that also while the process is stopped, and finishes what a process that died has left.

    process   connecting ──► open ──► closing ──► over      abort, failure, death: over, from anywhere
    kernel    knocks         takes    gone        over      gone: answers bytes with a reset; over: asks for no answer

Bytes are joined and cut at random on their way, so that nothing can rely on how they were sent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from tidelog import limits
from tidelog.ports import LinkEnd, LinkOwner, NetworkAddress, Timer
from tidelog.testing.flow import RESET_BY_PEER, Flow, Signal
from tidelog.testing.loop import ProcessLoop, SimulatedTimer

if TYPE_CHECKING:
    from tidelog.testing.host import SimulatedHost, SimulatedPort

TIMED_OUT: Final = "Connection timed out"
REFUSED: Final = "Connection refused"
_SEGMENT_BYTES_MAX: Final = 64 * limits.KIB
"""What is put on its way at a time, and received at a time."""
_CUT_CHANCE: Final = 0.125
"""That what is put on its way is cut in two, somewhere."""
_US: Final = 1_000_000

_Phase = Literal["connecting", "open", "closing", "over"]
_FAILURE_IN: Final[dict[_Phase, LinkEnd]] = {"connecting": "failed", "open": "lost", "closing": "lost"}
"""What a failure is called; in `over`, where the owner has aborted it, it is not told."""


class SimulatedLink:
    """`ports.NetworkLink`. Attributes that the port does not name are for the simulated network, and for tests."""

    __slots__ = (
        "_arrived",
        "_closing",
        "_first_unsent",
        "_is_delivering",
        "_is_ended_by_peer",
        "_is_pumping",
        "_is_receiving",
        "_network",
        "_out",
        "_owner",
        "_phase",
        "_port",
        "_reads_again_us",
        "_silence",
        "_silence_ends_us",
        "_unsent",
        "giving_up",
        "has_room",
        "host",
        "is_gone",
        "is_open",
        "is_over",
        "loop",
        "other",
        "peer",
        "unsent_bytes",
    )

    def __init__(
        self, host: SimulatedHost, peer: NetworkAddress, owner: LinkOwner | None, port: SimulatedPort | None = None
    ) -> None:
        self.host: Final = host
        self.loop: Final[ProcessLoop] = host.loop
        """Of the process whose link it is; a later process of the host has another."""
        self.peer = peer
        self.other: SimulatedLink | None = None
        self.is_open = False
        self.is_gone = False
        """The kernel takes nothing more from the network."""
        self.is_over = False
        """No news from the network matters any more: all has left, or is lost."""
        self.has_room = True
        self.unsent_bytes = 0
        self._network = host.network
        self._owner = owner
        self._port = port
        """Where it is accepted; None: this side connects."""
        self._phase: _Phase = "connecting"
        self._closing: Timer | None = None
        """When it is aborted, though it was only closed."""
        self._unsent: deque[bytes] = deque()
        self._first_unsent = 0
        """How much of the first of them has gone."""
        self._is_pumping = False
        self._out: Flow | None = None
        """Where the kernel puts what it sends; None until it is connected."""
        self.giving_up: SimulatedTimer | None = None
        """While it connects: when the kernel has tried for long enough."""
        self._arrived: deque[bytes] = deque()
        """Taken by the kernel and not read yet."""
        self._is_ended_by_peer = False
        self._is_receiving = True
        self._is_delivering = False
        self._reads_again_us = 0
        """When a process that reads slowly has done with what it was given; 0: it is not slow."""
        self._silence: SimulatedTimer | None = None
        """Runs while the peer does not answer; then the kernel gives up."""
        self._silence_ends_us = 0

    def __repr__(self) -> str:
        return f"<SimulatedLink {self.host.name} with {self.peer[0]}:{self.peer[1]}, {self._phase}>"

    # --- ports.NetworkLink --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self.is_open:
            raise ValueError(f"the link with {self.peer[0]}:{self.peer[1]} is not open")
        if data and not self.is_gone:
            self._unsent.append(data)
            self.unsent_bytes += len(data)
            if self.unsent_bytes > limits.LINK_UNSENT_BYTES_MAX:
                self.has_room = False
            self.pump_later(0)

    def stop_receiving(self) -> None:
        self._is_receiving = False

    def resume_receiving(self) -> None:
        self._is_receiving = True
        self._deliver_later()

    def close(self) -> None:
        if self._phase == "connecting":
            self.abort()
        elif self._phase == "open":
            self._phase = "closing"
            self.is_open = False
            self._closing = self.loop.call_later(limits.LINK_CLOSING_S, self.abort)
            if not self.is_gone:
                self.is_gone = True
                self.pump_later(0)

    def abort(self) -> None:
        if self._phase != "over":
            self._phase = "over"
            self.is_open = False
            self._leave(Signal.RESET)
            self.loop.call_soon(lambda: self._tell_end("by_us", "Aborted"))

    # --- sending ------------------------------------------------------------------------------------------------

    def pump_later(self, us: int) -> None:
        """Let the process hand over what is unsent, in the next turn of its loop or later."""
        if not self._is_pumping:
            self._is_pumping = True
            self.loop.call_later(us / _US, self._pump)

    def _pump(self) -> None:
        """Hand over to the kernel what there is room for. Hot."""
        self._is_pumping = False
        out, network = self._out, self._network
        if out is None or self.is_over:
            return
        while self._unsent and (room := network.buffer_bytes - out.outstanding_bytes) > 0:
            segment = self._take_unsent(min(room, _SEGMENT_BYTES_MAX))
            if len(segment) > 1 and network.rng.random() < _CUT_CHANCE:
                cut = 1 + network.rng.randrange(len(segment) - 1)
                out.put(segment[:cut])
                segment = segment[cut:]
            out.put(segment)
            if network.loss and network.rng.random() < network.loss:
                network.lose(self)
                return
        if self._unsent and (network.has_trouble or (self.other is not None and self.other.is_gone)):
            self.watch()
        if self._phase == "closing" and not self._unsent:
            self._phase = "over"
            # A kernel resets a connection that is closed before all that came was read.
            self._leave(Signal.RESET if self._arrived else Signal.CLOSED)
            self._tell_end("by_us", "Closed")
        elif self.is_open and not self.has_room and self.unsent_bytes <= limits.LINK_ROOM_BYTES:
            self.has_room = True
            if self._owner is not None:
                self._owner.room()

    def _take_unsent(self, size_max: int) -> bytes:
        unsent, first = self._unsent, self._first_unsent
        if first == 0 and len(unsent) == 1 and len(unsent[0]) <= size_max:
            taken = unsent.popleft()
        else:
            parts, missing = [], size_max
            while unsent and missing:
                part = unsent[0][first : first + missing]
                parts.append(part)
                missing -= len(part)
                first += len(part)
                if first == len(unsent[0]):
                    unsent.popleft()
                    first = 0
            self._first_unsent = first
            taken = b"".join(parts)
        self.unsent_bytes -= len(taken)
        return taken

    # --- receiving ----------------------------------------------------------------------------------------------

    def take(self, segment: bytes) -> None:
        """The kernel takes bytes from the network."""
        if not self.is_gone:
            self._arrived.append(segment)
            self._deliver_later()

    def take_end(self) -> None:
        """The kernel is told that nothing more comes."""
        if not self.is_gone:
            self._is_ended_by_peer = True
            self._deliver_later()

    def _deliver_later(self) -> None:
        if not self._is_delivering and self.is_open and (self._arrived or self._is_ended_by_peer):
            self._is_delivering = True
            if self._reads_again_us:
                self.loop.call_later((self._reads_again_us - self._network.clock.monotonic_us()) / _US, self._deliver)
            else:
                self.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Let the process read. Hot."""
        self._is_delivering = False
        if not self.is_open or not self._is_receiving or self._owner is None or self.is_gone:
            return
        if not self._arrived:
            self._phase, self.is_open = "over", False
            self._leave(Signal.CLOSED)
            self._tell_end("by_peer", "Closed by the peer")
            return
        data = self._take_arrived()
        rate = self.host.reads_bytes_per_s
        if rate is not None or self._reads_again_us:
            self._reads_again_us = self._network.clock.monotonic_us() + round(len(data) * _US / rate) if rate else 0
        self._deliver_later()
        self._owner.received(data)

    def _take_arrived(self) -> bytes:
        arrived = self._arrived
        data = arrived.popleft()
        if arrived and len(data) < _SEGMENT_BYTES_MAX:
            parts, size = [data], len(data)
            while arrived and size + len(arrived[0]) <= _SEGMENT_BYTES_MAX:
                size += len(arrived[0])
                parts.append(arrived.popleft())
            data = b"".join(parts)
        if self.other is not None and self.other._out is not None:
            self.other._out.read(len(data))
        return data

    # --- connecting ---------------------------------------------------------------------------------------------

    def knock(self) -> None:
        """The first word of connecting reaches the host of the peer, or nobody."""
        network = self._network
        there = network.find(self.peer[0])
        if self.is_over or self.loop.is_dead or there is None:
            return
        if not network.is_connected(self.host, there):
            network.knocking.append(self)
            return
        port = there.ports.get(self.peer[1])
        back_us = network.arrival_us(there, self.host, 0)
        if port is None:
            network.loop.call_at(back_us, lambda: self.fail(REFUSED))
            return
        self.other = SimulatedLink(there, (self.host.name, self.host.any_port()), None, port)
        self.other.other = self
        network.loop.call_at(back_us, self._find_open)

    def _find_open(self) -> None:
        """The host of the peer has answered."""
        if self.is_over or self.loop.is_dead or self.other is None:
            return
        if self.giving_up is not None:
            self.giving_up.cancel()
        self._network.keep(self)
        self._out = Flow(self._network, self, self.other)
        self._out.put(Signal.OPENED)
        self.loop.call_soon(self._tell_connected)

    def _tell_connected(self) -> None:
        if self._phase == "connecting" and self._owner is not None:
            self._phase, self.is_open = "open", True
            self._owner.connected()
            self._deliver_later()

    def open(self) -> None:
        """The host that listens hears that the other side has found it open."""
        port = self._port
        if self.is_gone or port is None or self.other is None:
            return
        if self.host.ports.get(port.address[1]) is not port:
            self.is_gone = self.is_over = True
            return
        self._out = Flow(self._network, self, self.other)
        self.loop.call_soon(lambda: self._accept(port))

    def _accept(self, port: SimulatedPort) -> None:
        if self.is_over or port.is_closed:
            self._phase = "over"
            self._leave(Signal.RESET)
            return
        self._phase, self.is_open = "open", True
        self._owner = port.accept(self)
        if self.is_open:
            self._owner.connected()
            self._deliver_later()

    # --- ends ---------------------------------------------------------------------------------------------------

    def fail(self, reason: str, *, tells_peer: bool = False) -> None:
        """The kernel learns that the connection is no more. What has arrived may be lost."""
        if self.is_over:
            return
        if self._network.rng.random() < 0.5:
            self._arrived.clear()
        self._leave(Signal.RESET if tells_peer else None)
        self.loop.call_soon(lambda: self._tell_failure(reason))

    def die(self, *, has_kernel: bool) -> None:
        """The process is no more; when the power was cut, nor is its kernel."""
        self._phase, self.is_open, self._owner = "over", False, None
        if has_kernel:
            is_reset = bool(self._arrived) or self._network.rng.random() < 0.5
            self._leave(Signal.RESET if is_reset else Signal.CLOSED)
        else:
            self._leave(None)
            if self._out is not None:
                self._out.abandon()  # also what a link that was over has left to its kernel

    def watch(self) -> None:
        """Begin to lose patience if the peer cannot answer, and find it again if it can."""
        if self.is_over or self._out is None:
            return
        if not self._is_silent():
            if self._silence is not None:
                self._silence.cancel()
                self._silence = None
            return
        network = self._network
        if self.unsent_bytes and network.is_connected(self.host, self._other_host):
            ends_us = network.retry_at_us()  # the next attempt to send meets a host that knows of no link
        else:
            ends_us = network.clock.monotonic_us()
            ends_us += network.give_up_us if self._out.is_waiting or self.unsent_bytes else network.keep_alive_us
        if self._silence is None or ends_us < self._silence_ends_us:
            if self._silence is not None:
                self._silence.cancel()
            self._silence_ends_us = ends_us
            self._silence = network.loop.call_at(ends_us, self._give_up)

    def retry(self) -> None:
        """The network has changed: let both sides send what has stalled, and look whether the other can answer."""
        for side in (self, self.other):
            if side is not None and side._out is not None:
                side._out.retry()
                side.watch()

    @property
    def is_kept(self) -> bool:
        """Whether anything can still happen to the connection."""
        return any(
            not side.is_over or (side._out is not None and side._out.is_waiting)
            for side in (self, self.other)
            if side is not None
        )

    def _is_silent(self) -> bool:
        """Whether the peer is gone without a word, or no answer of it can come."""
        if self.other is None or self._is_ended_by_peer:
            return False
        return self.other.is_gone or not self._network.is_connected(self.host, self._other_host)

    @property
    def _other_host(self) -> SimulatedHost:
        assert self.other is not None
        return self.other.host

    def _give_up(self) -> None:
        self._silence = None
        if self._is_silent():
            self.fail(RESET_BY_PEER if self._network.is_connected(self.host, self._other_host) else TIMED_OUT)

    def _leave(self, last_word: Signal | None) -> None:
        """The kernel ends its part and takes no more. None: without a word to the peer."""
        if self.is_over:
            return
        self.is_gone = self.is_over = True
        self._unsent.clear()
        self.unsent_bytes = 0
        for timer in (self._silence, self.giving_up):
            if timer is not None:
                timer.cancel()
        if self._out is not None:
            if last_word is not Signal.CLOSED:
                self._out.abandon()
            if last_word is not None:
                self._out.put(last_word)
            elif self.other is not None:
                self.other.watch()

    def _tell_failure(self, reason: str) -> None:
        if self.is_open and self._is_receiving and self._arrived and self._owner is not None:
            self._owner.received(b"".join(self._arrived))
        end = _FAILURE_IN.get(self._phase)
        if end is not None:
            self._phase, self.is_open = "over", False
            self._tell_end(end, reason)

    def _tell_end(self, end: LinkEnd, reason: str) -> None:
        if self._closing is not None:
            self._closing.cancel()
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.ended(end, reason)
