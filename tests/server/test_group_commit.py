"""Group commit: which turns an fsync covers, and when the next one begins."""

from __future__ import annotations

import asyncio
from random import Random

from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.journal.operation import Val
from tidelog.server.group_commit import GroupCommit
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


def write(store: Store, key: bytes) -> None:
    transaction = store.begin(0)
    transaction.run([Val([(key, b"1")])])
    store.commit(transaction)
    store.journal.writer.write()


class Turns:
    """Turns without replies; the second ends while the first is fsynced."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_second = False
        self.waiting_count = 0
        self.sync_count = 0

    @property
    def is_waiting(self) -> bool:
        return self._store.journal.writer.durable_ts < self._store.journal.writer.written_ts

    def release(self) -> None:
        raise AssertionError("only `sync_now` releases without an fsync of its own")

    def end_sync(self) -> int:
        self.sync_count += 1
        if not self._is_second:
            self._is_second = True
            write(self._store, b"second")
        return 0

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)


def test_a_turn_without_replies_is_fsynced_too() -> None:
    async def run() -> None:
        clock = SimulatedClock()
        settings = Settings(policy=FsyncPolicy.ALWAYS)
        store = Store.open(SimulatedDisk(1), "/data", clock, settings, lambda: 1, Random(1))
        turns = Turns(store)
        loop = asyncio.get_running_loop()
        commit = GroupCommit(loop, store.journal.writer, turns, clock.monotonic_us, lambda _seconds: None)
        write(store, b"first")
        assert commit.is_needed
        commit.gather()
        assert (turns.sync_count, commit.is_needed, commit.is_under_way) == (2, False, False)
        commit.close()

    asyncio.run(run())
