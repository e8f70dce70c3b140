"""A network in memory that delays, stalls, splits and breaks as a test asks: hosts, and the ways between them.

It is an adversary that keeps to what `ports.py` promises, and to nothing more:

- Each link keeps its order. Links overtake each other: every segment has its own delay, drawn from the route's range.
- Bytes wait where there is no room: on a slow route, at a process that does not read, at one that is stopped. The
  kernels of both sides hold `buffer_bytes` together. The rest is unsent, and shows as `unsent_bytes`.
- `partition` cuts the ways between hosts, in one direction or both. Nobody is told: connecting hangs, links are
  silent, and TCP repeats until the way is healed or it loses patience. So bytes are late, but not lost.
- `lose` and `loss` break links: one side is told, and the other too or only when it sends. A prefix arrives.
- What may happen to a host is in `host.py`.

One seed replays a run: the same calls give the same delays, cuts and losses. Time is that of a `SimulatedLoop`.

    network = SimulatedNetwork(SimulatedLoop(SimulatedClock()), seed=7)
    leader, follower = network.add("leader"), network.add("follower")
    leader.listen(("leader", 6399), accept)
    follower.connect(("leader", 6399), owner)
    network.loop.run(0.5)
    network.partition([leader], [follower])

Packets are not simulated. That they are lost and repeated is a matter of TCP, and shows as delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from tidelog import limits
from tidelog.testing.flow import RESET_BY_PEER
from tidelog.testing.host import SimulatedHost
from tidelog.testing.link import SimulatedLink
from tidelog.testing.loop import SimulatedLoop

_US: Final = limits.SECOND_US
_KEPT_MIN: Final = 64
"""Below so many links, there is no need to look for those that are over."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way from one host to another. The way back is another route."""

    delay_us: int = 100
    jitter_us: int = 100
    """Added to the delay: anything from 0 to this."""
    bytes_per_s: float | None = None
    """Shared by all links; None: unlimited."""


class SimulatedNetwork:
    """Hosts and the ways between them."""

    def __init__(
        self, loop: SimulatedLoop, seed: int = 0, *, route: Route | None = None, buffer_bytes: int = 256 * limits.KIB
    ) -> None:
        self.loop: Final = loop
        self.clock: Final = loop.clock
        self.rng: Final = Random(seed)
        """Draws every fate; a test may draw from it too."""
        self.route = route or Route()
        """Between hosts that have no route of their own."""
        self.buffer_bytes = buffer_bytes
        """What the kernels of both sides hold for one direction of a link."""
        self.loss = 0.0
        """The chance that a link breaks, for each segment that is sent."""
        self.retry_us_max = 200_000
        """How long after a heal TCP takes at most to try again."""
        self.keep_alive_us = 2 * limits.KEEPALIVE_S * _US
        """How long a peer of which nothing is expected can be silent before its kernel is asked, and found dead."""
        self.give_up_us = 900 * _US
        """How long TCP repeats what nobody confirms."""
        self.connect_us = 127 * _US
        """How long TCP tries to connect."""
        self.knocking: list[SimulatedLink] = []
        """Links that try to connect and reach nobody."""
        self.has_trouble = False
        """Something is cut off or off. While all is well, nobody has to look."""
        self._hosts: dict[str, SimulatedHost] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        self._busy_until_us: dict[tuple[str, str], int] = {}
        """When the last byte that was put on a route with limited bandwidth has left."""
        self._cut: set[tuple[str, str]] = set()
        """Ways, from a host to another, on which nothing passes."""
        self._links: list[SimulatedLink] = []
        """The sides that have connected, of all connections of which something may still be on its way."""
        self._kept_max = _KEPT_MIN

    def __repr__(self) -> str:
        return f"<SimulatedNetwork of {', '.join(map(repr, self._hosts.values()))}>"

    # --- what a test sets up and lets happen --------------------------------------------------------------------

    def add(self, name: str) -> SimulatedHost:
        """A new host, with a process that runs."""
        if name in self._hosts:
            raise ValueError(f"there is a host {name} already")
        host = self._hosts[name] = SimulatedHost(self, name)
        return host

    def set_route(self, source: SimulatedHost, target: SimulatedHost, route: Route) -> None:
        """The way from one host to another, from now on; what is on its way is not affected."""
        self._routes[source.name, target.name] = route

    def cut(self, sources: Iterable[SimulatedHost], targets: Iterable[SimulatedHost]) -> None:
        """Let nothing pass from any of the sources to any of the targets."""
        targets = list(targets)
        self._cut.update((source.name, target.name) for source in sources for target in targets)
        self.change()

    def partition(self, left: Iterable[SimulatedHost], right: Iterable[SimulatedHost]) -> None:
        """Let nothing pass between two sets of hosts, in either direction."""
        left, right = list(left), list(right)
        self.cut(left, right)
        self.cut(right, left)

    def heal(self) -> None:
        """Let everything pass again."""
        self._cut.clear()
        self.change()

    def lose(self, link: SimulatedLink) -> None:
        """Break a link: a prefix of what is on its way arrives. One side is told now, and the other by chance."""
        victim = link if link.other is None or self.rng.random() < 0.5 else link.other
        victim.fail(RESET_BY_PEER, tells_peer=self.rng.random() < 0.5)

    # --- for hosts, links and flows -----------------------------------------------------------------------------

    def find(self, name: str) -> SimulatedHost | None:
        return self._hosts.get(name)

    def is_reachable(self, source: SimulatedHost, target: SimulatedHost) -> bool:
        """Whether something that is sent by the one reaches the other."""
        return not target.is_off and (source.name, target.name) not in self._cut

    def is_connected(self, one: SimulatedHost, other: SimulatedHost) -> bool:
        """Whether that holds in both directions."""
        return self.is_reachable(one, other) and self.is_reachable(other, one)

    def arrival_us(self, source: SimulatedHost, target: SimulatedHost, size: int) -> int:
        """When something that is sent now arrives. Hot."""
        key = source.name, target.name
        route = self._routes.get(key, self.route) if self._routes else self.route
        leaves_us = self.clock.monotonic_us()
        if size and route.bytes_per_s is not None:
            leaves_us = max(leaves_us, self._busy_until_us.get(key, 0)) + round(size * _US / route.bytes_per_s)
            self._busy_until_us[key] = leaves_us
        # Not `randrange`: it takes four times as long.
        return leaves_us + route.delay_us + int(self.rng.random() * (route.jitter_us + 1))

    def retry_at_us(self) -> int:
        """When TCP tries again."""
        return self.clock.monotonic_us() + 1 + self.rng.randrange(self.retry_us_max)

    def keep(self, link: SimulatedLink) -> None:
        """Remember a link that has connected."""
        if len(self._links) >= self._kept_max:
            self._links = [each for each in self._links if each.is_kept]
            self._kept_max = max(_KEPT_MIN, 2 * len(self._links))
        self._links.append(link)

    def links_of(self, host: SimulatedHost) -> list[SimulatedLink]:
        """The sides of all links that are on a host, in the order in which they were made."""
        return [side for link in self._links for side in (link, link.other) if side is not None and side.host is host]

    def change(self) -> None:
        """Hosts or ways have changed: look what can go on, and what is silent."""
        self.has_trouble = bool(self._cut) or any(host.is_off for host in self._hosts.values())
        for link in self._links:
            link.retry()
        knocking, self.knocking = self.knocking, []
        for link in knocking:
            self.loop.call_at(self.retry_at_us(), link.knock)
