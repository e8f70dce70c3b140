"""The replication of one server: what it is, whom it follows, and who follows it.

    leader ──── follow ────► follower           its history goes on elsewhere; feeds and readers stay
       ▲                         │
       └──────── lead ───────────┘              an epoch begins above the last clock bound that was announced

    a leader that comes back after a crash:

    returning ──► all followers that it had have answered, or 5 s have passed ──► an epoch begins, writes are taken
        │              one that has more sends it first
        └───────► one knows a newer epoch ──► deposed: no writes until it is told to lead or to follow

One object lives as long as the process; stores are opened and closed under it (`opened`). Role and leader are durable
(`role_file`) before anybody is told of them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.errors import Corruption, JournalFull, NoWayBack
from tidelog.ids import Ts
from tidelog.journal.replacement import finish_replacement
from tidelog.journal.rewind import Rewound, rewind
from tidelog.journal.scan import IsKnown
from tidelog.ports import Clock, Disk, LinkOwner, Loop, NetworkAddress, NetworkLink, Random, Worker
from tidelog.replication import refusals
from tidelog.replication.facts import ReplicationFacts
from tidelog.replication.failover import NO_FAILOVER, Failover
from tidelog.replication.followers import AwaitedConfirmation, Followers
from tidelog.replication.following import Connect, Following
from tidelog.replication.gathered_facts import gather_facts
from tidelog.replication.landing import Landing
from tidelog.replication.leader_news import NO_LAG, HistoryLag
from tidelog.replication.message import NOBODY_LEADS, EndReason, LinkRole, Publication
from tidelog.replication.options import ReplicationOptions
from tidelog.replication.origin import HistoryOrigin
from tidelog.replication.returning import ReturningLeader
from tidelog.replication.role_file import FollowerName, Handover, RoleFile, demoted, leader_text, promoted
from tidelog.replication.server import ReplicatedServer
from tidelog.store.store import Store

_LOG: Final = logging.getLogger("tidelog")


class Replication:
    """See the module. For the loop's thread."""

    def __init__(
        self,
        server: ReplicatedServer,
        disk: Disk,
        folder: str,
        clock: Clock,
        loop: Loop,
        worker: Worker,
        random: Random,
        connect: Connect,
        options: ReplicationOptions,
        is_known: IsKnown,
        port: Callable[[], int] = lambda: 0,
    ) -> None:
        self.server = server
        self.options = options
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._loop = loop
        self.worker = worker
        self._random = random
        self._connect = connect
        self._is_known = is_known
        self._port = port
        self._file = RoleFile(disk, folder)
        self.server_id = self._file.server_id(random)
        """By which others know this directory. Stored once it follows: until then, no link outlives the process."""
        self.followers = Followers(self, server, clock, loop)
        self.origin = HistoryOrigin(self._file, self.followers.meet_again)
        self.failover = Failover(self, clock, loop)
        self._following: Following | None = None
        self._landing: Landing | None = None
        self.is_open = False
        """The store is open."""
        self._was_open = False
        self._begins_epoch = False
        """It was told to lead, and the store is closed, or there is no space for an epoch."""
        self._return = ReturningLeader(loop, lambda: self.followers.is_taking_tail, self._try_epoch)
        self._has_too_few = False
        self._told: tuple[str | None, str | None] = (None, None)
        """What was refused when the server was last told."""
        self._rewound: Rewound | None = None
        self.set_aside_records = self.own_full_syncs = 0
        self.set_aside_paths: list[str] = []

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def role(self) -> LinkRole:
        return self._file.stored.role

    @property
    def leader(self) -> NetworkAddress | None:
        return self._file.stored.leader

    @property
    def leader_id(self) -> str:
        """The same of the server that we follow; empty: not known."""
        return "" if self._following is None else self._following.news.server_id

    @property
    def database_id(self) -> str:
        """Which database the directory is to be; "": the one that it is."""
        return self._file.stored.database_id if self.role is LinkRole.LEADER else ""

    @property
    def port(self) -> int:
        """Where this server listens."""
        return self._port()

    @property
    def opens_as_leader(self) -> bool:
        """Whether the store may begin an epoch by itself when it is opened."""
        stored = self._file.stored
        return stored.role is LinkRole.LEADER and not stored.followers and not stored.is_deposed

    @property
    def is_returning(self) -> bool:
        """It leads, has come back after a crash, and waits for its followers."""
        return self._return.is_waiting

    @property
    def handed_over(self) -> Handover | None:
        """What was handed over to the server that we follow, if it is not known to have led since."""
        found = self._file.stored.handed_over
        return found if found is not None and self.is_open and self._newest_epoch == found.epoch else None

    @property
    def _newest_epoch(self) -> int:
        return self.server.store.journal.epoch_id

    @property
    def is_settled(self) -> bool:
        """What is here is the history, or a beginning of it."""
        return self.role is LinkRole.LEADER or (self._following is not None and self._following.is_linked)

    @property
    def write_refusal(self) -> str | None:
        """The error that writes get; None: they are taken."""
        if self.role is LinkRole.FOLLOWER:
            return refusals.READ_ONLY
        if self._file.stored.is_deposed:
            return refusals.DEPOSED
        if self.is_returning:
            return refusals.RETURNING
        if self._begins_epoch:
            return refusals.NO_SPACE
        return refusals.TOO_FEW if self._has_too_few else None

    @property
    def read_refusal(self) -> str | None:
        """The error that reads get; None: they are answered."""
        if self.role is LinkRole.LEADER or self.options.serves_stale_data:
            return None
        return None if self._following is not None and self._following.is_linked else refusals.STALE

    @property
    def distance(self) -> int:
        """How many links away from a leader we are."""
        if self._following is not None:
            return self._following.news.distance
        return 0 if self._leads else NOBODY_LEADS

    @property
    def lag(self) -> HistoryLag:
        """What is missing here of the leader's history."""
        return NO_LAG if self._following is None else self._following.lag

    @property
    def announced_records(self) -> int:
        """How many records our leader's history has, as far as we know."""
        return 0 if self._following is None else self._following.news.records

    @property
    def closed_ts(self) -> Ts | None:
        """How far checkpoints of feeds may go here; None: this is a leader, whose clock says it."""
        return None if self._leads else self.server.store.announced_ts

    def closed_now(self) -> Ts:
        """A ts such that no transaction at or below it will become visible here."""
        closed, journal = self.closed_ts, self.server.store.journal
        if journal.writer.visible.ts < journal.writer.last_ts:  # also of a follower, whose disk may be full
            return journal.writer.visible.ts
        return journal.hlc.next() if closed is None else closed  # nothing else will have the next one

    # --- stores -------------------------------------------------------------------------------------------------

    def opened(self, store: Store) -> None:
        """A store is open: the first, or the next after a reload."""
        self.is_open = True
        is_first, self._was_open = not self._was_open, True
        self._note_rewound(store.journal.rewound)
        self.followers.expect(self._file.stored.followers)
        store.is_follower = True  # until it is known to lead
        if self.role is LinkRole.FOLLOWER:
            if self._following is None and self.leader is not None:
                self._following = self._make_following(self.leader)
            if self._following is not None:
                self._following.begin()
        elif self._begins_epoch or store.journal.needs_epoch:
            stored = self._file.stored
            if is_first and stored.followers and not stored.is_deposed and not self._begins_epoch:
                self._return.begin(stored.followers)
            elif not stored.is_deposed:
                self._try_epoch()
        store.is_follower = not self._leads
        self._told = self.write_refusal, self.read_refusal
        self.server.role_changed()  # in any case: what serves the store was not told yet

    @property
    def _leads(self) -> bool:
        """Whether it gives out a ts, and decides what has expired."""
        is_held_up = self.is_returning or self._begins_epoch or self._file.stored.is_deposed
        return self.role is LinkRole.LEADER and not is_held_up

    def _begin_epoch(self) -> None:
        """`JournalFull`: `tick` tries again."""
        self._begins_epoch = True
        self.server.store.journal.become_database(self.database_id)
        self.server.begin_epoch(Ts(0))
        self._begins_epoch = False
        self.server.store.is_follower = False

    def _try_epoch(self) -> None:
        with contextlib.suppress(JournalFull):
            self._begin_epoch()
            self._tell()

    def _close_store(self) -> None:
        """The store is about to be closed: nobody may read from it any more."""
        self.is_open = False
        self.followers.forget_store()
        self.followers.end_all(EndReason.ROLE_CHANGED, "the data is loaded again")

    def rewind(self, since: Ts, epoch: int) -> None:
        """What is here after a ts is not of the leader's history: set it aside."""
        _LOG.warning("history after ts %d is not the leader's: it is set aside", since)

        def prepare() -> None:
            try:
                self._rewound = rewind(self._disk, self._folder, since, epoch, self._is_known)
            except (NoWayBack, Corruption) as error:
                _LOG.warning("%s: a full sync takes its place", error)
                if self._following is not None:
                    self._following.want_all()

        self._close_store()
        self.server.reload(prepare, f"FEEDDIVERGED since={since}")

    def _note_rewound(self, by_start: Rewound | None) -> None:
        """Count what was set aside; `by_start`: by a start that finished what another process had begun."""
        rewound, self._rewound = self._rewound or by_start, None
        if rewound is None:
            return
        _LOG.warning("went back to the leader's history: %s", rewound)
        if rewound.path:  # otherwise there was only an epoch to forget
            self.set_aside_records += rewound.records
            self.set_aside_paths.append(rewound.path)

    def replace(self) -> None:
        """A full sync has landed: it takes the place of what is here."""

        def prepare() -> None:
            path = finish_replacement(self._disk, self._folder)
            if path is not None:
                self.set_aside_paths.append(path)
                _LOG.warning("what was here before the full sync is set aside in %s", path)

        self.own_full_syncs += 1
        self._close_store()
        self.server.reload(prepare, "")

    # --- changes of role ----------------------------------------------------------------------------------------

    def follow(self, address: NetworkAddress, handed_over: Handover | None = None) -> None:
        """Be a follower of another server; `handed_over`: which is told to lead. Durable when it returns."""
        if self.role is LinkRole.FOLLOWER and self.leader == address:
            return
        self._file.store(demoted(self._file.stored, address, self.server_id, handed_over))
        self._return.end()
        self._begins_epoch = False
        _LOG.warning("following %s from now on", leader_text(address))
        if self._following is not None:
            self._following.close(EndReason.ROLE_CHANGED, "the leader is another")
        self._following = self._make_following(address)
        if self.is_open:
            self.server.store.is_follower = True
            self._following.begin()
        self._tell()

    def lead(self) -> None:
        """Be a leader. Role and epoch are durable when it returns; while the store is closed, the role. `JournalFull`:
        the role is durable, and the epoch begins once there is space. No write is taken before."""
        was_follower, was_deposed = self.role is LinkRole.FOLLOWER, self._file.stored.is_deposed
        if not was_follower and not was_deposed and not self.is_returning and not self._begins_epoch:
            return
        self._file.store(promoted(self._file.stored, self._clock, self._random))
        self._return.end()
        if self._following is not None:
            self._following.close(EndReason.ROLE_CHANGED, "it leads now")
            self._following = None
        _LOG.warning("leading from now on")
        self._begins_epoch = True
        self._tell()
        if self.is_open:
            self._begin_epoch()
            self._tell()

    def take_over(self, ts: Ts) -> None:
        """The leader hands over to us, once this call is over: it comes from inside of its link."""
        self._loop.call_soon(partial(self._take_over, self._following, ts))

    def _take_over(self, following: Following | None, ts: Ts) -> None:
        if following is not self._following:  # somebody else has decided meanwhile
            return
        if ts > self.server.store.journal.writer.written.ts:
            _LOG.error("the leader hands over at ts %d, which is not reached here: it is not taken over", ts)
            return
        try:
            self.lead()
        except (OSError, JournalFull) as error:
            _LOG.error("the leader hands over, and there is no space to take over: %s", error)

    def _make_following(self, address: NetworkAddress) -> Following:
        if self._landing is None:
            self._landing = Landing(self._disk, self._folder, self._clock, self._is_known, self.worker)
        return Following(self, address, self._clock, self._loop, self._random, self._connect, self._landing)

    # --- a leader that comes back -------------------------------------------------------------------------------

    def follower_answered(self, follower: FollowerName) -> None:
        """It is known what a follower has, and we have that too."""
        self._file.add_follower(follower)
        self._return.answered(follower)

    def depose(self, by: NetworkAddress) -> None:
        """Somebody knows of an epoch after ours: be read-only until somebody says what we are."""
        self._file.store(replace(self._file.stored, is_deposed=True))
        self._return.end()
        _LOG.error("%s:%d knows of a newer leader: no writes are taken until REPLICAOF says who leads", *by)
        self._tell()

    def forget_follower(self, follower: FollowerName) -> None:
        self._file.forget_follower(follower)

    # --- what happens -------------------------------------------------------------------------------------------

    def accept(self, link: NetworkLink) -> LinkOwner:
        """Somebody wants to follow us; only while a store is open."""
        return self.followers.accept(link)

    def on_visible(self) -> None:
        """More is visible. Hot: called at the end of each turn."""
        self.followers.on_visible()

    def on_durable(self) -> None:
        """An fsync has finished."""
        if self._following is not None:
            self._following.on_durable()

    def tick(self) -> None:
        """Ten times a second."""
        if self._following is not None:
            self._following.tick()
        if self.is_open:
            self.followers.tick()
            if self._begins_epoch:
                self._try_epoch()
        self.followers_changed()

    def publish(self, channel: bytes, payload: bytes, *, is_sharded: bool = False) -> None:
        """Something was published here: a leader's followers deliver it too."""
        if self.role is LinkRole.LEADER:
            self.followers.publish(Publication(channel, payload, is_sharded))

    def pass_on(self, publication: Publication) -> None:
        """Our leader has sent something that was published there: those who follow us get it too."""
        self.followers.publish(publication)

    def link_changed(self) -> None:
        """The link to our leader is up, or no longer."""
        self._tell()

    def followers_changed(self) -> None:
        """One has come, gone, or has more than before."""
        self.failover.look()
        options = self.options
        lag_max_s = options.follower_lag_max_s  # 0 turns the check off, as in Redis
        self._has_too_few = lag_max_s > 0 and 0 < options.followers_min > self.followers.good_count(lag_max_s)
        self._tell()

    def _tell(self) -> None:
        """Tell the server if something else is refused now."""
        now = self.write_refusal, self.read_refusal
        if now != self._told:
            self._told = now
            self.server.role_changed()

    def begin_end(self) -> None:
        """The server stops: nothing more is received. Followers are still sent what clients have been answered."""
        self._return.end()
        if self._following is not None:
            self._following.close(EndReason.STOPPING, "the follower stops")
            self._following = None

    def close(self) -> None:
        self.begin_end()
        self.followers.end_all(EndReason.STOPPING, "the server stops")

    # --- what commands ask --------------------------------------------------------------------------------------

    def confirmed_count(self, ts: Ts, *, is_durable: bool) -> int:
        return self.followers.confirmed_count(ts, is_durable=is_durable)

    def wait(self, ts: Ts, count: int, *, is_durable: bool, done: Callable[[], None]) -> Callable[[], None]:
        """Have `done` called once so many followers have confirmed a ts; calling the answer ends the wait."""
        return self.followers.wait(AwaitedConfirmation(ts, count, is_durable, done))

    def fail_over(self, target: NetworkAddress | None, timeout_ms: int, *, is_forced: bool) -> None:
        self.failover.begin(target, timeout_ms, is_forced=is_forced)

    def facts(self) -> ReplicationFacts:
        """All that INFO, ROLE and /metrics show."""
        return gather_facts(self, self._following, self._clock)

    @property
    def is_deposed(self) -> bool:
        return self._file.stored.is_deposed

    def abort_fail_over(self) -> bool:
        """False: there is none."""
        was_under_way = self.failover.state != NO_FAILOVER
        self.failover.abort("asked to")
        return was_under_way
