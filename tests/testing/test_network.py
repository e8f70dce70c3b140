"""What a simulated network does to links: delay, order, bandwidth, full buffers, partitions and losses."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.testing.linked_hosts import PORT, LinkedHosts, simulated
from tidelog import limits
from tidelog.testing.network import Route

SECOND_US = limits.SECOND_US


# --- time and order ---------------------------------------------------------------------------------------------


def transcript(seed: int) -> list[tuple[int, str]]:
    """What happens when, in a run with a bit of everything."""
    world = LinkedHosts(seed, count=3, route=Route(500, 5000, bytes_per_s=1e6))
    happened: list[tuple[int, str]] = []
    world.network.loss = 0.01
    rng = world.network.rng
    sides = [side for target in world.hosts[1:] for side in world.link(world.a, target)]
    for n in range(200):
        side = sides[rng.randrange(len(sides))]
        if side.is_open():
            side.send(b"%d " % n * rng.randrange(2000))
        if n == 50:
            world.network.partition([world.a], [world.b])
        if n == 100:
            world.hosts[2].stop()
        if n == 150:
            world.network.heal()
            world.hosts[2].kill()
        world.run(0.01)
        happened += [(world.now_us, f"{side.told} {side.end} {len(side.received_bytes)}") for side in sides]
    return happened


def test_a_seed_replays_a_run() -> None:
    assert transcript(7) == transcript(7)
    assert len({str(transcript(seed)) for seed in range(5)}) == 5


def test_bytes_take_their_time() -> None:
    """Each direction has its own route, and the delay is anything within its range."""
    world = LinkedHosts(route=Route(1000, 0))
    world.network.set_route(world.b, world.a, Route(50_000, 10_000))
    left, right = world.link()
    there, back = Counter[int](), Counter[int]()
    for _ in range(200):
        start_us = world.now_us
        left.send(b"there")
        assert world.loop.run_until(lambda: right.received_bytes.endswith(b"there"))
        there[world.now_us - start_us] += 1
        start_us = world.now_us
        right.send(b"back")
        assert world.loop.run_until(lambda: left.received_bytes.endswith(b"back"))
        back[world.now_us - start_us] += 1
        left.received_bytes.clear()
        right.received_bytes.clear()

    assert set(there) == {1000}
    assert 50_000 <= min(back) < 52_000
    assert 58_000 < max(back) <= 60_000


def test_links_overtake_each_other_and_each_keeps_its_order() -> None:
    world = LinkedHosts(route=Route(100, 10_000))
    pairs = [world.link() for _ in range(5)]
    arrivals: list[int] = []
    for number, (_, right) in enumerate(pairs):
        right.when_received = lambda number=number: arrivals.append(number)  # type: ignore[misc]

    for _ in range(20):
        for left, _ in pairs:
            left.send(b"x")
        world.run(0.02)
    rounds = [tuple(dict.fromkeys(arrivals[n : n + 5])) for n in range(0, 100, 5)]
    assert len(set(rounds)) > 10, "the order differs from round to round"

    for n in range(1000):
        for number, (left, _) in enumerate(pairs):
            left.send(b"%d.%d " % (number, n))
        world.loop.run(0.0001)
    world.run(1.0)
    for number, (_, right) in enumerate(pairs):
        assert right.received_bytes == b"x" * 20 + b"".join(b"%d.%d " % (number, n) for n in range(1000))


def test_bandwidth_is_limited_and_shared() -> None:
    world = LinkedHosts(route=Route(1000, 0, bytes_per_s=1e6), buffer_bytes=10**7)
    (one, first), (two, second) = world.link(), world.link()
    start_us = world.now_us

    one.send(b"x" * 1_000_000)
    assert world.loop.run_until(lambda: len(first.received_bytes) == 1_000_000)
    assert 1.00 <= (world.now_us - start_us) / SECOND_US < 1.01

    one.send(b"x" * 500_000)
    two.send(b"y" * 500_000)
    assert world.loop.run_until(lambda: len(first.received_bytes) == 1_500_000 and len(second.received_bytes) > 0)
    world.loop.run_until(lambda: len(second.received_bytes) == 500_000)
    assert 2.00 <= (world.now_us - start_us) / SECOND_US < 2.01


def test_bytes_are_joined_and_cut_on_the_way() -> None:
    """Nothing may rely on how they were sent."""
    world = LinkedHosts()
    left, right = world.link()
    for _ in range(10):
        left.send(b"abc")
    world.run(0.1)
    assert 1 <= right.told.count("received") < 10, "joined"

    sizes: list[int] = []
    for seed in range(100):
        world = LinkedHosts(seed, route=Route(100, 10_000))
        left, right = world.link()
        right.when_received = lambda right=right: sizes.append(len(right.received_bytes))  # type: ignore[misc]
        left.send(b"0123456789")
        world.run(0.1)
        assert right.received_bytes == b"0123456789"
    assert set(range(1, 10)) & set(sizes), "cut"
    assert 100 < len(sizes) < 130


def test_a_message_costs_three_calls_of_the_loop() -> None:
    """Thousands of messages are to be milliseconds of real time, and these calls are what takes it."""
    world = LinkedHosts(route=Route(100, 0))
    left, right = world.link()
    before = world.loop.calls

    for _ in range(1000):
        left.send(b"x" * 100)
        world.run(0.001)

    assert len(right.received_bytes) == 100_000
    assert world.loop.calls - before == pytest.approx(3000, abs=50)


# --- full buffers -----------------------------------------------------------------------------------------------


def test_what_nobody_reads_stays_with_the_sender() -> None:
    world = LinkedHosts(buffer_bytes=10_000)
    left, right = world.link()
    right.stop_receiving()

    left.send(b"x" * 25_000)
    world.run(1.0)
    assert left.unsent_bytes() == 15_000
    assert left.has_room()

    left.send(b"x" * limits.LINK_UNSENT_BYTES_MAX)
    world.run(100.0)
    assert left.unsent_bytes() == 15_000 + limits.LINK_UNSENT_BYTES_MAX
    assert not left.has_room()
    assert left.told == ["connected"]

    right.resume_receiving()
    world.run(10.0)
    assert left.told == ["connected", "room"]
    assert len(right.received_bytes) == 25_000 + limits.LINK_UNSENT_BYTES_MAX


def test_a_process_that_reads_slowly_slows_the_sender_down() -> None:
    world = LinkedHosts(buffer_bytes=10_000)
    world.b.reads_bytes_per_s = 20_000
    left, right = world.link()
    left.send(b"x" * 100_000)

    world.run(2.0)
    assert 30_000 < len(right.received_bytes) < 60_000
    assert 30_000 < left.unsent_bytes() < 60_000

    world.run(4.0)
    assert len(right.received_bytes) == 100_000


# --- partitions -------------------------------------------------------------------------------------------------


def test_a_partition_is_silent_and_loses_nothing() -> None:
    world = LinkedHosts(count=3)
    (left, right), (other, beside) = world.link(), world.link(world.a, world.hosts[2])
    left.send(b"on its way")
    world.network.partition([world.a], [world.b])
    left.send(b", sent in vain")
    right.send(b"nor this")
    other.send(b"the others go on")
    world.run(60.0)
    assert (left.told, right.told) == (["connected"], ["connected"])
    assert beside.received_bytes == b"the others go on"

    world.network.heal()
    world.run(1.0)
    assert right.received_bytes == b"on its way, sent in vain"
    assert left.received_bytes == b"nor this"


def test_one_direction_can_be_cut() -> None:
    world = LinkedHosts(buffer_bytes=10_000)
    left, right = world.link()
    world.network.cut([world.a], [world.b])

    left.send(b"lost on its way")
    right.send(b"x" * 100_000)
    world.run(10.0)
    assert right.received_bytes == b""
    assert len(left.received_bytes) == 10_000, "what arrives is not confirmed, so no more is sent"
    assert right.unsent_bytes() == 90_000

    world.network.heal()
    world.run(10.0)
    assert right.received_bytes == b"lost on its way"
    assert len(left.received_bytes) == 100_000


def test_connecting_hangs_until_the_partition_heals() -> None:
    world = LinkedHosts()
    world.network.cut([world.b], [world.a])  # either direction is enough
    patient, hasty = world.connect(world.a, world.b), world.connect(world.a, world.b)
    world.a.loop.call_later(1.0, hasty.abort)
    world.run(60.0)
    assert (patient.told, hasty.told, hasty.end) == ([], ["ended"], "by_us")

    world.network.heal()
    world.run(1.0)

    assert patient.told == ["connected"]
    assert len(world.accepted) == 1


def test_connecting_fails_after_two_minutes() -> None:
    world = LinkedHosts()
    world.network.partition([world.a], [world.b])
    side = world.connect(world.a, world.b)
    world.run(126.0)
    assert not side.has_ended()
    world.run(2.0)
    assert (side.told, side.end, side.reason) == (["ended"], "failed", "Connection timed out")


def test_a_host_that_nobody_knows() -> None:
    world = LinkedHosts()
    side = world.connect(world.a, world.b)
    side.link = world.a.connect(("nowhere", PORT), side)
    world.loop.run(1.0)
    assert "ended" in side.told
    assert (side.end, side.reason) == ("failed", "Name or service not known")


def test_an_idle_link_that_is_cut_off_is_found_dead_by_both_in_the_end() -> None:
    world = LinkedHosts()
    left, right = world.link()
    world.network.partition([world.a], [world.b])
    patience_s = world.network.keep_alive_us / SECOND_US
    assert patience_s == 2 * limits.KEEPALIVE_S

    world.run(patience_s - 1)
    assert not left.has_ended()
    assert not right.has_ended()
    world.run(2)

    assert (left.end, left.reason) == ("lost", "Connection timed out")
    assert (right.end, right.reason) == ("lost", "Connection timed out")


def test_a_partition_that_heals_in_time_ends_no_link() -> None:
    world = LinkedHosts()
    left, right = world.link()
    for healed_s in (50.0, 500.0, 5000.0, 50.0):
        world.network.partition([world.a], [world.b])
        world.run(500.0)
        world.network.heal()
        world.run(healed_s)
    left.send(b"still here")
    world.run(1.0)
    assert right.received_bytes == b"still here"


@pytest.mark.parametrize("direction", ["both", "there", "back"])
def test_a_sender_that_nobody_answers_gives_up(direction: str) -> None:
    """Also if its bytes arrive, and only the confirmation does not."""
    world = LinkedHosts()
    world.network.keep_alive_us = 10_000 * SECOND_US
    left, right = world.link()
    if direction != "back":
        world.network.cut([world.a], [world.b])
    if direction != "there":
        world.network.cut([world.b], [world.a])
    world.run(10.0)
    left.send(b"hello?")
    world.run(world.network.give_up_us / SECOND_US - 1)
    assert not left.has_ended()

    world.run(2)
    assert (left.end, left.reason) == ("lost", "Connection timed out")
    assert bool(right.received_bytes) is (direction == "back")
    assert not right.has_ended()


def test_a_link_is_half_open_when_its_end_was_not_heard() -> None:
    """The other side is told when it sends, or by the keep-alive."""
    world = LinkedHosts()
    (one, first), (two, second) = world.link(), world.link()
    world.network.partition([world.a], [world.b])
    one.abort()
    two.abort()
    world.run(1.0)
    world.network.heal()
    world.run(100.0)
    assert (one.end, two.end) == ("by_us", "by_us")
    assert first.is_open()
    assert second.is_open()

    first.send(b"hello?")
    world.run(1.0)
    assert (first.end, first.reason) == ("lost", "Connection reset by peer")
    assert second.is_open()
    world.run(world.network.keep_alive_us / SECOND_US)
    assert (second.end, second.reason) == ("lost", "Connection reset by peer")


def test_a_link_that_was_closed_in_a_partition_still_ends_in_order() -> None:
    world = LinkedHosts()
    left, right = world.link()
    world.network.partition([world.a], [world.b])
    left.send(b"the last words")
    left.close()
    world.run(10.0)
    assert left.end == "by_us"
    assert right.is_open()

    world.network.heal()
    world.run(1.0)

    assert right.received_bytes == b"the last words"
    assert right.end == "by_peer"


def test_a_reset_that_finds_no_way_back_is_not_heard() -> None:
    world = LinkedHosts()
    left, right = world.link()
    world.network.cut([world.b], [world.a])
    right.abort()
    world.run(1.0)
    left.send(b"hello?")
    world.run(60.0)
    assert left.is_open()

    world.network.heal()
    world.run(1.0)
    assert (left.end, left.reason) == ("lost", "Connection reset by peer")


def test_what_was_closed_long_ago_still_goes_out_when_it_can() -> None:
    """Also if many others have come and gone since."""
    world = LinkedHosts(count=3)
    left, right = world.link()
    world.network.partition([world.a], [world.b])
    left.send(b"the last words")
    left.close()
    for _ in range(200):
        other, _ = world.link(world.a, world.hosts[2])
        other.close()
        world.run(0.1)
    world.network.heal()
    world.run(1.0)

    assert right.received_bytes == b"the last words"
    assert len(world.network.links_of(world.a)) < 150, "those that are over are forgotten"


def test_a_link_that_is_closed_before_all_was_read_is_reset() -> None:
    world = LinkedHosts()
    left, right = world.link()
    right.stop_receiving()
    left.send(b"not read")
    world.run(1.0)
    right.close()
    world.run(1.0)
    assert (right.end, left.end) == ("by_us", "lost")


# --- losses -----------------------------------------------------------------------------------------------------


def test_a_broken_link_is_told_to_one_side_or_both() -> None:
    """The other learns of it when it sends."""
    seen = Counter[tuple[bool, bool]]()
    for seed in range(200):
        world = LinkedHosts(seed)
        left, right = world.link()
        world.network.lose(simulated(left))
        world.run(10.0)
        seen[left.has_ended(), right.has_ended()] += 1
        for side in (left, right):
            if side.is_open():
                side.send(b"hello?")
        world.run(1.0)
        assert (left.end, right.end) == ("lost", "lost")

    assert set(seen) == {(True, True), (True, False), (False, True)}
    assert min(seen.values()) > 20


def test_of_what_is_on_its_way_when_a_link_breaks_a_prefix_arrives() -> None:
    lengths = set()
    for seed in range(200):
        world = LinkedHosts(seed)
        left, right = world.link()
        for n in range(20):
            left.send(bytes([n]) * 100)
            world.run(0.0002)
        world.network.lose(simulated(left))
        world.run(10.0)
        sent = b"".join(bytes([n]) * 100 for n in range(20))
        assert sent.startswith(right.received_bytes)
        assert left.end == "lost"
        lengths.add(len(right.received_bytes))

    assert len(lengths) > 50
    assert any(length % 100 for length in lengths), "also a part of what was sent at a time"


def test_links_break_by_chance() -> None:
    world = LinkedHosts()
    world.network.loss = 0.1
    ends = Counter[bool]()
    for _ in range(300):
        left, _right = world.link()
        left.send(b"x")
        world.run(1.0)
        if left.is_open():
            left.send(b"y")
        world.run(1.0)
        ends[left.has_ended()] += 1

    assert 15 < ends[True] < 100
