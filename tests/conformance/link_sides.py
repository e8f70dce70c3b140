"""Owners of links that write down what they are told, and the worlds, real and simulated, in which they meet."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tidelog.ports import LinkEnd, LinkOwner, Loop, Network, NetworkAddress, NetworkLink, OpenPort
from tidelog.system.network import SystemNetwork
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import SimulatedNetwork

_ORDER: Final = re.compile(r"(connected (received |room )*)?(ended )?")
"""In which a link's owner is told things."""
_PATIENCE_S: Final = 20.0


class Side:
    """The owner of one side of a link. A test calls its link through it; so it knows what happens inside of a call."""

    def __init__(self, broken: list[str]) -> None:
        self.link: NetworkLink | None = None
        self.told: list[str] = []
        self.received_bytes = bytearray()
        self.end: LinkEnd | None = None
        self.reason = ""
        self.when_connected: Callable[[], object] = lambda: None
        self.when_received: Callable[[], object] = lambda: None
        self.when_room: Callable[[], object] = lambda: None
        self._is_in_call = False
        self._broken = broken

    # --- ports.LinkOwner ----------------------------------------------------------------------------------------

    def connected(self) -> None:
        self._tell("connected")
        if not self._the_link.is_open:
            self._broken.append("connected, but not open")
        self.when_connected()

    def received(self, data: bytes) -> None:
        self._tell("received")
        if type(data) is not bytes or not data:
            self._broken.append(f"received {data!r}")
        self.received_bytes += data
        self.when_received()

    def room(self) -> None:
        self._tell("room")
        if not self._the_link.has_room:
            self._broken.append("room, but has_room says no")
        self.when_room()

    def ended(self, end: LinkEnd, reason: str) -> None:
        self._tell("ended")
        self.end, self.reason = end, reason
        if not reason:
            self._broken.append("an end without a reason")
        if self.link is not None and (self.link.is_open or self.link.unsent_bytes):
            self._broken.append("ended, but open, or with bytes that are unsent")

    # --- what a test calls --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        with self._in_call():
            self._the_link.send(data)

    def stop_receiving(self) -> None:
        with self._in_call():
            self._the_link.stop_receiving()

    def resume_receiving(self) -> None:
        with self._in_call():
            self._the_link.resume_receiving()

    def close(self) -> None:
        with self._in_call():
            self._the_link.close()

    def abort(self) -> None:
        with self._in_call():
            self._the_link.abort()

    @contextmanager
    def _in_call(self) -> Any:
        was, self._is_in_call = self._is_in_call, True
        try:
            yield
        finally:
            self._is_in_call = was

    def is_open(self) -> bool:
        return self.link is not None and self.link.is_open

    def has_room(self) -> bool:
        return self._the_link.has_room

    def unsent_bytes(self) -> int:
        return self._the_link.unsent_bytes

    def has_ended(self) -> bool:
        return self.end is not None

    @property
    def _the_link(self) -> NetworkLink:
        assert self.link is not None
        return self.link

    def _tell(self, what: str) -> None:
        if self._is_in_call:
            self._broken.append(f"{what} inside of a call")
        self.told.append(what)
        if not _ORDER.fullmatch("".join(f"{each} " for each in self.told)):
            self._broken.append(f"wrong order: {self.told}")


class Machines(Protocol):
    """Two sides of a network, and time that passes."""

    @property
    def loop(self) -> Loop: ...

    @property
    def connecting(self) -> Network: ...

    @property
    def listening(self) -> Network: ...

    @property
    def host(self) -> str:
        """The address where one can listen."""

    @property
    def host_called(self) -> str:
        """What others call it."""

    def run(self, seconds: float) -> None: ...

    def wait_until(self, is_reached: Callable[[], bool]) -> None: ...

    def stop(self) -> list[str]:
        """End everything; returns what went wrong inside of callbacks."""


class RealMachines:
    """This machine, on a loop of asyncio or uvloop."""

    host: Final = "127.0.0.1"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop: Final = loop
        self.host_called: Final = "127.0.0.1" if client_tls is None else "localhost"
        self.listening: Final = SystemNetwork(loop, server_tls=server_tls)
        self.connecting: Final = SystemNetwork(loop, client_tls=client_tls)
        self._errors: list[str] = []
        loop.set_exception_handler(lambda _loop, context: self._errors.append(str(context)))

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(_PATIENCE_S):
                while not is_reached():
                    await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def stop(self) -> list[str]:
        self.run(0.01)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        return self._errors


class SimulatedMachines:
    """Two hosts of a simulated network."""

    host: Final = "listening"
    host_called: Final = "listening"

    def __init__(self, seed: int) -> None:
        self._network = SimulatedNetwork(SimulatedLoop(SimulatedClock()), seed)
        self.connecting: Final = self._network.add("connecting")
        self.listening: Final = self._network.add("listening")
        self.loop: Final = self.connecting.loop

    def run(self, seconds: float) -> None:
        self._network.loop.run(seconds)

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        assert self._network.loop.run_until(is_reached, _PATIENCE_S)

    def stop(self) -> list[str]:
        self._network.loop.run_until_idle()
        return []


class Meeting:
    """Sides that listen and connect on some machines, all held to the contract."""

    def __init__(self, machines: Machines) -> None:
        self.machines: Final = machines
        self.broken: Final[list[str]] = []
        self.accepted: Final[list[Side]] = []
        self.ports: Final[list[OpenPort]] = []
        self.sides: Final[list[Side]] = []

    def side(self) -> Side:
        made = Side(self.broken)
        self.sides.append(made)
        return made

    def listen(self, prepare: Callable[[Side], object] = lambda side: None) -> NetworkAddress:
        """Open a port; `prepare` is given each side while it is accepted. Returns what to connect to."""

        def accept(link: NetworkLink) -> LinkOwner:
            if not link.is_open:
                self.broken.append("accepted, but not open")
            side = self.side()
            side.link = link
            self.accepted.append(side)
            prepare(side)
            return side

        port = self.machines.listening.listen((self.machines.host, 0), accept)
        self.ports.append(port)
        return self.machines.host_called, port.address[1]

    def connect(self, address: NetworkAddress, prepare: Callable[[Side], object] = lambda side: None) -> Side:
        side = self.side()
        prepare(side)
        with side._in_call():
            side.link = self.machines.connecting.connect(address, side)
        return side

    def pair(self) -> tuple[Side, Side]:
        """Two sides of one link: the one that has connected, and the one that was accepted."""
        count = len(self.accepted)
        left = self.connect(self.listen())
        self.machines.wait_until(lambda: left.is_open() and len(self.accepted) > count and self.accepted[-1].is_open())
        return left, self.accepted[-1]

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        self.machines.wait_until(is_reached)

    def run(self, seconds: float) -> None:
        self.machines.run(seconds)

    def stop(self) -> None:
        for port in self.ports:
            port.close()
        for side in self.sides:
            if side.link is not None:
                side.abort()
        ended = [side for side in self.sides if side.link is not None]
        self.machines.wait_until(lambda: all(side.has_ended() for side in ended))
        assert self.machines.stop() == []
        assert self.broken == []
