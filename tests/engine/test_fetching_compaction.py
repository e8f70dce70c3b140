"""TCOMPACT of a large stream: threads read its nodes, and others are served between two portions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.engine.test_fetching import NODE, World, run
from tests.engine.test_staging import encode, settle
from tests.streams.cold_nodes import cool
from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.columns import Columns
from tidelog.streams.rows import unpack_id
from tidelog.streams.sealed_node import SealedNode


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", NODE)
    monkeypatch.setattr(limits, "IDLE_SEAL_ENTRIES_MIN", 1)
    OPENED.clear()
    yield
    OPENED.clear()
    assert not OPENED.pinned_count, "everything that was pinned was let go"


class CompactedWorld(World):
    """A stream of 200 entries with seven tags, in 20 nodes, three of which are a portion."""

    async def fill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session, transport = self.connect()
        for number in range(1, 201):
            session.data_received(encode(b"TWRITE", b"s", b"t%d" % (number * number % 7), b"e%d" % number))
        await settle()
        transport.take()
        session.connection_lost(None)
        cool(self.machine.store)
        OPENED.clear()
        nodes = self.stream().sealed
        monkeypatch.setattr(limits, "COMPACTED_AT_ONCE_BYTES", 2 * nodes[1].opened_bytes + 1)
        read_now = OPENED.open

        def read(node: SealedNode) -> Columns:
            assert OPENED.fetches or self.may_read, "a node is read while others wait"
            return read_now(node)

        with suppress(AttributeError):  # what is compiled cannot be replaced: runs from sources show this
            monkeypatch.setattr(OPENED, "open", read)

    may_read = False

    def entries(self) -> list[int]:
        self.may_read = True
        return [offset for node in self.stream().nodes() for offset in node.rows(0, len(node)).offsets]


def test_a_large_stream_is_compacted_portion_by_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = CompactedWorld()
        await world.fill(monkeypatch)
        newest = {number * number % 7: number for number in range(1, 201)}
        session, transport = world.connect()
        session.data_received(encode(b"TCOMPACT", b"s"))
        lengths, jobs = [], 0
        while not (reply := transport.take()):
            await settle()
            lengths.append(world.stream().length)
            if world.workers[0].waiting:
                world.workers[0].run_one()
                jobs += 1
            await settle()
        assert reply == b":%d\r\n" % (200 - len(newest))
        assert jobs >= 7
        assert world.engine.fetching is not None
        assert world.engine.fetching.fetched_count == 20, "each node once"
        assert lengths == sorted(lengths, reverse=True)
        assert len(set(lengths)) > 5, "each portion goes by itself"
        assert world.entries() == sorted(newest.values())

    run(test)


def test_an_entry_that_is_the_newest_again_stays_in_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that had replaced it is deleted between two portions. What is appended then is for the next time."""

    async def test() -> None:
        world = CompactedWorld()
        await world.fill(monkeypatch)
        newest = {number * number % 7: number for number in range(1, 201)}
        gone = newest[2]
        world.may_read = True
        identity = b"%d-%d" % unpack_id(world.stream().ids_from(gone, 1)[0])
        world.may_read = False
        OPENED.clear()
        session, transport = world.connect()
        session.data_received(encode(b"TCOMPACT", b"s"))
        await settle()
        assert world.workers[0].waiting, "nothing was looked at but the active node"
        other, _ = world.connect()
        last = world.stream().next - 1
        other.data_received(encode(b"TWRITE", b"s", b"t1", b"new"))
        await settle()
        other.data_received(encode(b"XDEL", b"s", identity))
        await world.work()
        assert transport.take().startswith(b":")
        kept = world.entries()
        assert len([offset for offset in kept if offset * offset % 7 == 2]) == 1, "another one of that tag"
        assert gone not in kept
        assert last + 1 in kept
        assert {newest[tag] for tag in (0, 4)} <= set(kept)

    run(test)
