"""What happens to the links of a simulated host that is stopped, killed or crashed."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

import pytest

from tests.testing.linked_hosts import PORT, LinkedHosts
from tidelog import limits

SECOND_US = limits.SECOND_US


def test_a_host_can_talk_to_itself() -> None:
    world = LinkedHosts()
    left, right = world.link(world.a, world.a)
    left.send(b"ping")
    right.send(b"pong")
    world.run(1.0)
    assert right.received_bytes == b"ping"
    assert left.received_bytes == b"pong"
    world.a.kill()
    world.run(1.0)
    assert left.told == right.told == ["connected", "received"]


# --- stopped ----------------------------------------------------------------------------------------------------


def test_a_stopped_process_is_told_later_and_its_kernel_takes_what_fits() -> None:
    world = LinkedHosts(buffer_bytes=10_000)
    left, right = world.link()
    ticks: list[int] = []
    world.b.loop.call_later(1.0, lambda: ticks.append(world.now_us))
    world.b.stop()
    assert "stopped" in repr(world.b)

    left.send(b"x" * 30_000)
    late = world.connect(world.a, world.b)
    world.run(5.0)
    assert left.unsent_bytes() == 20_000
    assert late.told == ["connected"], "by the kernel"
    assert len(world.accepted) == 1
    assert right.told == ["connected"]
    assert ticks == []

    world.b.go_on()
    stopped_until_us = world.now_us
    world.run(1.0)
    assert len(right.received_bytes) == 30_000
    assert len(world.accepted) == 2
    assert ticks == [stopped_until_us]


def test_a_stopped_process_hands_over_nothing() -> None:
    world = LinkedHosts()
    left, right = world.link()
    left.send(b"x")
    world.a.stop()
    world.run(10.0)
    assert right.received_bytes == b""

    world.a.go_on()
    world.run(1.0)
    assert right.received_bytes == b"x"


def test_a_stopped_process_is_not_found_dead() -> None:
    """Its kernel answers for it, as long as it may take."""
    world = LinkedHosts()
    left, right = world.link()
    world.b.stop()
    left.send(b"x")
    world.run(100_000.0)
    assert left.is_open()

    world.b.go_on()
    world.run(1.0)
    assert right.received_bytes == b"x"


def test_a_stopped_process_learns_of_an_end_later() -> None:
    world = LinkedHosts()
    (one, first), (two, second) = world.link(), world.link()
    world.b.stop()
    one.send(b"bye")
    one.close()
    two.abort()
    world.run(10.0)
    assert first.told == second.told == ["connected"]

    world.b.go_on()
    world.run(1.0)
    assert first.received_bytes == b"bye"
    assert (first.end, second.end) == ("by_peer", "lost")


def test_a_process_that_is_stopped_can_be_killed() -> None:
    world = LinkedHosts()
    left, right = world.link()
    world.b.stop()
    left.send(b"x")
    world.run(1.0)
    world.b.kill()
    world.run(1.0)
    assert left.end == "lost", "it had not read everything"
    assert right.told == ["connected"]


def test_a_port_can_be_closed_before_those_who_wait_are_accepted() -> None:
    world = LinkedHosts()
    port = world.b.ports[PORT]
    world.b.loop.call_soon(port.close)
    world.b.stop()
    late = world.connect(world.a, world.b)
    world.run(1.0)
    assert late.is_open()

    world.b.go_on()
    world.run(1.0)
    assert late.end == "lost"
    assert world.accepted == []


# --- killed -----------------------------------------------------------------------------------------------------


def test_a_killed_process_is_missed_at_once() -> None:
    """Its kernel ends its links, in order or not, and refuses others. What it had handed over arrives, or a prefix."""
    ends = Counter[str]()
    for seed in range(50):
        world = LinkedHosts(seed)
        left, right = world.link()
        right.send(b"handed over")
        world.run(0.0001)
        right.send(b"not handed over")
        world.b.kill()
        assert "down" in repr(world.b)
        late = world.connect(world.a, world.b)
        world.run(1.0)
        assert (late.end, late.reason) == ("failed", "Connection refused")
        if left.end == "by_peer":
            assert left.received_bytes == b"handed over"
        assert b"handed over".startswith(left.received_bytes)
        assert right.told == ["connected"]
        ends[str(left.end)] += 1

    assert set(ends) == {"by_peer", "lost"}
    assert min(ends.values()) > 5


def test_the_next_process_begins_anew() -> None:
    world = LinkedHosts()
    left, right = world.link()
    ticks: list[str] = []
    world.b.loop.call_later(1.0, lambda: ticks.append("of the old process"))
    old_loop = world.b.loop
    world.b.kill()
    world.b.start()
    assert world.b.loop is not old_loop
    world.b.loop.call_later(1.0, lambda: ticks.append("of the new one"))
    world.run(2.0)
    assert ticks == ["of the new one"]
    assert left.has_ended()
    assert right.told == ["connected"]

    early = world.connect(world.a, world.b)
    world.run(1.0)
    assert early.end == "failed", "nobody listens yet"
    world.listen(world.b)
    left, right = world.link()
    left.send(b"hello")
    world.run(1.0)
    assert right.received_bytes == b"hello"


def test_a_process_that_dies_while_it_connects_leaves_nothing_behind() -> None:
    world = LinkedHosts()
    for wait_us in range(0, 4000, 250):
        side = world.connect(world.a, world.b)
        world.run(wait_us / SECOND_US)
        world.a.kill()
        told = list(side.told)
        world.a.start()
        world.run(5.0)
        assert side.told == told
        assert all(each.has_ended() for each in world.accepted)


def test_a_listener_that_dies_while_others_connect_is_missed() -> None:
    """At every moment of connecting, the other side is told in the end: none hangs."""
    for wait_us in range(0, 4000, 250):
        world = LinkedHosts(wait_us)
        side = world.connect(world.a, world.b)
        world.run(wait_us / SECOND_US)
        world.b.kill()
        world.run(5.0)
        assert side.has_ended()


# --- crashed ----------------------------------------------------------------------------------------------------


def test_a_crashed_host_says_nothing() -> None:
    world = LinkedHosts()
    (one, first), (two, _) = world.link(), world.link()
    world.b.crash()
    world.b.crash()
    assert "off" in repr(world.b)
    late = world.connect(world.a, world.b)
    one.send(b"hello?")
    world.run(60.0)
    assert one.is_open()
    assert two.is_open()
    assert late.told == []

    world.b.start()
    world.listen(world.b)
    world.run(1.0)
    assert (one.end, one.reason) == ("lost", "Connection reset by peer"), "the new machine knows of no link"
    assert late.told == ["connected"]
    assert two.is_open(), "it has not asked"
    two.send(b"hello?")
    world.run(1.0)
    assert (two.end, two.reason) == ("lost", "Connection reset by peer")
    assert first.told == ["connected"]


def test_a_crashed_host_that_stays_away_is_found_dead() -> None:
    world = LinkedHosts()
    (one, _), (two, _) = world.link(), world.link()
    world.network.give_up_us = 100 * SECOND_US
    world.b.crash()
    one.send(b"hello?")
    world.run(101.0)
    assert (one.end, one.reason, two.end) == ("lost", "Connection timed out", None)
    world.run(500.0)
    assert (two.end, two.reason) == ("lost", "Connection timed out")


def test_an_idle_link_with_a_host_that_crashed_and_came_back_is_found_dead_by_the_keep_alive() -> None:
    world = LinkedHosts()
    left, _ = world.link()
    world.b.crash()
    world.b.start()
    world.run(world.network.keep_alive_us / SECOND_US - 1)
    assert left.is_open()
    world.run(2.0)
    assert (left.end, left.reason) == ("lost", "Connection reset by peer")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sender_without_room_learns_that_the_reader_has_crashed(moment: str) -> None:
    """Whether it sent before or after: what is unsent finds no way out otherwise."""
    world = LinkedHosts(buffer_bytes=1000)
    left, right = world.link()
    right.stop_receiving()
    left.send(b"x" * (5000 if moment == "before" else 1000))
    world.run(1.0)
    world.b.crash()
    world.run(1.0)
    world.b.start()
    if moment == "after":
        left.send(b"x")
    world.run(1.0)
    assert (left.end, left.reason) == ("lost", "Connection reset by peer")


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_crashed_host_repeats_nothing(is_closed: bool) -> None:
    """What had stalled is lost, even if the process that sent it knew nothing of the link any more."""
    world = LinkedHosts()
    left, right = world.link()
    world.network.partition([world.a], [world.b])
    left.send(b"x")
    if is_closed:
        left.close()
    world.run(1.0)
    world.a.crash()
    world.network.heal()
    world.a.start()
    world.run(10.0)
    assert right.told == ["connected"]


def test_of_what_a_crashed_host_has_sent_a_prefix_arrives() -> None:
    lengths = set()
    for seed in range(100):
        world = LinkedHosts(seed)
        left, right = world.link()
        for n in range(10):
            right.send(bytes([n]) * 100)
            world.run(0.00005)
        world.b.crash()
        world.run(1.0)
        assert b"".join(bytes([n]) * 100 for n in range(10)).startswith(left.received_bytes)
        assert left.is_open()
        lengths.add(len(left.received_bytes))
    assert {0, 1000} <= lengths
    assert len(lengths) > 20


# --- mistakes ---------------------------------------------------------------------------------------------------


def test_a_dead_process_can_do_nothing() -> None:
    world = LinkedHosts()
    side = world.connect(world.a, world.b)
    world.a.kill()

    attempts: list[Callable[[], object]] = [
        world.a.stop,
        world.a.go_on,
        world.a.kill,
        lambda: world.a.listen(("a", 1), lambda link: side),
        lambda: world.a.connect(("b", PORT), side),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="a: no process runs"):
            attempt()


def test_mistakes_are_told() -> None:
    world = LinkedHosts()
    with pytest.raises(ValueError, match="a process runs"):
        world.a.start()
    with pytest.raises(ValueError, match="there is a host a already"):
        world.network.add("a")
    with pytest.raises(OSError, match="EADDRNOTAVAIL") as refused:
        world.a.listen(("b", 1), world._accept)
    assert refused.value.errno == errno.EADDRNOTAVAIL
