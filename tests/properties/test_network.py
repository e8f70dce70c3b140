"""Random schedules on the simulated network: every link delivers what was sent, in order, and with losses a prefix."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.link_sides import Side
from tests.testing.linked_hosts import LinkedHosts, simulated
from tidelog.testing.network import Route

HARMLESS: Final = {
    "connect": 1, "send": 12, "wait": 8, "stop": 1, "resume": 2, "route": 1, "slow": 1,
    "pause": 1, "go on": 2, "cut": 1, "partition": 1, "heal": 4,
}  # fmt: skip
"""What delays bytes and loses none, and how often it happens. Nothing lasts long enough for a link to be given up."""
HARMFUL: Final = {**HARMLESS, "connect": 4, "lose": 1, "abort": 1, "close": 1, "kill": 1, "crash": 1, "start": 8}


class Wire:
    """A link, and what was sent on it in each direction."""

    def __init__(self, left: Side) -> None:
        self.left = left
        self.right: Side | None = None
        self.sent: Final = {"left": bytearray(), "right": bytearray()}

    def usable(self, name: str) -> Side | None:
        side = self.left if name == "left" else self.right
        return side if side is not None and side.is_open() and not simulated(side).loop.is_dead else None


class Schedule:
    """A network to which things happen, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng: Final = Random(seed)
        self.world: Final = LinkedHosts(
            seed,
            count=2 + self.rng.randrange(3),
            route=self._any_route(),
            buffer_bytes=self.rng.choice((100, 2000, 100_000)),
        )
        self.wires: Final[list[Wire]] = []
        for _ in range(4):
            self._happen("connect")
        self.world.run(1.0)
        self._pair_up()

    def run(self, kinds: dict[str, int], count: int) -> None:
        for kind in self.rng.choices(list(kinds), list(kinds.values()), k=count):
            self._happen(kind)
            self._pair_up()
            self.check_prefixes()

    def calm_down(self) -> None:
        """Let all go on, for as long as it takes."""
        world = self.world
        world.network.heal()
        for host in world.hosts:
            host.reads_bytes_per_s = None
            if host.loop.is_dead:
                host.start()
            host.go_on()
        for side in self._sides():
            if side.link is not None:
                side.link.resume_receiving()
        world.loop.run_until_idle()
        self._pair_up()
        self.check_prefixes()
        assert world.broken == []

    def check_prefixes(self) -> None:
        for wire in self.wires:
            assert wire.sent["right"].startswith(wire.left.received_bytes)
            if wire.right is not None:
                assert wire.sent["left"].startswith(wire.right.received_bytes)

    def check_complete(self) -> None:
        for wire in self.wires:
            assert wire.right is not None
            assert wire.left.is_open()
            assert wire.right.is_open()
            assert wire.left.received_bytes == wire.sent["right"]
            assert wire.right.received_bytes == wire.sent["left"]
            assert wire.left.unsent_bytes() == wire.right.unsent_bytes() == 0

    def _happen(self, kind: str) -> None:
        rng, world = self.rng, self.world
        host, other = rng.sample(world.hosts, 2)
        if kind == "connect" and not host.loop.is_dead:
            self.wires.append(Wire(world.connect(host, other)))
        elif kind == "wait":
            world.run(rng.choice((0.0001, 0.001, 0.01, 1.0)))
        elif kind == "route":
            world.network.set_route(host, other, self._any_route())
        elif kind == "cut":
            world.network.cut([host], [other])
        elif kind == "partition":
            world.network.partition([host], [each for each in world.hosts if each is not host])
        elif kind == "heal":
            world.network.heal()
        elif kind == "slow":
            host.reads_bytes_per_s = rng.choice((None, 1000.0, 1e6))
        elif kind == "start" and host.loop.is_dead:
            host.start()
            world.listen(host)
        elif kind == "crash":
            host.crash()
        elif not host.loop.is_dead and kind in ("pause", "go on", "kill"):
            {"pause": host.stop, "go on": host.go_on, "kill": host.kill}[kind]()
        else:
            sides = [(wire, name) for wire in self.wires for name in ("left", "right")]
            usable = [(wire, name, side) for wire, name in sides if (side := wire.usable(name)) is not None]
            if usable:
                self._happen_to(*self.rng.choice(usable), kind)

    def _happen_to(self, wire: Wire, name: str, side: Side, kind: str) -> None:
        if kind == "send":
            data = self.rng.randbytes(self.rng.choice((1, 10, 500, 3000)))
            wire.sent[name] += data
            side.send(data)
        elif kind == "stop":
            side.stop_receiving()
        elif kind == "resume":
            side.resume_receiving()
        elif kind == "close":
            side.close()
        elif kind == "abort":
            side.abort()
        elif kind == "lose":
            self.world.network.lose(simulated(side))

    def _pair_up(self) -> None:
        """Find out which accepted link is the other side of which."""
        for wire in self.wires:
            if wire.right is None:
                there = simulated(wire.left).other
                wire.right = next((side for side in self.world.accepted if side.link is there), None)

    def _sides(self) -> list[Side]:
        return [side for wire in self.wires for side in (wire.left, wire.right) if side is not None]

    def _any_route(self) -> Route:
        rng = self.rng
        rate = rng.choice((None, None, 10_000.0, 1e6))
        return Route(rng.choice((0, 100, 20_000)), rng.choice((0, 100, 50_000)), rate)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120))
def test_without_losses_each_link_delivers_exactly_what_was_sent(seed: int, count: int) -> None:
    schedule = Schedule(seed)
    schedule.run(HARMLESS, count)
    schedule.calm_down()
    schedule.check_complete()


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120), loss=st.sampled_from([0.0, 0.02, 0.2]))
def test_with_losses_each_link_delivers_a_prefix(seed: int, count: int, loss: float) -> None:
    """And in the end, all who are left alone have been told."""
    schedule = Schedule(seed)
    schedule.world.network.loss = loss
    schedule.run(HARMFUL, count)
    schedule.calm_down()
    for wire in schedule.wires:
        left, right = simulated(wire.left), simulated(wire.left).other
        if right is None:
            assert not left.is_open
        else:
            assert left.is_open == right.is_open or left.loop.is_dead or right.loop.is_dead
            assert not left.is_open or left.loop.is_dead or not right.loop.is_dead
            assert not right.is_open or right.loop.is_dead or not left.loop.is_dead
