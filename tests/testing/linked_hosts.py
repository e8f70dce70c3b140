"""A simulated network with some hosts and links between them, whose sides hold it to the contract of the port."""

from __future__ import annotations

from typing import Final

from tests.conformance.link_sides import Side
from tidelog.ports import LinkOwner, NetworkLink
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.host import SimulatedHost
from tidelog.testing.link import SimulatedLink
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import Route, SimulatedNetwork

PORT: Final = 7000
QUICK: Final = Route(delay_us=1000, jitter_us=0)
"""A millisecond, always."""


class LinkedHosts:
    """Hosts `a`, `b`, …, which all listen."""

    def __init__(self, seed: int = 0, count: int = 2, route: Route = QUICK, buffer_bytes: int = 65536) -> None:
        self.loop: Final = SimulatedLoop(SimulatedClock())
        self.network: Final = SimulatedNetwork(self.loop, seed, route=route, buffer_bytes=buffer_bytes)
        self.hosts: Final = [self.network.add(name) for name in "abcdefgh"[:count]]
        self.broken: Final[list[str]] = []
        self.accepted: Final[list[Side]] = []
        for host in self.hosts:
            self.listen(host)

    @property
    def a(self) -> SimulatedHost:
        return self.hosts[0]

    @property
    def b(self) -> SimulatedHost:
        return self.hosts[1]

    @property
    def now_us(self) -> int:
        return self.loop.clock.monotonic_us()

    def listen(self, host: SimulatedHost) -> None:
        host.listen((host.name, PORT), self._accept)

    def connect(self, source: SimulatedHost, target: SimulatedHost) -> Side:
        side = Side(self.broken)
        side.link = source.connect((target.name, PORT), side)
        return side

    def link(self, source: SimulatedHost | None = None, target: SimulatedHost | None = None) -> tuple[Side, Side]:
        """The two sides of a new link."""
        left = self.connect(source or self.a, target or self.b)
        count = len(self.accepted)
        assert self.loop.run_until(lambda: left.is_open() and len(self.accepted) > count)
        return left, self.accepted[-1]

    def run(self, seconds: float) -> None:
        self.loop.run(seconds)
        assert self.broken == []

    def _accept(self, link: NetworkLink) -> LinkOwner:
        side = Side(self.broken)
        side.link = link
        self.accepted.append(side)
        return side


def simulated(side: Side) -> SimulatedLink:
    assert isinstance(side.link, SimulatedLink)
    return side.link
