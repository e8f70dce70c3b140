"""Random writes, feeds that come and go, slow readers, kills, lost and erased history: what every feed's client must
know at each checkpoint and each commit, and what it may be refused.

    at a checkpoint, a commit     it knows exactly what the database held at that moment (`feed_history`)
    when all is quiet             it is steady, and has a checkpoint for all that is visible
    refused as diverged           it has seen something that was lost
    refused as too old            what it wants was erased, and it has no name for whose sake it would have been kept
    at its end                    UNTIL is reached, and not before
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from tests.feeds.rebuilt import Broken, Rebuilt, State, difference, state_of
from tests.simulation.feed_history import History
from tests.simulation.feed_load import FeedLoad
from tests.simulation.scripted import SCRIPTS, Scripted
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.errors import CommandError, FeedDiverged, TooOld
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.feeds import Feeds
from tidelog.feeds.open_feed import OpenFeed
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.server.hot import HotPath
from tidelog.store.expiry import remove_due
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.store.stream_retention import StreamRetention
from tidelog.store.type_table import operation_table
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
    [span_of_prefix(b"k2"), span_of_prefix(b"{k")],
    [span_of_prefix(b"k"), span_of_prefix(b"k7"), span_of_key(b"k2s")],
]
DATABASES: Final = (0, 1)
NODE_ENTRIES: Final = 10
RETENTION: Final = RetentionLimits(bytes_max=0, snapshots_kept=1)


@contextmanager
def small_bounds(live_slice_us: int) -> Iterator[None]:
    """Let streams of a few entries have several nodes, collections several records, and transactions be large soon."""
    small = {
        "NODE_ENTRIES_MAX": NODE_ENTRIES,
        "RECORD_MEMBERS_MAX": 20,
        "FEED_SENT_BYTES": 400,
        "FEED_PIECE_BYTES": 100,
        "FEED_PROVED_BYTES_AT_ONCE": 1000,
        "FEED_LIVE_SLICE_US": live_slice_us,
    }
    usual = {name: vars(limits)[name] for name in small}
    vars(limits).update(small)
    try:
        yield
    finally:
        vars(limits).update(usual)


class Client:
    """One client: what it knows, and its feed if it is connected."""

    def __init__(self, rng: random.Random, number: int, shard_count: int) -> None:
        self.spans = rng.choice(SPANS)
        self.database = rng.choice((0, 0, 1))
        self.protocol = rng.choice((2, 3))
        self.has_commits = rng.random() < 0.4
        self.has_groups = rng.random() < 0.2
        self.has_expiry = rng.random() < 0.5
        self.shard = ShardId(rng.randrange(shard_count)) if rng.random() < 0.2 else None
        self.name = f"n{number}" if rng.random() < 0.2 else None
        self.known: Rebuilt | None = None
        self.place: dict[str, Any] = {}
        """The epoch that it saw a checkpoint in, and what it had seen by then."""
        self.until: int | None = None
        self.opened: OpenFeed | None = None


class FeedWorld:
    """One seed's world."""

    def __init__(self, seed: int) -> None:
        rng = self._rng = random.Random(seed)
        self._speed = random.Random(seed + 1)
        """How much is handed out and taken at once."""
        self._disk = SimulatedDisk(seed)
        self._clock = SimulatedClock()
        self._policy = rng.choice((FsyncPolicy.EVERYSEC, FsyncPolicy.EVERYSEC, FsyncPolicy.ALWAYS))
        geometry = Geometry(frame_bytes=rng.choice((4096, 65536)), frames_per_segment=rng.choice((4, 16)))
        self._shard_count = rng.choice((1, 1, 2, 3))
        self._settings = Settings(
            geometry=geometry,
            shard_count=self._shard_count,
            policy=self._policy,
            ring_bytes_max=20_000,
            retention=RETENTION,
        )
        self._load = FeedLoad(rng, rng.choice((10, 300)))
        self._history = History(DATABASES)
        self._lost: list[int] = []
        """Transactions that were lost with the machine or the process."""
        self._store: Store
        self._scripted: Scripted
        self._feeds: Feeds
        self._open()
        self._clients = [Client(rng, number, self._shard_count) for number in range(rng.randint(1, 6))]
        self.coverage: Counter[str] = Counter()
        """How often each promise was put to the test."""

    def _open(self) -> None:
        self._store = Store.open(
            self._disk,
            "/data",
            self._clock,
            self._settings,
            new_epoch_id=lambda: self._rng.getrandbits(63),
            random=random.Random(1),
        )
        self._scripted = Scripted(self._store, self._clock)
        self._feeds = Feeds(self._store, self._clock)

    def play(self, steps: int) -> None:
        choices: list[tuple[Callable[[], None], int]] = [
            (self._write, 18), (self._write_script, 4), (self._write_hot, 10), (self._write_much, 2),
            (self._become_visible, 12),
            (self._work, 10), (self._tick, 4), (self._connect, 9), (self._disconnect, 1), (self._change_speed, 6),
            (self._expire, 2), (self._settle, 3), (self._kill, 2), (self._summarise, 2), (self._erase, 2),
            (self._acknowledge, 1),
        ]  # fmt: skip
        steps_of, weights = zip(*choices, strict=True)
        with small_bounds(self._speed.choice((0, 10_000))):
            for _ in range(steps):
                self._clock.advance(self._rng.choice((1, 50, 2000)))
                self._rng.choices(steps_of, weights)[0]()
            self._settle()

    # --- steps: writing -----------------------------------------------------------------------------------------

    def _write(self) -> None:
        commands = [self._load.command() for _ in range(self._rng.choice((1, 1, 1, 3)))]
        if self._rng.random() < 0.03:
            commands += self._load.around_a_flush()
        transaction = self._store.begin(self._load.database())
        for words in commands:
            try:
                run_command(find_command(TABLE, words), transaction, words)
            except CommandError:
                continue
        self._store.commit(transaction)
        self._history.note(self._store)

    def _write_script(self) -> None:
        """A transaction, whatever it does and however it ends."""
        commands = [self._load.command() for _ in range(self._rng.randint(1, 5))]
        script, is_in_multi = self._rng.choice(SCRIPTS), self._rng.random() < 0.3
        self._scripted.run(self._load.database(), script, commands, is_in_multi=is_in_multi)
        self._history.note(self._store)

    def _write_hot(self) -> None:
        runs = HotPath(self._store, self._load.database(), 2).commands()
        if self._rng.random() < 0.3:
            words = self._load.hot_list_run()
        else:
            words = [self._load.hot()]
            words += [[words[0][0], self._load.key(), *words[0][2:]] for _ in range(self._rng.randint(0, 4))]
        runs[words[0][0]](words, 0, [])
        self._history.note(self._store, is_one=len(words) == 1)

    def _write_much(self) -> None:
        """So that frames are full, and segments: of one key, so that some feeds need not read them, and one does."""
        client = self._rng.choice(self._clients)
        if self._rng.random() < 0.5:
            self._leave(client)
        key = self._rng.choice((self._load.key(), client.spans[-1].start or b"k0"))
        count = self._rng.choice((5, 30))
        commands = [[b"HSET", key, b"%d" % at, self._rng.randbytes(self._rng.choice((50, 900)))] for at in range(count)]
        for words in [[b"DEL", key], *commands]:
            transaction = self._store.begin(client.database)
            run_command(find_command(TABLE, words), transaction, words)
            self._store.commit(transaction)
            self._history.note(self._store)
        self._become_visible()
        if self._rng.random() < 0.5:
            self._store.journal.make_sidecars(operation_table(), 1000)

    def _expire(self) -> None:
        self._clock.advance(self._rng.choice((1000, 600_000)))
        remove_due(self._store)
        self._history.note(self._store)
        retention = StreamRetention(self._store)
        with patch.object(limits, "RULED_STREAMS_AT_ONCE_MAX", 1):  # a transaction at a time
            for _ in range(retention.ruled_count):
                retention.run()
                self._history.note(self._store)

    def _become_visible(self) -> None:
        writer = self._store.journal.writer
        writer.write()
        if self._policy is FsyncPolicy.ALWAYS and self._rng.random() < 0.7:
            writer.sync()
        writer.vouch()  # marks alone are nothing to a feed
        if self._rng.random() < 0.5:
            self._write()  # somebody is quicker than the feeds
        self._feeds.advance()

    # --- steps: the machine -------------------------------------------------------------------------------------

    def _summarise(self) -> None:
        self._store.journal.make_sidecars(operation_table(), 4)

    def _erase(self) -> None:
        """A snapshot, and what it allows to be erased."""
        store = self._store
        capture = store.begin_capture()
        if capture is not None:
            while not capture.is_done:
                capture.visit(1000)
            store.journal.finish_snapshot(capture.snapshot)
            store.end_capture()
        self.coverage["erased"] += bool(store.journal.erase())

    def _kill(self) -> None:
        """The process dies, or the machine does."""
        if self._rng.random() < 0.3:
            self._disk.kill()
        else:
            self._disk.crash()
        for client in self._clients:
            client.opened = None
        self._open()
        self._lost += self._history.cut(self._store)
        if self._rng.random() < 0.5:  # it starts, does something, and dies again before anybody comes back
            self._write()
            self._store.journal.writer.write()
            self._store.journal.writer.sync()
            self._kill()
        self._connect()

    # --- steps: feeds -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        for _ in range(self._rng.choice((1, 5, 100))):
            self._feeds.work(self._clock.monotonic_us())
            if self._rng.random() < 0.04:  # others do not wait until a feed has read all
                self._rng.choice((self._write, self._write_hot, self._become_visible, self._tick))()

    def _tick(self) -> None:
        self._clock.advance(self._rng.choice((0, 1_000_000)))
        self._feeds.tick()

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
        if client.known is not None:
            self._look_at_end(client)
        known = client.known
        client.until = None
        if known is None or not known.checkpoint or self._rng.random() < 0.1:
            self._ask(client, is_initial=True)
            return
        if known.epoch:
            client.place = {"epoch": known.epoch, "seen": Ts(known.seen)}
        if self._rng.random() < 0.3:
            near = self._store.journal.hlc.last + self._rng.choice((-1000, 0, 3000))
            client.until = max(known.checkpoint, self._rng.choice((near, self._rng.choice(self._history.times[-20:]))))
        until = None if client.until is None else Ts(client.until)
        self._ask(client, since=Ts(known.checkpoint), until=until, **client.place)

    def _ask(self, client: Client, *, is_initial: bool = False, **wanted: Any) -> None:
        before = client.known
        known = client.known = Rebuilt(
            client.spans,
            0 if is_initial or before is None else before.checkpoint,
            None if is_initial or before is None else before.saved,
            is_in_order=not is_initial,
            has_commits=client.has_commits,
            look=partial(self._compare, client),
            visible_ts=lambda: self._store.journal.writer.visible.ts,
        )
        if not is_initial and before is not None:
            known.expiries = dict(before.saved_expiries)
            known.saved_expiries = dict(before.saved_expiries)
        known.full_after = self._speed.choice((0, 600))
        request = ChangeFeedRequest(
            client.spans,
            client.database,
            name=client.name,
            shard=client.shard,
            is_initial=is_initial,
            has_commits=client.has_commits,
            has_groups=client.has_groups,
            has_expiry=client.has_expiry,
            **wanted,
        )
        try:
            client.opened = self._feeds.open(request, client.protocol, known)
            self.coverage["resumed"] += not is_initial
        except TooOld as error:
            self._look_at_oldest(client, known.checkpoint, error.oldest)
            client.known = client.opened = None
        except FeedDiverged as error:
            self._look_at_divergence(client, error.since)
            client.known = client.opened = None

    def _disconnect(self) -> None:
        self._leave(self._rng.choice(self._clients))

    def _leave(self, client: Client) -> None:
        if client.opened is not None:
            self._feeds.close(client.opened)
            client.opened = None

    def _acknowledge(self) -> None:
        client = self._rng.choice(self._clients)
        if client.name is not None and client.known is not None and client.known.epoch:
            self._feeds.holds.acknowledge(client.database, client.name, Ts(client.known.checkpoint))

    def _settle(self) -> None:
        """Everybody reads all that there is, and then knows what the store has."""
        self._store.journal.writer.write()
        self._store.journal.writer.sync()
        self._feeds.advance()
        self._read_all()
        self._clock.advance(1_000_000)
        self._feeds.tick()
        self._read_all()
        self._clock.advance(1_000_000)
        self._feeds.tick()
        for client in self._clients:
            if client.known is not None:
                self._look_at_end(client)
            if client.opened is not None and not client.opened.is_closed:
                self._look_when_quiet(client)

    def _read_all(self) -> None:
        """Everybody takes what is sent, until nothing more comes."""
        is_busy = True
        while is_busy:
            is_busy = self._feeds.work(self._clock.monotonic_us() + 1_000_000)
            for client in self._clients:
                if client.opened is not None and client.known is not None and client.known.is_full:
                    client.known.is_full, is_busy = False, True
                    self._feeds.resume(client.opened)

    # --- what must hold -----------------------------------------------------------------------------------------

    def _is_of(self, client: Client, key: bytes) -> bool:
        if client.shard is None:
            return True
        first, last = self._store.slots[client.shard]
        return first <= slot_of(key) <= last

    def _compare(self, client: Client, ts: int, known: State, spans: list[Span]) -> None:
        """What a client knows is what the database held at a moment."""

        def is_wanted(key: bytes) -> bool:
            return any(span.has(key) for span in spans) and self._is_of(client, key)

        there = self._history.at(ts, client.database, is_wanted)
        if there is not None:
            wrong = difference({key: value for key, value in known.items() if is_wanted(key)}, there)
            if wrong:
                raise Broken(f"at {ts}: {wrong}")
            self.coverage["compared"] += 1

    def _look_when_quiet(self, client: Client) -> None:
        known = client.known
        assert known is not None
        visible_ts = self._store.journal.writer.visible.ts
        if not known.is_steady or known.unchecked or known.checkpoint < visible_ts:
            raise Broken(f"steady {known.is_steady}, {known.unchecked} unchecked, {known.checkpoint} < {visible_ts}")
        if client.has_commits and known.open_ts:
            raise Broken(f"transaction {known.open_ts} is not whole at a checkpoint")
        there = state_of(self._store.database(client.database), client.spans)
        wrong = difference(known.state, {key: value for key, value in there.items() if self._is_of(client, key)})
        if wrong:
            raise Broken(wrong)
        self.coverage["quiet"] += 1
        if client.has_expiry:
            expiries = self._store.database(client.database).expiries
            expected = {key: when for key, when in expiries.items() if key in known.state}
            told = {key: when for key, when in known.expiries.items() if key in known.state}
            if told != expected:
                raise Broken(f"expiries are {expected}, and the feed says {told}")
            self.coverage["expiries"] += bool(expected)

    def _look_at_end(self, client: Client) -> None:
        """A feed that has ended was at its end, or could not go on."""
        known = client.known
        assert known is not None
        if not known.ended:
            return
        error = known.ended.pop()
        if error is not None and error.startswith("FEEDTOOOLD oldest="):
            self._look_at_oldest(client, known.checkpoint, int(error.partition("=")[2]))
            client.known = None
        elif error is not None:
            raise Broken(error)
        elif client.until is None or known.checkpoint != client.until or known.unchecked:
            raise Broken(f"it ended at {known.checkpoint} instead of {client.until}")
        else:
            self.coverage["until"] += 1

    def _look_at_oldest(self, client: Client, since: int, oldest: int) -> None:
        erased_ts = self._store.journal.erased_ts
        if client.name is not None or oldest != erased_ts or since >= erased_ts:
            raise Broken(f"{client.name} is too old at {since}, and {oldest} is the oldest, erased is {erased_ts}")
        self.coverage["too_old"] += 1

    def _look_at_divergence(self, client: Client, since: int) -> None:
        if client.place["seen"] <= since or not any(ts > since for ts in self._lost):
            raise Broken(f"nothing between {since} and {client.place['seen']} was lost")
        self.coverage["diverged"] += 1
