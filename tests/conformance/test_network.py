"""What `ports.Network`, `ports.NetworkLink` and `ports.OpenPort` promise, for real sockets and the simulated network.

The sides of all links watch the order of what they are told, and that nothing is told inside of a call
(`link_sides.py`).
"""

from __future__ import annotations

import asyncio
import errno
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.conformance.link_sides import Meeting, RealMachines, Side, SimulatedMachines
from tests.system.certificates import certified
from tidelog import limits

WORLDS = ["asyncio", "uvloop", "asyncio_tls", "uvloop_tls", "simulated_1", "simulated_2", "simulated_3"]
MIB = limits.MIB


@pytest.fixture(params=WORLDS)
def meeting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meeting]:
    kind, _, more = request.param.partition("_")
    if kind == "simulated":
        made = Meeting(SimulatedMachines(int(more)))
    else:
        loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
        made = Meeting(RealMachines(loop, *(certified(tmp_path, "localhost") if more else ())))
    yield made
    made.stop()


def some_bytes(size: int, first: int = 0) -> bytes:
    """Bytes of which no piece looks like its neighbour."""
    return array("I", range(first, first + size // 4 + 1)).tobytes()[:size]


# --- connecting -------------------------------------------------------------------------------------------------


def test_both_sides_are_told_that_they_are_connected(meeting: Meeting) -> None:
    left = meeting.connect(meeting.listen())
    assert left.told == []
    assert not left.is_open()

    meeting.wait_until(lambda: left.is_open() and bool(meeting.accepted))
    [right] = meeting.accepted

    assert (left.told, right.told) == (["connected"], ["connected"])
    assert right.is_open()
    assert left.has_room()
    assert right.has_room()
    assert left.unsent_bytes() == right.unsent_bytes() == 0


def test_each_side_knows_its_peer(meeting: Meeting) -> None:
    address = meeting.listen()
    left, again = meeting.connect(address), meeting.connect(address)
    meeting.wait_until(lambda: len(meeting.accepted) == 2)

    assert left.link is not None
    assert again.link is not None
    assert left.link.peer == again.link.peer == address
    peers = [side.link.peer for side in meeting.accepted if side.link is not None]
    assert len(set(peers)) == 2
    assert {host for host, _ in peers} <= {"127.0.0.1", "connecting"}


def test_where_nobody_listens_connecting_fails(meeting: Meeting) -> None:
    address = meeting.listen()
    meeting.ports[0].close()
    meeting.run(0.05)
    side = meeting.connect(address)

    meeting.wait_until(lambda: side.has_ended())

    assert (side.told, side.end) == (["ended"], "failed")
    assert "refused" in side.reason


def test_a_host_that_nobody_knows_cannot_be_connected_to(meeting: Meeting) -> None:
    side = meeting.connect(("no..host", 1))  # which no name server is asked for

    meeting.wait_until(lambda: side.has_ended())

    assert (side.told, side.end) == (["ended"], "failed")


def test_connecting_can_be_given_up(meeting: Meeting) -> None:
    address = meeting.listen()
    aborted, closed = meeting.connect(address), meeting.connect(address)
    aborted.abort()
    closed.close()
    assert aborted.told == closed.told == []

    meeting.wait_until(lambda: aborted.has_ended() and closed.has_ended())
    meeting.run(0.05)

    assert aborted.told == closed.told == ["ended"]
    assert aborted.end == closed.end == "by_us"


def test_connecting_can_be_given_up_at_any_moment(meeting: Meeting) -> None:
    """A deadline may pass when the link is just about to be connected."""
    address = meeting.listen()
    for n in range(30):
        side = meeting.connect(address)
        meeting.machines.loop.call_later(n * 0.0001, side.abort)
        meeting.wait_until(lambda side=side: side.has_ended())  # type: ignore[misc]
        assert side.end == "by_us"


def test_what_accepts_can_refuse(meeting: Meeting) -> None:
    left = meeting.connect(meeting.listen(lambda side: side.abort()))

    meeting.wait_until(lambda: left.has_ended() and bool(meeting.accepted))
    [right] = meeting.accepted
    meeting.wait_until(lambda: right.has_ended())

    assert left.end in ("failed", "lost")
    assert (right.told, right.end) == (["ended"], "by_us")


def test_what_accepts_can_send_at_once(meeting: Meeting) -> None:
    left = meeting.connect(meeting.listen(lambda side: side.send(b"hello")))

    meeting.wait_until(lambda: left.received_bytes == b"hello")


def test_the_first_word_can_be_sent_when_connected(meeting: Meeting) -> None:
    def greet(side: Side) -> None:
        side.when_connected = lambda: side.send(b"hello")

    meeting.connect(meeting.listen(), greet)

    meeting.wait_until(lambda: bool(meeting.accepted) and meeting.accepted[0].received_bytes == b"hello")


# --- ports ------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken(meeting: Meeting) -> None:
    _, number = meeting.listen()
    machines = meeting.machines

    with pytest.raises(OSError, match=r".") as taken:
        machines.listening.listen((machines.host, number), lambda link: meeting.side())

    assert taken.value.errno == errno.EADDRINUSE


def test_an_address_of_another(meeting: Meeting) -> None:
    with pytest.raises(OSError, match=r".") as refused:
        meeting.machines.listening.listen(("192.0.2.1", 0), lambda link: meeting.side())

    assert refused.value.errno == errno.EADDRNOTAVAIL


def test_a_closed_port_accepts_nothing_more_and_its_links_go_on(meeting: Meeting) -> None:
    left, right = meeting.pair()
    host, number = meeting.machines.host_called, meeting.ports[0].address[1]

    meeting.ports[0].close()
    meeting.ports[0].close()
    meeting.run(0.05)
    late = meeting.connect((host, number))
    meeting.wait_until(lambda: late.has_ended())
    left.send(b"still here")
    meeting.wait_until(lambda: right.received_bytes == b"still here")

    assert late.end == "failed"
    assert meeting.accepted == [right]


def test_a_port_that_is_closed_at_once_accepts_nobody(meeting: Meeting) -> None:
    address = meeting.listen()
    late = meeting.connect(address)
    meeting.ports[0].close()

    meeting.wait_until(lambda: late.has_ended())

    assert late.end in ("failed", "lost")
    assert meeting.accepted == []


@pytest.mark.parametrize("turns", range(8))
def test_a_port_can_be_closed_at_any_moment(meeting: Meeting, turns: int) -> None:
    """Who connects meanwhile is either accepted before or told that there is nobody."""
    address = meeting.listen()
    counts: list[int] = []

    def close_later(turns_left: int) -> None:
        if turns_left:
            meeting.machines.loop.call_soon(lambda: close_later(turns_left - 1))
        else:
            meeting.ports[0].close()
            counts.append(len(meeting.accepted))

    sides = [meeting.connect(address) for _ in range(3)]
    meeting.wait_until(lambda: any(side.is_open() for side in sides))
    sides += [meeting.connect(address) for _ in range(3)]
    close_later(turns)
    meeting.wait_until(lambda: bool(counts) and all(side.is_open() or side.has_ended() for side in sides))
    meeting.wait_until(lambda: sum(side.is_open() for side in sides) == len(meeting.accepted))
    meeting.run(0.05)

    assert counts == [len(meeting.accepted)]


def test_a_port_that_is_closed_while_it_accepts_keeps_the_link(meeting: Meeting) -> None:
    left = meeting.connect(meeting.listen(lambda side: meeting.ports[0].close()))
    meeting.wait_until(lambda: left.is_open() and bool(meeting.accepted))
    [right] = meeting.accepted
    meeting.run(0.05)

    right.send(b"hello")

    meeting.wait_until(lambda: left.received_bytes == b"hello")


# --- sending and receiving --------------------------------------------------------------------------------------


def test_bytes_arrive_in_both_directions(meeting: Meeting) -> None:
    left, right = meeting.pair()

    for n in range(500):
        left.send(b"left %d;" % n)
        right.send(b"right %d;" % n)
    meeting.wait_until(lambda: left.received_bytes.endswith(b"499;") and right.received_bytes.endswith(b"499;"))

    assert right.received_bytes == b"".join(b"left %d;" % n for n in range(500))
    assert left.received_bytes == b"".join(b"right %d;" % n for n in range(500))


def test_a_few_megabytes_arrive_whole(meeting: Meeting) -> None:
    left, right = meeting.pair()
    data = some_bytes(8 * MIB)

    left.send(data)
    meeting.wait_until(lambda: len(right.received_bytes) >= len(data))

    assert right.received_bytes == data
    assert left.unsent_bytes() == 0


def test_nothing_is_sent_by_sending_nothing(meeting: Meeting) -> None:
    left, right = meeting.pair()

    left.send(b"")
    left.send(b"x")
    left.send(b"")
    meeting.wait_until(lambda: bool(right.received_bytes))
    meeting.run(0.05)

    assert right.told == ["connected", "received"]


def test_an_answer_can_be_sent_from_a_callback(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.when_received = lambda: right.send(b"pong" * (right.received_bytes.count(b"ping") and 1))

    left.send(b"ping")
    meeting.wait_until(lambda: left.received_bytes == b"pong")


def test_links_do_not_mix(meeting: Meeting) -> None:
    address = meeting.listen()
    sides = [meeting.connect(address) for _ in range(10)]
    meeting.wait_until(lambda: len(meeting.accepted) == 10 and all(side.is_open() for side in sides))

    for n in range(100):
        for number, side in enumerate(sides):
            side.send(b"%d:%d " % (number, n))
    expected = {b"".join(b"%d:%d " % (number, n) for n in range(100)) for number in range(10)}

    meeting.wait_until(lambda: {bytes(side.received_bytes) for side in meeting.accepted} == expected)


def test_a_link_that_is_not_open_sends_nothing(meeting: Meeting) -> None:
    early = meeting.connect(meeting.listen())
    with pytest.raises(ValueError, match="not open"):
        early.send(b"x")
    left, right = meeting.pair()

    left.close()
    with pytest.raises(ValueError, match="not open"):
        left.send(b"x")
    right.abort()
    with pytest.raises(ValueError, match="not open"):
        right.send(b"x")
    meeting.wait_until(lambda: left.has_ended())
    with pytest.raises(ValueError, match="not open"):
        left.send(b"x")


# --- when there is no room --------------------------------------------------------------------------------------


def fill(side: Side) -> bytes:
    """Send until there is no room, and return what was sent."""
    sent = bytearray()
    while side.has_room():
        piece = some_bytes(256 * limits.KIB, first=len(sent))
        side.send(piece)
        sent += piece
        assert len(sent) < 64 * MIB
    return bytes(sent)


def fill_for_good(meeting: Meeting, side: Side) -> bytes:
    """The same until the buffers of the system are full, too: nothing moves for a while.

    On a busy machine the loop runs only once in 20 ms, and TCP may send again what it thinks was lost after 200 ms.
    """
    sent = bytearray()
    still = 0
    while still < 20 or side.has_room():
        before = side.unsent_bytes()
        sent_now = fill(side)
        sent += sent_now
        meeting.run(0.02)
        still = 0 if sent_now or side.unsent_bytes() != before else still + 1
    return bytes(sent)


def test_a_reader_that_stops_makes_the_sender_run_out_of_room(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    sent = fill_for_good(meeting, left)
    assert not left.has_room()
    assert left.unsent_bytes() > limits.LINK_ROOM_BYTES
    assert right.received_bytes == b""
    times = left.told.count("room")

    right.resume_receiving()
    meeting.wait_until(lambda: len(right.received_bytes) >= len(sent))
    meeting.run(0.05)

    assert right.received_bytes == sent
    assert left.told.count("room") == times + 1
    assert left.has_room()
    assert left.unsent_bytes() == 0


def test_a_sender_that_asks_for_room_sends_everything(meeting: Meeting) -> None:
    left, right = meeting.pair()
    data = some_bytes(16 * MIB)
    sent, most = 0, 0

    def send_on() -> None:
        nonlocal sent, most
        while left.has_room() and sent < len(data):
            left.send(data[sent : sent + 100_000])
            sent += 100_000
            most = max(most, left.unsent_bytes())

    left.when_room = send_on
    send_on()
    assert not left.has_room()
    meeting.wait_until(lambda: len(right.received_bytes) >= len(data))

    assert right.received_bytes == data
    assert "room" in left.told
    assert most < limits.LINK_UNSENT_BYTES_MAX + 200_000


def test_sending_without_room_is_not_refused(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    sent = fill_for_good(meeting, left)
    before = left.unsent_bytes()

    left.send(b"a" * 100)

    assert left.unsent_bytes() >= before + 100
    right.resume_receiving()
    meeting.wait_until(lambda: len(right.received_bytes) >= len(sent) + 100)
    assert right.received_bytes == sent + b"a" * 100


def test_nothing_is_received_while_receiving_is_stopped(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.when_received = right.stop_receiving
    left.send(some_bytes(2 * MIB))
    meeting.wait_until(lambda: bool(right.received_bytes))
    meeting.run(0.05)
    assert right.told == ["connected", "received"]

    right.resume_receiving()
    right.stop_receiving()
    meeting.run(0.05)
    assert right.told == ["connected", "received"]

    right.when_received = lambda: None
    right.resume_receiving()
    right.resume_receiving()
    meeting.wait_until(lambda: len(right.received_bytes) >= 2 * MIB)
    assert right.received_bytes == some_bytes(2 * MIB)


@pytest.mark.parametrize("moment", ["before", "when"])
def test_receiving_can_be_stopped_before_anything_came(meeting: Meeting, moment: str) -> None:
    left = meeting.connect(meeting.listen(lambda side: side.send(b"hello")))
    if moment == "before":
        left.stop_receiving()
    else:
        left.when_connected = left.stop_receiving
    meeting.wait_until(lambda: left.is_open())
    meeting.run(0.1)
    assert left.told == ["connected"]

    left.resume_receiving()

    meeting.wait_until(lambda: left.received_bytes == b"hello")


# --- ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4 * MIB])
def test_what_was_sent_before_closing_arrives(meeting: Meeting, size: int) -> None:
    left, right = meeting.pair()
    left.send(some_bytes(size))
    left.close()
    left.close()
    assert left.told == ["connected"]

    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert right.received_bytes == some_bytes(size)
    assert (left.end, right.end) == ("by_us", "by_peer")


def test_a_side_that_has_closed_receives_nothing_more(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.send(b"too late")
    left.close()

    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert left.received_bytes == b""
    assert right.end in ("by_peer", "lost")


def test_a_side_that_still_closes_receives_nothing_more(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    fill_for_good(meeting, left)
    left.close()
    meeting.run(0.05)
    if right.is_open():
        right.send(b"too late")
    meeting.run(0.05)
    right.resume_receiving()

    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert left.received_bytes == b""


def test_the_end_waits_behind_the_bytes_of_a_reader_that_stops(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    left.send(some_bytes(100_000))
    left.close()
    meeting.run(0.1)
    assert right.told == ["connected"]

    right.resume_receiving()
    meeting.wait_until(lambda: right.has_ended())

    assert right.received_bytes == some_bytes(100_000)
    assert right.end == "by_peer"


def test_aborting_tells_the_peer_and_loses_what_is_on_the_way(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    sent = fill_for_good(meeting, left)

    left.abort()
    left.abort()
    assert not left.has_ended()
    meeting.run(0.05)
    right.resume_receiving()
    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert (left.end, right.end) == ("by_us", "lost")
    assert sent.startswith(right.received_bytes)
    assert len(right.received_bytes) < len(sent)


def test_a_link_that_closes_can_still_be_aborted(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    sent = fill_for_good(meeting, left)
    left.close()
    meeting.run(0.05)
    assert not left.has_ended(), "nobody takes what was sent"

    left.abort()
    meeting.wait_until(lambda: left.has_ended())
    right.resume_receiving()
    meeting.wait_until(lambda: right.has_ended())

    assert left.end == "by_us"
    assert sent.startswith(right.received_bytes)  # with TLS below, it may be all of it


def test_a_link_that_closes_does_not_wait_for_ever(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINK_CLOSING_S", 0.2)
    left, right = meeting.pair()
    right.stop_receiving()
    fill_for_good(meeting, left)

    left.close()
    meeting.wait_until(lambda: left.has_ended())

    assert left.end == "by_us"
    assert left.unsent_bytes() == 0


def test_a_link_that_breaks_while_it_closes_is_lost(meeting: Meeting) -> None:
    left, right = meeting.pair()
    right.stop_receiving()
    fill_for_good(meeting, left)
    left.close()
    meeting.run(0.05)

    right.abort()
    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert (left.end, right.end) == ("lost", "by_us")


def test_a_link_can_be_ended_in_any_callback(meeting: Meeting) -> None:
    address = meeting.listen(lambda side: side.send(b"hello"))

    def abort_when_connected(side: Side) -> None:
        side.when_connected = side.abort

    def close_when_received(side: Side) -> None:
        side.when_received = side.close

    first, second = meeting.connect(address, abort_when_connected), meeting.connect(address, close_when_received)
    meeting.wait_until(lambda: first.has_ended() and second.has_ended())
    meeting.wait_until(lambda: all(side.has_ended() for side in meeting.accepted))

    assert (first.told, first.end) == (["connected", "ended"], "by_us")
    assert (second.told, second.end) == (["connected", "received", "ended"], "by_us")


def test_after_the_end_nothing_happens(meeting: Meeting) -> None:
    left, right = meeting.pair()
    left.close()
    meeting.wait_until(lambda: left.has_ended() and right.has_ended())
    told = (list(left.told), list(right.told))

    for side in (left, right):
        side.stop_receiving()
        side.resume_receiving()
        side.close()
        side.abort()
        assert side.unsent_bytes() == 0
        assert not side.is_open()
    meeting.run(0.05)

    assert (left.told, right.told) == told


def test_both_sides_can_close_at_once(meeting: Meeting) -> None:
    left, right = meeting.pair()
    left.close()
    right.close()

    meeting.wait_until(lambda: left.has_ended() and right.has_ended())

    assert {left.end, right.end} <= {"by_us", "lost"}


def test_sending_to_a_peer_that_is_gone_ends_the_link(meeting: Meeting) -> None:
    """Also while it does not receive, when it may not be told otherwise."""
    left, right = meeting.pair()
    right.stop_receiving()
    left.abort()
    meeting.wait_until(lambda: left.has_ended())

    for _ in range(100):
        if right.is_open():
            right.send(b"anybody there?")
        meeting.run(0.01)

    assert right.end == "lost"
