"""A server on a simulated machine that follows a copy in an object store, with a client of its change feed.

Whenever it is looked at, what it serves is what some server held after the same transaction; what a feed was told is
never at or below a checkpoint that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.feeds.rebuilt import Rebuilt, difference, state_of
from tests.replication.simulated_server import FOLDER, Machine, SimulatedServer
from tests.simulation.recovery import require
from tests.simulation.shipping_server import state
from tidelog.errors import FeedBehind, FeedDiverged, TooOld
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.feeds import Feeds
from tidelog.feeds.open_feed import OpenFeed
from tidelog.feeds.span import Span
from tidelog.ids import Ts
from tidelog.journal.journal import Settings
from tidelog.ports import LinkOwner, NetworkAddress, NetworkLink, ObjectStore
from tidelog.replication.role_file import COPY_PORT
from tidelog.shipping.copy_link import CopyLink
from tidelog.shipping.copy_reader import CopyReader
from tidelog.shipping.copy_session import CopySession
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.network import SimulatedNetwork
from tidelog.testing.worker import SimulatedWorker

COPY: Final[NetworkAddress] = ("s3://bucket/copy", COPY_PORT)
_EVERYTHING: Final = [Span(b"", b"")]
_ASIDE: Final = ("diverged-", "set-aside-")


class CopyFollower(Machine):
    """A machine whose server follows a copy."""

    def __init__(
        self, network: SimulatedNetwork, name: str, seed: int, settings: Settings, objects: ObjectStore
    ) -> None:
        super().__init__(network, name, seed, settings)
        self.objects = objects
        self.client = FeedReader(self)
        self.is_epoch_known: Callable[[int], bool] = lambda _epoch: True
        """Whether the server that ships has an epoch."""
        self.full_syncs = 0
        """Of processes that are no more."""

    def start(self, replicaof: NetworkAddress | None = COPY) -> SimulatedServer:
        if self.host.loop.is_dead:
            self.host.start()
        self.starts += 1
        self.client.leave()
        self.server = FollowingServer(self, replicaof)
        return self.server

    @property
    def following(self) -> FollowingServer:
        assert isinstance(self.server, FollowingServer)
        return self.server

    def end(self, how: Callable[[], None]) -> None:
        """The process ends, in some way."""
        self.full_syncs += self.live.replication.own_full_syncs
        self.client.leave()
        how()

    def get_new_disk(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.client.known = None

    def set_aside(self) -> list[str]:
        return [name for name in self.disk.list(FOLDER) if name.startswith(_ASIDE)]


class FollowingServer(SimulatedServer):
    """One process."""

    def __init__(self, machine: CopyFollower, replicaof: NetworkAddress | None) -> None:
        self.follower = machine
        self.feeds: Feeds | None = None
        self._copy_worker = SimulatedWorker(machine.host.loop, 0.005)
        self._reader = CopyReader(lambda: machine.objects, COPY[0], None, machine.clock)
        super().__init__(machine, replicaof)

    def _connect(self, address: NetworkAddress, owner: LinkOwner) -> NetworkLink:
        assert address == COPY
        clock = self.machine.clock
        session = CopySession(self._reader, clock, SimulatedDisk())
        return CopyLink(address, owner, session, clock, self.loop, self._copy_worker)

    def _open(self) -> None:
        super()._open()
        self.feeds = Feeds(self.store, self.machine.clock)
        self.feeds.checkpoint_ms = 300

    def reload(self, prepare: Callable[[], None], feed_error: str) -> None:
        self.feeds = None
        self.follower.client.told_over(feed_error)
        super().reload(prepare, feed_error)

    def write(self) -> None:
        super().write()
        if self.feeds is not None:
            self.feeds.advance()

    def sync(self) -> None:
        super().sync()
        if self.feeds is not None:
            self.feeds.advance()
            self.feeds.tick()
            self.feeds.work(self.machine.clock.monotonic_us() + 1_000_000)

    @property
    def has_data(self) -> bool:
        return self.is_open and bool(self.store.journal.epochs)

    def is_linked(self) -> bool:
        return self.replication.facts().is_link_up

    def held(self) -> tuple[Ts, Any]:
        """What it serves."""
        return self.last_ts, state(self.store)


class FeedReader:
    """Reads all of database 0, goes on where it was, and checks what it is told (`Rebuilt`)."""

    def __init__(self, follower: CopyFollower) -> None:
        self._follower = follower
        self.known: Rebuilt | None = None
        self._opened: OpenFeed | None = None
        self.diverged = 0

    def leave(self) -> None:
        self._opened = None

    def told_over(self, error: str) -> None:
        self._opened = None
        if error:
            self.known = None
            self.diverged += 1

    def go_on(self) -> None:
        """Connect, if it is not connected; take note of an end."""
        server, known = self._follower.following, self.known
        if known is not None and known.ended:
            error = known.ended.pop() or ""
            require(error.startswith(("FEEDDIVERGED", "FEEDTOOOLD")), "a feed ended:", error)
            self.told_over(error)
        if self._opened is not None or server.feeds is None or not server.has_data:
            return
        known = self.known
        asked: dict[str, Any] = {"is_initial": True}
        if known is not None and known.epoch:
            asked = {"since": Ts(known.checkpoint), "epoch": known.epoch, "seen": Ts(known.seen)}
        else:
            known = None
        fresh = Rebuilt(
            _EVERYTHING,
            0 if known is None else known.checkpoint,
            None if known is None else known.saved,
            is_in_order=known is not None,
        )
        if known is not None:
            fresh.epoch, fresh.seen = known.epoch, known.seen
        try:
            self._opened = server.feeds.open(ChangeFeedRequest(_EVERYTHING, 0, **asked), 3, fresh)
        except (TooOld, FeedDiverged):
            self.known = None
        except FeedBehind:
            # It comes again. A follower cannot know that an epoch will never come: an operator begins anew then.
            if known is not None and server.is_linked() and not self._follower.is_epoch_known(known.epoch):
                self.known = None
        else:
            self.known = fresh

    def look_when_quiet(self) -> None:
        known = self.known
        require(known is not None and self._opened is not None, "the feed is not connected")
        assert known is not None
        server = self._follower.following
        wrong = difference(known.state, state_of(server.store.database(0), _EVERYTHING))
        require(not wrong, "the feed knows something else:", wrong)
        require(known.checkpoint >= server.last_ts, "the feed is at", known.checkpoint, "and not at", server.last_ts)


def draw_fate(rng: Random, follower: CopyFollower, *, loses_disk: bool) -> str:
    """End a follower in some way, and start it again; returns how."""
    if loses_disk:
        follower.end(follower.kill)
        follower.get_new_disk(rng.getrandbits(60))
        fate = "lost"
    else:
        fate = rng.choice(("killed", "crashed", "stopped"))
        ends: dict[str, Callable[[], None]] = {
            "killed": follower.kill, "crashed": follower.crash,
            "stopped": follower.stop if follower.live.is_open else follower.kill,
        }  # fmt: skip
        follower.end(ends[fate])
    follower.start()
    return fate
