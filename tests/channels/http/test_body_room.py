"""Large bodies: how many are under way at once, and clients that send them slowly or do not read them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.channels.http.gateways import SECONDS_MAX, GatewayProcess, HttpServers, polling
from tidelog import limits
from tidelog.channels.http.answer import answer_to
from tidelog.channels.http.body_room import BodyRoom, TooManyBytes

MIB = 1024 * 1024
HELD = "tidelog_channels_held_bytes"
LARGEST = b'"' + b"x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2) + b'"'


def test_room_is_bounded_and_comes_back() -> None:
    room = BodyRoom()
    room.take(limits.CHANNEL_BODIES_BYTES_MAX - 1)
    with pytest.raises(TooManyBytes) as caught:
        room.take(2)
    assert answer_to(caught.value).status == 429
    room.take(1)
    room.give_back(limits.CHANNEL_BODIES_BYTES_MAX)
    assert room.held_bytes == 0


@pytest.fixture
def small(tmp_path: Path, http_servers: HttpServers) -> Iterator[GatewayProcess]:
    """A gateway with room for three of the largest messages."""
    http_servers.redis.client.flushall()
    with GatewayProcess(
        tmp_path, http_servers.redis.url, CHANNEL_BODIES_BYTES_MAX=3 * MIB + 1000, CHANNEL_TAKEN_S_MAX=1.0
    ) as made:
        yield made
        assert made.stderr == ""


def open_link(port: int, sent: bytes) -> socket.socket:
    """A connection that takes little by itself."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.settimeout(SECONDS_MAX)
    link.connect(("127.0.0.1", port))
    link.sendall(sent)
    return link


def asked(path: str, *more: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *more, "", ""]).encode()


def rest_of(link: socket.socket) -> bytes:
    """All that is still to come, until the connection ends or nothing comes any more."""
    link.settimeout(0.5)
    got = b""
    try:
        while more := link.recv(1 << 20):
            got += more
    except (ConnectionResetError, TimeoutError):
        pass
    return got


def test_answers_that_nobody_reads_are_bounded_and_cut(small: GatewayProcess) -> None:
    site = small.site()
    site.subscribe("big", "me")
    assert site("PUT", "/channel/big/message/a", LARGEST).status == 200
    with ExitStack() as links:
        # The kernel takes some megabytes of what is sent, so each asks several times.
        unread = [links.enter_context(open_link(site.port, 8 * asked(polling("big", "me")))) for _ in range(6)]
        deadline = time.monotonic() + SECONDS_MAX
        while (refused := site("GET", polling("big", "me"))).status == 200:
            assert time.monotonic() < deadline
        assert (refused.status, refused.code) == (429, "tidelog.channels.too-many-bytes")
        assert refused.headers["retry-after"] == "1"
        assert 2 * MIB < site.metric(HELD) <= 3 * MIB + 1000
        site.subscribe("small", "me")  # what is small needs no room
        site.publish("small", "a", 1)
        assert site.fetch("small", "me")["messages"]
        site.wait_for(HELD, 0)
        assert sum(rest_of(link).count(LARGEST) < 8 for link in unread) >= 3
    assert site.fetch("big", "me")["messages"]


def test_a_slow_client_that_takes_some_of_it_gets_all_of_it(small: GatewayProcess) -> None:
    site = small.site()
    site.subscribe("big", "me")
    assert site("PUT", "/channel/big/message/a", LARGEST).status == 200
    with open_link(site.port, asked(polling("big", "me"), "connection: close")) as link:
        got, rests = b"", 0
        began = time.monotonic()
        while more := link.recv(65536):
            got += more
            if len(got) // 65536 > rests:
                rests += 1
                time.sleep(0.1)
    assert LARGEST in got
    assert time.monotonic() - began > 1.5, "longer than a piece may take"


def test_a_stream_that_nobody_reads_is_cut(small: GatewayProcess) -> None:
    site = small.site()
    site.subscribe("big", "me")
    for number in range(9):
        assert site("PUT", f"/channel/big/message/m{number}", LARGEST).status == 200
    with open_link(site.port, asked(polling("big", "me"), "accept: text/event-stream")) as link:
        site.wait_for("tidelog_channels_polls_waiting", 1)
        site.wait_for("tidelog_channels_polls_waiting", 0)
        assert not rest_of(link).endswith(b"0\r\n\r\n")
    assert site.metric(HELD) == 0
    assert site.fetch("big", "me")["messages"]


def test_bodies_that_come_slowly_are_bounded(small: GatewayProcess) -> None:
    site = small.site()
    head = f"PUT /channel/big/message/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: {MIB}\r\n\r\n".encode()
    with ExitStack() as links:
        for number in range(3):
            links.enter_context(open_link(site.port, head + b" " * (MIB - 100)))
            site.wait_for(HELD, (number + 1) * (MIB - 100))
        reply = site("PUT", "/channel/big/message/b", LARGEST)
        assert (reply.status, reply.code) == (429, "tidelog.channels.too-many-bytes")
        site.publish("big", "c", "small")
        assert site.metric(HELD) <= 3 * MIB + 1000
    site.wait_for(HELD, 0)
    assert site("PUT", "/channel/big/message/d", LARGEST).status == 200
