"""An open store, and everything that is made of it to serve clients.

    made      the parts, in the order in which they need each other
    served    connections hold its engine and its turns; the process calls `each_second` and `each_tenth`
    ended     `begin_end`: nothing new is begun; `finish_end`: what was accepted is answered, clients are let go.
              `free` gives back the memory of its data

One that is loading stands in for the store to come: it is empty, and its gate refuses what needs data. Its clients go
on with the one that was loaded (`hand_over`).

The process has one at a time (`Runtime`), and may replace it by another. Nothing here outlives it but what
`LastingParts` keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import Final

from tidelog import limits
from tidelog.engine.engine import Engine
from tidelog.engine.feeding import Feeding
from tidelog.engine.gate import Gate
from tidelog.engine.parameters import memory
from tidelog.errors import JournalFailed, JournalFull
from tidelog.feeds.feeds import Feeds
from tidelog.ids import SLOT_COUNT
from tidelog.journal.durability import FsyncPolicy
from tidelog.ports import NetworkAddress
from tidelog.replication.role_file import is_copy
from tidelog.scripting.scripts import Scripts
from tidelog.server.connection import Connection
from tidelog.server.cooling import Cooling
from tidelog.server.encoding_parameters import encoding_parameters
from tidelog.server.facts import Facts
from tidelog.server.hot import hot_commands
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.leftovers import what_is_left
from tidelog.server.live_parameters import live_parameters
from tidelog.server.replication_parameters import replication_parameters
from tidelog.server.snapshots import ServerSnapshots
from tidelog.server.turns import Turns
from tidelog.server.work_thread import WorkThread
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store
from tidelog.store.stream_retention import StreamRetention
from tidelog.store.stream_total import StreamTotal

_LOG: Final = logging.getLogger("tidelog")
REPLACED: Final = "UNBLOCKED the data of this server is being replaced: connect again"
"""What clients get that wait for something which will not happen any more."""


class ServedStore:
    """The parts of one store. For the loop's thread."""

    def __init__(self, lasting: LastingParts, store: Store, *, is_loading: bool = False) -> None:
        config, clock, loop, process = lasting.config, lasting.clock, lasting.loop, lasting.process
        self.store = store
        self.is_loading = is_loading
        self._patience_s = self._deadline_s = 0.0
        """How long its end may take, and until when (the loop's time)."""
        self._lasting = lasting
        feeding = Feeding(
            loop,
            Feeds(store, clock),
            clock,
            lambda: self.turns.count,
            checkpoint_ms=config.feed_checkpoint_ms,
            repeats_max=config.feed_repeats,
            http_feeds_max=lasting.http_feeds_max,
        )
        self.turns = Turns(
            loop,
            store.journal,
            clock.monotonic_us,
            lasting.metrics.syncs.add,
            feeding.on_visible if is_loading else self._on_visible,
            None if is_loading else self._on_durable,
        )
        self._snapshots = ServerSnapshots(loop, store, self.turns, clock, config.snapshot_after)
        self._cooling = Cooling(loop, store.cooling, clock, self._is_pressed)
        figures = lasting.stream_figures
        self._retention, self._stream_total = StreamRetention(store, figures), StreamTotal(store, figures)
        self.shipping = None if is_loading else lasting.make_shipping(store.journal, self.turns)
        self.history = None if is_loading else lasting.make_history(store, self.shipping)
        self._worker = WorkThread(loop)
        self._fetch_workers = [WorkThread(loop, "fetch") for _ in range(0 if is_loading else limits.FETCHES_AT_ONCE)]
        remote_count = 0 if is_loading else limits.HISTORY_FETCHES_AT_ONCE
        self._remote_workers = [WorkThread(loop, "fetch-remote") for _ in range(remote_count)]
        self.engine = Engine(
            store=store,
            table=lasting.table,
            clock=clock,
            loop=loop,
            stopwatch_s=time.perf_counter,
            process=process,
            password=lasting.password,
            sessions=lasting.sessions,
            subscriptions=lasting.subscriptions,
            slow_log=lasting.slow_log,
            parameters=live_parameters(
                config,
                lasting.connections,
                lasting.password,
                lasting.sessions,
                lasting.slow_log,
                lasting.memory,
                store.journal,
                feeding,
                lasting.script_limits,
                ports=lambda: process.ports,
                http_feeds_allowed=lasting.allowed.feeds,
                sample_memory=self._sample_memory,
                begin_erasing=self._snapshots.erasing.begin,
                others=[
                    *replication_parameters(
                        lasting.replication_options,
                        lasting.leader_password,
                        leader=self._leader,
                        options_changed=self._replication_options_changed,
                    ),
                    *encoding_parameters(lasting.encoding_bounds),
                    memory(
                        "stream-bytes-max",
                        lambda: figures.stream_bytes_max,
                        partial(setattr, figures, "stream_bytes_max"),
                    ),
                ],
                file=lasting.configuration_file,
            ),
            metrics=lasting.metrics,
            gate=Gate(store, lasting.sessions, clock, loop, is_loading=is_loading),
            snapshots=self._snapshots,
            feeding=feeding,
            hot_commands=hot_commands,
            worker=self._worker,
            fetch_workers=self._fetch_workers,
            remote_fetch_workers=self._remote_workers,
        )
        fetching = self.engine.fetching
        self._pending_expiry = PendingExpiry(store, None if fetching is None else fetching.fetch_once)
        self.engine.scripting = Scripts(self.engine, lasting.script_limits)
        self.engine.at_end_of_turn = self.turns.at_end
        self.engine.replication = lasting.replication
        self.facts = Facts(
            config,
            self.engine,
            lasting.connections,
            lasting.memory,
            lasting.run_id,
            lambda: process.port or 0,
            lambda: process.http_port or 0,
            lambda: process.flight_port or 0,
            started_us=lasting.started_us,
            retention=self._retention,
            shipping=self.shipping,
            history=self.history,
        )

    # --- while it is served -------------------------------------------------------------------------------------

    def each_second(self) -> None:
        self.turns.commit.tick()
        self._lasting.connections.sweep()
        self.facts.tick()

    def each_tenth(self) -> None:
        self.store.note_time()
        self._sample_memory()
        self.facts.look()
        self._lasting.connections.wait_for_disk(self.turns.has_backlog)
        writer = self.store.journal.writer
        try:
            if writer.refusal is None:
                if self.engine.gate.pause_now is None:  # otherwise nothing changes by itself either
                    remove_due(self.store)
                    self._pending_expiry.run()
                    self._retention.run()
                    self._stream_total.run()
                self.engine.blocking.tick()
            # Also what there was no space for: it is tried again, whether or not anyone asks for something.
            if not writer.has_failed:
                writer.write()
                writer.vouch()
                self._on_visible()
        except JournalFull:
            pass  # it says so itself, and `refusal` tells everyone
        except JournalFailed as error:
            _LOG.error("%s", error)
        self._snapshots.tick()
        self._cooling.tick()
        if self.history is not None:
            self.history.tick()
        self._lasting.replication.tick()

    def _on_visible(self) -> None:
        """More may be visible: feeds and followers get it. Hot: called at the end of each turn."""
        self.engine.feeding.on_visible()
        self._lasting.replication.on_visible()

    def _on_durable(self) -> None:
        self.engine.on_durable()
        self._lasting.replication.on_durable()

    def _leader(self) -> NetworkAddress | None:
        leader = None if self.engine.replication is None else self.engine.replication.leader
        return None if leader is None or is_copy(leader) else leader  # replicaof cannot name a copy

    def _replication_options_changed(self) -> None:
        if self.engine.replication is not None:
            self.engine.replication.tick()

    def _is_pressed(self) -> bool:
        """Whether entries of streams take more memory than they may."""
        memory, cooling = self._lasting.memory, self.store.cooling
        return memory.is_tight or (cooling is not None and cooling.hot_bytes > memory.hot_stream_bytes)

    def _sample_memory(self) -> None:
        lasting = self._lasting
        self.engine.gate.set_out_of_memory(lasting.memory.sample(lasting.clock.monotonic_us()))

    # --- what its leader sends ----------------------------------------------------------------------------------

    def write_received(self) -> None:
        """Write what was received, and wake whoever waits for it; errors are the writer's."""
        writer = self.store.journal.writer
        writer.write()
        self.engine.serve_received()
        self._on_visible()
        if writer.policy is FsyncPolicy.ALWAYS:
            self.turns.commit.gather()

    def begin_snapshot(self) -> None:
        self._snapshots.begin_for_follower()

    # --- its end ------------------------------------------------------------------------------------------------

    def connections(self) -> list[Connection]:
        """Of the clients that it serves."""
        return [each for each in self._lasting.connections.all() if each.engine is self.engine]

    def begin_end(self, seconds_max: float, *, is_replaced: bool = False, feed_error: str = "") -> None:
        """Begin nothing new: clients are answered what was read, and have so long to take it. The server's own are read
        from until they have come to their end, unless the store is replaced by another, and they go on with that."""
        self._patience_s, self._deadline_s = seconds_max, self._lasting.loop.time() + seconds_max
        self._snapshots.close()
        self._cooling.close()
        if self.history is not None:
            self.history.close()
        if is_replaced:
            self.engine.blocking.end_all(REPLACED)
        self.engine.blocking.close()
        self.engine.feeding.close(feed_error)
        self.engine.gate.end_pauses()
        for connection in self.connections():
            if is_replaced or not connection.is_own:
                connection.stop_reading()

    async def finish_end(self) -> None:
        """Answer what was accepted, and let the clients go. Neither a disk that is full nor a client that does not read
        holds it up for longer than was said. The journal is still open then."""
        loop, deadline_s = self._lasting.loop, self._deadline_s
        while any(each.is_busy or each.is_inside_event for each in self.connections()) and loop.time() < deadline_s:
            await asyncio.sleep(0.001)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.turns.drain(), max(0.1, deadline_s - loop.time()))
        unwritten = self.store.journal.writer.batch_bytes
        left = what_is_left(self.connections(), unwritten_bytes=unwritten, waits_for_fsync=self.turns.is_waiting)
        if left:
            _LOG.error("the server waited %g s and stops with this left: %s", self._patience_s, left)
        for connection in self.connections():
            connection.close()
        while self.connections() and loop.time() < deadline_s:
            await asyncio.sleep(0.001)
        for connection in self.connections():
            connection.kill()
        if self.engine.fetching is not None:
            self.engine.fetching.close()
        for worker in (self._worker, *self._fetch_workers):
            worker.close()
        for worker in self._remote_workers:
            worker.close(waits=False)

    async def ship_rest(self) -> bool:
        """Let the copy in an object store have what was written last. False: the store does not answer, and a thread
        still waits for it."""
        has_ended = True
        if self.shipping is not None:
            has_ended = await self.shipping.finish(max(0.1, self._deadline_s - self._lasting.loop.time()))
        if self.history is not None:
            has_ended = await self.history.finish(max(0.1, self._deadline_s - self._lasting.loop.time())) and has_ended
        return has_ended

    async def send_rest(self) -> None:
        """Let followers confirm what clients were answered, so that one of them can take over without a loss."""
        loop, followers = self._lasting.loop, self._lasting.replication.followers
        while (lagging := followers.lagging()) and loop.time() < self._deadline_s:
            await asyncio.sleep(0.001)
        for host, port in lagging:
            _LOG.warning("the server stops, and follower %s:%d has not confirmed all that was written", host, port)

    async def wait_for_disk(self) -> None:
        """Until no fsync is under way, no value that was received is being written, and no node file goes or returns,
        however long that takes: the journal cannot be closed before."""
        await self.ship_rest()  # the store that comes has a shipper of its own
        if self.history is not None:
            await self.history.finish()
        while self.turns.commit.is_under_way or self.store.journal.writer.is_staging:
            await asyncio.sleep(0.001)

    # --- while another is loaded --------------------------------------------------------------------------------

    def hand_over(self, loaded: ServedStore) -> None:
        """Let the clients go on with the store that was loaded. Nobody waits for a key here or has a feed, and nothing
        was written, so no reply waits for the disk."""
        assert self.is_loading
        self.engine.gate.end_pauses()
        self.turns.end_now()
        for connection in self.connections():
            connection.move_to(loaded.engine, loaded.turns)

    def abandon(self) -> None:
        """One that is loading is not needed any more."""
        self._snapshots.close()
        self._cooling.close()
        self.engine.blocking.close()
        self.engine.feeding.close()
        self._worker.close()
        self.turns.commit.close()
        self.store.journal.close()


def free(store: Store) -> None:
    """Give back the memory of a store that is closed. On any thread: slot by slot, so that the loop has its turns.

    Somebody may still hold the store, such as a request that its client does not take. The data would live as long.
    """
    for database in store.databases:
        slots = database.slots
        for slot in range(SLOT_COUNT):
            slots[slot] = None
        for deadlines in (database.expiring, database.alarms):
            deadlines.clear()
