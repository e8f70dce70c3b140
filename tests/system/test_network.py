"""Real sockets: their options, TLS, names, peers that do not behave, and a process that runs out of descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.conformance.link_sides import Meeting, RealMachines, Side
from tests.system.certificates import certified
from tidelog import limits
from tidelog.system.network import SystemLink


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()


@pytest.fixture
def meeting(loop: asyncio.AbstractEventLoop) -> Iterator[Meeting]:
    made = Meeting(RealMachines(loop))
    yield made
    made.stop()


def accepted_from(meeting: Meeting, peer: socket.socket) -> Side:
    """The side that a plain socket has connected to."""
    address = meeting.listen()
    peer.connect(address)
    meeting.wait_until(lambda: bool(meeting.accepted))
    return meeting.accepted[0]


def read_to_the_end(peer: socket.socket) -> bytes:
    return b"".join(iter(lambda: peer.recv(100), b""))


def socket_of(side: Side) -> Any:
    assert isinstance(side.link, SystemLink)
    assert side.link._transport is not None
    return side.link._transport.get_extra_info("socket")


def test_both_sides_are_kept_alive_and_send_at_once(meeting: Meeting) -> None:
    for side in meeting.pair():
        own = socket_of(side)
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == limits.KEEPALIVE_S
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert repr(side.link).endswith(" open>")


def test_others_have_their_turn_while_much_arrives(meeting: Meeting, loop: asyncio.AbstractEventLoop) -> None:
    received_bytes = [0]

    def next_turn() -> None:
        received_bytes.append(len(receiver.received_bytes))
        loop.call_soon(next_turn)

    with socket.socket() as peer:
        receiver = accepted_from(meeting, peer)
        receiver.when_received = lambda: time.sleep(0.005)  # so that more has come when it is over
        loop.call_soon(next_turn)
        sending = threading.Thread(target=peer.sendall, args=(bytes(8 * limits.MIB),))
        sending.start()
        meeting.wait_until(lambda: len(receiver.received_bytes) == 8 * limits.MIB)
        sending.join()
    assert max(after - before for before, after in pairwise(received_bytes)) < 1 * limits.MIB


# --- peers that do not behave -----------------------------------------------------------------------------------


def test_a_peer_that_closes_one_direction_and_does_not_read_has_ended_the_link(meeting: Meeting) -> None:
    """Otherwise what is unsent would keep it alive without end."""
    with socket.socket() as peer:
        side = accepted_from(meeting, peer)
        while side.has_room():
            side.send(b"x" * limits.MIB)
            meeting.run(0.001)
        peer.sendall(b"last words")
        peer.shutdown(socket.SHUT_WR)
        meeting.wait_until(side.has_ended)

    assert side.received_bytes == b"last words"
    assert (side.end, side.reason) == ("by_peer", "Closed by the peer")


def test_a_peer_that_resets_the_connection(meeting: Meeting) -> None:
    with socket.socket() as peer:
        side = accepted_from(meeting, peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    meeting.wait_until(side.has_ended)

    assert (side.end, side.reason) == ("lost", "Connection reset by peer")


def test_an_aborted_link_is_reset(meeting: Meeting) -> None:
    """The peer must not take a part of the bytes for all of them."""
    with socket.socket() as peer:
        side = accepted_from(meeting, peer)
        peer.settimeout(10)
        side.send(b"a part")
        side.abort()
        meeting.wait_until(side.has_ended)
        with pytest.raises(ConnectionResetError):
            read_to_the_end(peer)


# --- TLS --------------------------------------------------------------------------------------------------------


def test_a_certificate_that_nobody_trusts(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    server, _ = certified(tmp_path, "localhost")
    meeting = Meeting(RealMachines(loop, server, ssl.create_default_context()))
    side = meeting.connect(meeting.listen())
    meeting.wait_until(side.has_ended)
    assert (side.told, side.end) == (["ended"], "failed")
    assert side.reason.startswith("The certificate cannot be trusted: self")
    assert meeting.accepted == []
    meeting.stop()


def test_a_certificate_of_another_name(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    meeting = Meeting(RealMachines(loop, *certified(tmp_path, "another.example")))
    side = meeting.connect(meeting.listen())
    meeting.wait_until(side.has_ended)
    assert side.end == "failed"
    assert "Hostname mismatch" in side.reason
    meeting.stop()


def test_a_stranger_who_does_not_speak_tls_is_nobody(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    meeting = Meeting(RealMachines(loop, *certified(tmp_path, "localhost")))
    _, port = meeting.listen()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.setblocking(False)
        stranger.send(b"PING\r\n" * 10)

        def is_cut() -> bool:
            try:
                return not stranger.recv(1000)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        meeting.wait_until(is_cut)
    friend = meeting.connect(("localhost", port))
    meeting.wait_until(lambda: friend.is_open() and bool(meeting.accepted))
    assert len(meeting.accepted) == 1
    meeting.stop()


def test_who_expects_tls_from_a_plain_port(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    _, client = certified(tmp_path, "localhost")
    meeting = Meeting(RealMachines(loop, None, client))

    def answer(side: Side) -> None:
        side.when_received = lambda: side.send(b"-ERR what?\r\n")

    side = meeting.connect(meeting.listen(answer))
    meeting.wait_until(side.has_ended)
    assert side.end == "failed"
    assert side.reason.startswith("TLS failed: ")
    meeting.stop()


def test_shaking_hands_can_be_given_up(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    """A port that accepts, and then says nothing."""
    _, client = certified(tmp_path, "localhost")
    meeting = Meeting(RealMachines(loop, None, client))
    side = meeting.connect(meeting.listen())
    meeting.wait_until(lambda: bool(meeting.accepted) and bool(meeting.accepted[0].received_bytes))
    assert side.told == []

    side.abort()
    meeting.wait_until(lambda: side.has_ended() and meeting.accepted[0].has_ended())

    assert side.end == "by_us"
    meeting.stop()


# --- names and descriptors --------------------------------------------------------------------------------------


def test_the_loop_goes_on_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With asyncio. uvloop does it in threads of its own, where a test cannot look."""
    look_up = socket.getaddrinfo

    def look_up_slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.3)
        return look_up(*arguments, **more)

    meeting = Meeting(RealMachines(asyncio.new_event_loop()))
    _, port = meeting.listen()
    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    side = meeting.connect(("localhost", port))
    turns = 0

    def turn() -> bool:
        nonlocal turns
        turns += 1
        return side.is_open()

    meeting.wait_until(turn)
    assert turns > 5
    meeting.stop()


def test_a_process_without_descriptors_accepts_when_it_has_some(
    meeting: Meeting, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINK_ACCEPT_PAUSE_S", 0.1)
    address = meeting.listen()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def connect(peer: socket.socket) -> float:
        """Returns how much the process had to do while it could not accept."""
        # All numbers but those that are always taken: others may become free meanwhile, by threads that tests before
        # this one have left, such as those of obstore with their idle connections.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
        try:
            peer.connect(address)
            before_s = time.process_time()
            await asyncio.sleep(0.35)
            return time.process_time() - before_s
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    with socket.socket() as peer:
        busy_s = loop.run_until_complete(connect(peer))
        assert meeting.accepted == []
        assert busy_s < 0.15, "it does not try all the time"
        meeting.wait_until(lambda: bool(meeting.accepted))
