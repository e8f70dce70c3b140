"""Calling a leader, on the simulated network."""

from __future__ import annotations

from tidelog.ports import LinkEnd, LinkOwner, NetworkLink
from tidelog.server.link_call import LeaderCaller
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import SimulatedNetwork


class Told:
    """An owner that remembers."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def connected(self) -> None:
        self.events.append("connected")

    def received(self, data: bytes) -> None:
        self.events.append(data)

    def room(self) -> None:
        return

    def ended(self, end: LinkEnd, reason: str) -> None:
        self.events.append((end, reason))


class Leader(Told):
    """Answers each buffer that comes with the next of its replies."""

    def __init__(self, replies: list[bytes]) -> None:
        super().__init__()
        self.replies = replies
        self.link: NetworkLink

    def received(self, data: bytes) -> None:
        super().received(data)
        if self.replies:
            self.link.send(self.replies.pop(0))
        else:
            self.link.close()


def call(replies: list[bytes], password: bytes | None = None) -> tuple[Told, Leader]:
    loop = SimulatedLoop(SimulatedClock())
    network = SimulatedNetwork(loop, seed=1)
    here, there = network.add("here"), network.add("there")
    leader, owner = Leader(replies), Told()

    def accept(link: NetworkLink) -> LinkOwner:
        leader.link = link
        return leader

    there.listen(("there", 6390), accept)
    LeaderCaller(here, lambda: password).connect(("there", 6390), owner)
    loop.run(5)
    return owner, leader


def test_a_leader_that_agrees_is_a_link_from_then_on() -> None:
    owner, leader = call([b"+OK\r\nbytes of the link"])
    assert leader.events[:2] == ["connected", b"*1\r\n$5\r\nTSYNC\r\n"]
    assert owner.events == ["connected", b"bytes of the link"]


def test_the_password_comes_first_and_is_told_to_nobody_else() -> None:
    owner, leader = call([b"-WRONGPASS hunter2 is not the password\r\n"], b"hunter2")
    assert leader.events[1] == b"*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n*1\r\n$5\r\nTSYNC\r\n"
    assert owner.events == [("failed", "the leader answers: WRONGPASS *** is not the password")]


def test_a_leader_that_goes_away_first_was_never_connected() -> None:
    owner, _ = call([])
    assert [event[0] for event in owner.events if isinstance(event, tuple)] == ["failed"]


def test_something_that_is_no_redis_is_refused() -> None:
    owner, _ = call([b"x" * 5000])
    assert owner.events == [("failed", "it does not speak the protocol of Redis")]
