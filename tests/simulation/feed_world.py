"""Random writes, feeds that come and go, slow readers, kills: what every feed's client must know at a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.feeds.rebuilt import Broken, Rebuilt, difference, state_of
from tests.simulation.store_load import Load
from tidelog.commands.all import command_table
from tidelog.commands.blocking import WouldBlock
from tidelog.commands.dispatch import find_command, run_command
from tidelog.errors import CommandError, FeedDiverged, TooOld
from tidelog.feeds.feed import Request
from tidelog.feeds.feeds import Feeds, OpenFeed
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.server.hot import HotPath
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store, operation_table
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

TABLE: Final = command_table()
SPANS: Final[list[list[Span]]] = [
    [span_of_prefix(b"")],
    [span_of_key(b"k0")],
    [span_of_key(b"k1"), span_of_key(b"k2")],
    [span_of_prefix(b"k")],
    [span_of_prefix(b"{k0}"), span_of_key(b"k3")],
    [Span(b"k2", b"k5")],
    [Span(b"k4", b"")],
    [Span(b"", b"k3"), Span(b"k6", b"k8")],
]


class Client:
    """One client: what it knows, and its feed if it is connected."""

    def __init__(self, spans: list[Span], database: int, protocol: int, *, has_commits: bool) -> None:
        self.spans = spans
        self.database = database
        self.protocol = protocol
        self.has_commits = has_commits
        self.known: Rebuilt | None = None
        self.opened: OpenFeed | None = None


class FeedWorld:
    """One seed's world."""

    def __init__(self, seed: int) -> None:
        rng = self._rng = random.Random(seed)
        self._disk = SimulatedDisk()
        self._clock = SimulatedClock()
        self._policy = rng.choice((FsyncPolicy.EVERYSEC, FsyncPolicy.EVERYSEC, FsyncPolicy.ALWAYS))
        geometry = Geometry(frame_bytes=rng.choice((4096, 65536)), frames_per_segment=rng.choice((4, 16)))
        self._settings = Settings(
            geometry=geometry, shard_count=rng.choice((1, 1, 2, 3)), policy=self._policy, ring_bytes_max=20_000
        )
        self._load = Load(rng, rng.choice((10, 300)))
        self._store: Store
        self._feeds: Feeds
        self._open()
        self._clients = [
            Client(rng.choice(SPANS), rng.choice((0, 0, 1)), rng.choice((2, 3)), has_commits=rng.random() < 0.3)
            for _ in range(rng.randint(1, 6))
        ]
        self.checked = 0
        """How often a client's knowledge was compared with the store's."""

    def _open(self) -> None:
        self._store = Store.open(
            self._disk,
            "/data",
            self._clock,
            self._settings,
            new_epoch_id=lambda: self._rng.getrandbits(63),
            random=random.Random(1),
        )
        self._feeds = Feeds(self._store, operation_table(), self._clock)

    def play(self, steps: int) -> None:
        choices: list[tuple[Callable[[], None], int]] = [
            (self._write, 20), (self._write_hot, 10), (self._become_visible, 12), (self._work, 10), (self._tick, 4),
            (self._connect, 6), (self._disconnect, 1), (self._change_speed, 3), (self._expire, 2),
            (self._settle, 3), (self._kill, 1), (self._summarise, 2),
        ]  # fmt: skip
        steps_of, weights = zip(*choices, strict=True)
        for _ in range(steps):
            self._clock.advance(self._rng.choice((1, 50, 2000)))
            self._rng.choices(steps_of, weights)[0]()
        self._settle()

    # --- steps --------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        transaction = self._store.begin(self._load.database())
        for _ in range(self._rng.choice((1, 1, 1, 3))):
            words = self._load.command()
            try:
                run_command(find_command(TABLE, words), transaction, words)
            except (CommandError, WouldBlock):
                continue
        self._store.commit(transaction)

    def _write_hot(self) -> None:
        runs = HotPath(self._store, self._load.database(), 2).commands()
        words = [self._load.hot()]
        words += [[words[0][0], self._load.key(), *words[0][2:]] for _ in range(self._rng.randint(0, 4))]
        runs[words[0][0]](words, 0, [])

    def _become_visible(self) -> None:
        writer = self._store.journal.writer
        writer.write()
        if self._policy is FsyncPolicy.ALWAYS and self._rng.random() < 0.7:
            writer.sync()
        self._feeds.advance()

    def _work(self) -> None:
        self._feeds.work(self._clock.monotonic_us())

    def _tick(self) -> None:
        self._clock.advance(self._rng.choice((0, 1_000_000)))
        self._feeds.tick()

    def _summarise(self) -> None:
        self._store.journal.make_sidecars(operation_table(), 4)

    def _expire(self) -> None:
        self._clock.advance(self._rng.choice((1000, 600_000)))
        remove_due(self._store)

    def _change_speed(self) -> None:
        client = self._rng.choice(self._clients)
        if client.known is not None and client.opened is not None:
            client.known.is_full = not client.known.is_full
            if not client.known.is_full:
                self._feeds.resume(client.opened)

    def _connect(self) -> None:
        client = self._rng.choice(self._clients)
        if client.opened is not None and not client.opened.is_closed:
            return
        known = client.known
        if known is None or self._rng.random() < 0.1:
            self._begin(client)
            return
        client.known = Rebuilt(client.spans, known.checkpoint, known.saved)
        until = (
            Ts(self._store.journal.hlc.last + self._rng.choice((-1000, 0, 3000))) if self._rng.random() < 0.2 else None
        )
        self._ask(client, since=Ts(known.checkpoint), epoch=known.epoch or None, seen=Ts(known.seen), until=until)

    def _begin(self, client: Client) -> None:
        client.known = Rebuilt(client.spans)
        self._ask(client, is_initial=True)

    def _ask(self, client: Client, **wanted: Any) -> None:
        assert client.known is not None
        request = Request(client.spans, client.database, has_commits=client.has_commits, **wanted)
        try:
            client.opened = self._feeds.open(request, client.protocol, client.known)
        except (TooOld, FeedDiverged):
            client.known, client.opened = None, None

    def _disconnect(self) -> None:
        client = self._rng.choice(self._clients)
        if client.opened is not None:
            self._feeds.close(client.opened)
            client.opened = None

    def _kill(self) -> None:
        """The process dies, or the machine does."""
        if self._rng.random() < 0.5:
            self._disk.kill()
        else:
            self._disk.crash()
        for client in self._clients:
            client.opened = None
        self._open()

    def _settle(self) -> None:
        """Everybody reads all that there is, and then knows what the store has."""
        self._store.journal.writer.write()
        self._store.journal.writer.sync()
        self._feeds.advance()
        for client in self._clients:
            if client.opened is not None and client.known is not None and client.known.is_full:
                client.known.is_full = False
                self._feeds.resume(client.opened)
        while self._feeds.work(self._clock.monotonic_us() + 1_000_000):
            pass
        self._clock.advance(1_000_000)
        self._feeds.tick()
        for client in self._clients:
            if client.opened is not None and not client.opened.is_closed:
                self._compare(client)

    def _compare(self, client: Client) -> None:
        known = client.known
        assert known is not None
        if not known.is_steady or known.unchecked or known.ended:
            raise Broken(f"steady {known.is_steady}, {known.unchecked} values unchecked, ended {known.ended}")
        if client.has_commits and known.open_ts:
            raise Broken(f"transaction {known.open_ts} is not whole at a checkpoint")
        there = state_of(self._store.database(client.database), client.spans)
        wrong = difference(known.state, there)
        if wrong:
            raise Broken(wrong)
        self.checked += 1
