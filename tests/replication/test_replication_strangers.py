"""Peers of a leader that do not do what a follower does: they flood it, do not read, or never say who they are."""

from __future__ import annotations

import pytest

from tests.replication.test_replication import World
from tidelog import limits
from tidelog.ids import Ts
from tidelog.ports import LinkEnd, NetworkLink
from tidelog.replication.follower_link import FollowerLink
from tidelog.replication.kinds import LinkSide
from tidelog.replication.message import (
    FollowerHello,
    HistoryPosition,
    LinkMessage,
    LinkPing,
    LinkPong,
    LinkRole,
)
from tidelog.replication.wire import PieceDecoder, encode


class Stranger:
    """`ports.LinkOwner` of a link to the leader `world.a`, in the hands of a test."""

    def __init__(self, world: World) -> None:
        self._decoder = PieceDecoder(LinkSide.LEADER)
        self.received_messages: list[LinkMessage] = []
        self.received_bytes = b""
        self.is_refused = False
        self.is_over = False
        self.link: NetworkLink = world.network.add("stranger").connect(world.a.address, self)
        world.until(lambda: self.link.is_open and bool(world.a.live.replication.followers.links))
        self.seen: FollowerLink = world.a.live.replication.followers.links[-1]
        """The leader's end."""

    def say(self, *messages: LinkMessage) -> None:
        self.link.send(b"".join(map(encode, messages)))

    def say_hello(self, host: str = "stranger") -> None:
        self.say(FollowerHello("", LinkRole.FOLLOWER, HistoryPosition(Ts(0), ()), (), None, host, 6390, 100))

    def connected(self) -> None:
        return

    def received(self, data: bytes) -> None:
        self.received_bytes += data
        if self.is_refused:
            return  # an end where a hello belongs
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            self.received_messages.append(message)

    def room(self) -> None:
        return

    def ended(self, end: LinkEnd, reason: str) -> None:
        self.is_over = True


def leader() -> World:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    return world


def unread(world: World) -> Stranger:
    """A follower that reads nothing, and whose link has no room."""
    stranger = Stranger(world)
    stranger.say_hello()
    world.until(lambda: stranger.seen.is_online or stranger.seen.file_bytes_left > 0 or world.a.live._snapshot_due)
    stranger.link.stop_receiving()
    for number in range(60):
        world.a.live.run("SET", f"key{number}", "k" * 50_000)
        world.loop.run(0.2)
        stranger.say(LinkPing(number))
    assert not stranger.seen.has_room
    return stranger


def test_a_peer_that_pings_and_does_not_read_takes_no_memory() -> None:
    world = leader()
    stranger = unread(world)
    unsent = stranger.seen.unsent_bytes
    for _ in range(200):
        stranger.say(*(LinkPing(1007) for _ in range(1000)))
        world.loop.run(0.01)
    stranger.say(LinkPing(1008))
    world.loop.run(1)
    assert stranger.seen.unsent_bytes == unsent < 2 * limits.LINK_UNSENT_BYTES_MAX
    stranger.link.resume_receiving()
    world.until(lambda: LinkPong(1008) in stranger.received_messages)
    assert LinkPong(1007) not in stranger.received_messages


def test_a_peer_that_does_not_read_is_announced_nothing_until_it_does() -> None:
    world = leader()
    stranger = unread(world)
    unsent = stranger.seen.unsent_bytes
    for number in range(60):
        world.loop.run(1)
        stranger.say(LinkPing(number))
    assert stranger.seen.unsent_bytes == unsent
    count = len(stranger.received_messages)
    stranger.link.resume_receiving()
    world.until(lambda: any(type(each).__name__ == "Announcement" for each in stranger.received_messages[count:]))


def test_a_peer_that_has_not_said_hello_is_shown_nowhere() -> None:
    world = leader()
    stranger = Stranger(world)
    assert world.a.live.replication.facts().followers == []
    stranger.say_hello()
    world.until(lambda: len(world.a.live.replication.facts().followers) == 1)
    assert world.a.live.replication.facts().followers[0].host == "stranger"


@pytest.mark.parametrize("host", ["two words", "a\r\nslave9:ip=b", "a,port=1", "a\x00", "a\x7f", "a\u2028b"])
def test_a_hello_whose_host_is_no_word_is_refused(host: str) -> None:
    world = leader()
    stranger = Stranger(world)
    stranger.is_refused = True
    stranger.say_hello(host)
    world.until(lambda: stranger.is_over)
    assert world.a.live.replication.facts().followers == []
    assert b"one word belongs" in stranger.received_bytes
