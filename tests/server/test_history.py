"""Node files go and return, one after the other; a bad one holds up no other, and costs little."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.shipping.test_dropping import Tiered, small_nodes
from tests.store.changes import run, state
from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.node_files import NodeFile
from tidelog.server.history import HistoryOptions, ServerHistory
from tidelog.shipping.copied_files import CopiedFiles
from tidelog.system.counted_store import CountedStore
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket

__all__ = ["small_nodes"]
FILES = 3


class Served:
    """A store whose node files are shipped, and what moves them."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.bucket = SimulatedBucket(self.clock, random.Random(1))
        self.objects = CountedStore(self.bucket.client("server"))
        self.copy = Tiered(self.objects)
        assert self.copy.store.cooling is not None
        self.files = self.copy.store.cooling.files
        for _ in range(FILES - 1):
            self.files._end(ShardId(0))
            for number in range(60):
                run(self.copy.store, [b"TWRITE", b"s", b"tag", b"entry %d" % number])
            self.copy.save_cold()
        self.files._end(ShardId(0))
        self.shipping: Any = SimpleNamespace(copied_files=self.look())

    def look(self) -> CopiedFiles | None:
        return self.copy.shipper.copied_files(self.copy.journal.writer.last_ts)

    def history(self, local_us: int | None = 0) -> ServerHistory:
        made = ServerHistory(
            *(asyncio.get_running_loop(), self.copy.tiered, self.copy.journal, self.files, self.shipping, self.clock),
            HistoryOptions(local_us, 0, "/objects", False),
        )
        for file in self.files:
            file.disk = self.copy.tiered
        return made

    def remote(self) -> list[NodeFile]:
        return [file for file in self.files if file.is_remote]

    async def until(self, history: ServerHistory, is_so: Callable[[], bool], ticks: int = 300) -> None:
        for _ in range(ticks):
            if is_so():
                return
            history.tick()
            assert await history.finish(10)
            self.clock.advance(limits.SECOND_US)
        raise AssertionError("it does not come to that")

    async def dropped(self) -> None:
        history = self.history()
        await self.until(history, lambda: len(self.remote()) == FILES)
        history.close()

    def spoil(self, file: NodeFile) -> None:
        """Its first object in the copy is not what was put there."""
        remote = self.copy.tiered.describe(file.path)
        name = f"{remote.database_id}/{remote.extents[0].object}"
        self.bucket.damage(name, bytes(remote.extents[0].size))


def test_old_files_go_and_stay_away_when_the_proof_of_their_age_has_gone() -> None:
    async def scenario() -> None:
        served = Served()
        expected = state(served.copy.store)
        await served.dropped()
        history = served.history()
        known = served.shipping.copied_files
        served.shipping.copied_files = CopiedFiles({}, known.may_stay_away)
        assert history.facts.bytes_to_return == 0
        served.shipping.copied_files = None
        assert history.facts.bytes_to_return == 0, "it is not known"
        served.shipping.copied_files = CopiedFiles({}, {})
        assert history.facts.bytes_to_return > 0
        await served.until(history, lambda: not served.remote())
        assert state(served.copy.store) == expected
        assert history.facts.returned_files == FILES
        history.close()

    asyncio.run(scenario())


def test_a_file_that_is_damaged_in_the_copy_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        served = Served()
        await served.dropped()
        bad = served.remote()[0]
        served.spoil(bad)
        history = served.history(local_us=None)
        await served.until(history, lambda: served.remote() == [bad])
        assert "is not what was put there" in history.facts.error
        reads = served.objects.requests["read"]
        for _ in range(600):
            history.tick()
            assert await history.finish(10)
            served.clock.advance(60 * limits.SECOND_US)
        assert served.remote() == [bad]
        assert served.objects.requests["read"] == reads, "it is fetched once a day, not again and again"
        assert len([record for record in caplog.records if "stays where it is" in record.message]) == 1
        history.close()

    asyncio.run(scenario())


def test_a_file_that_cannot_go_holds_up_no_other() -> None:
    async def scenario() -> None:
        served = Served()
        first, *_ = served.files
        extent = served.shipping.copied_files.old[first.path.removeprefix("/data/")].extents[0]
        served.copy.objects.delete(f"{served.copy.journal.meta.database_id}/{extent.object}")
        history = served.history()
        await served.until(history, lambda: len(served.remote()) == FILES - 1)
        assert not first.is_remote
        assert history.facts.error
        history.close()

    asyncio.run(scenario())


def test_a_file_that_comes_back_and_goes_to_another_copy_is_read_from_there() -> None:
    async def scenario() -> None:
        served = Served()
        await served.dropped()
        tiered = served.copy.tiered
        before = {file.path: tiered.describe(file.path) for file in served.files}
        back = served.history(local_us=None)
        await served.until(back, lambda: not served.remote())
        back.close()
        history = served.history()
        history._options = HistoryOptions(0, 0, "/elsewhere", False)
        await served.until(history, lambda: len(served.remote()) == FILES)
        for path, remote in before.items():
            assert (remote.url, tiered.describe(path).url) == ("/objects", "/elsewhere")
        history.close()

    asyncio.run(scenario())


def test_what_is_to_return_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        served = Served()
        await served.dropped()
        history = served.history()
        looked: list[str] = []
        describe = served.copy.tiered.describe

        def counted(path: str) -> Any:
            looked.append(path)
            return describe(path)

        monkeypatch.setattr(served.copy.tiered, "describe", counted)
        for _ in range(100):
            history.tick()
            assert history.facts.bytes_to_return == 0
            served.clock.advance(limits.SECOND_US)
        assert len(looked) == FILES
        served.shipping.copied_files = served.look()
        history.tick()
        assert history.facts.bytes_to_return == 0
        assert len(looked) == 2 * FILES
        history.close()

    asyncio.run(scenario())


def test_a_server_that_stops_waits_for_a_file_that_goes_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        served = Served()
        history = served.history()
        size, asked = served.objects.size, list[str]()

        def slow_size(name: str) -> int:
            asked.append(name)
            history.close()
            return size(name)

        monkeypatch.setattr(CountedStore, "size", lambda _store, name: slow_size(name))
        history.tick()
        assert await history.finish(10)
        assert asked
        assert served.remote() == []
        assert history.facts.dropped_files == 0
        assert all(served.copy.disk.exists(file.path) for file in served.files)

    asyncio.run(scenario())
