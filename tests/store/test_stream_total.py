"""All streams together take at most so many bytes: the oldest nodes of all go, and what may not go stays."""

from __future__ import annotations

import logging

import pytest

from tests.commands.running import Commands
from tests.store.test_store_received import Pair
from tests.streams.cold_nodes import cool
from tests.streams.plain import plain
from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.store.stream_retention import RetentionFigures
from tidelog.store.stream_total import StreamTotal
from tidelog.streams.cold import OPENED
from tidelog.types.effect import StoredValue

ENTRY = 24 + 8
NODE = 10 * ENTRY


class Limited(Commands):
    """A store whose streams have a limit, with nodes of ten entries."""

    def __init__(self, bytes_max: int, shard_count: int = 2) -> None:
        super().__init__(shard_count)
        self.figures = RetentionFigures(bytes_max)
        self.total = StreamTotal(self.store, self.figures)

    def fill(self, *keys: str, count: int = 10) -> None:
        """Each a millisecond after the one before."""
        for key in keys:
            self.wait(1)
            self("TWRITE", key, "ENTRIES", *["tag", "entry"] * count)

    def look(self) -> None:
        """Count all, and let go what is too much."""
        self.total.run()
        while self.total.is_under_way:
            self.total.run()

    def is_stuck(self) -> bool:
        return self.figures.is_stuck

    def firsts(self, *keys: str) -> list[int]:
        return [self.stream(key.encode()).first for key in keys]


@pytest.fixture(autouse=True)
def _small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)


def test_the_oldest_nodes_go_first_whatever_stream_they_are_in() -> None:
    run = Limited(4 * NODE + ENTRY)
    run.fill("a", "b", "a", "b", "b", "a", "c")
    run.fill("d", count=1)
    run.look()
    assert run.firsts("a", "b", "c", "d") == [21, 11, 1, 1]
    assert run.figures.stream_bytes == 4 * NODE + ENTRY
    assert (run.figures.entries, run.figures.bytes) == ({"total": 30}, {"total": 3 * NODE})
    run.figures.stream_bytes_max -= 1
    run.look()
    assert run.firsts("a", "b", "c", "d") == [21, 21, 1, 1]
    before = plain(run.stream(b"a"))
    run.restart()
    assert plain(run.stream(b"a")) == before
    assert run.firsts("a", "b", "c", "d") == [21, 21, 1, 1]


def test_backlog_and_active_nodes_stay_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    run = Limited(1)
    run("TCONFIG", "kept", "BACKLOG", 15, "MAXAGE", 10**12)
    run.fill("kept", count=25)
    run.fill("k", count=25)
    with caplog.at_level(logging.WARNING, "tidelog"):
        for _ in range(3):
            run.look()
            run.fill("k", count=10)
    assert run.firsts("kept", "k") == [11, 41]
    taken = NODE + 10 * ENTRY
    assert [each.message for each in caplog.records] == [
        f"streams take {taken} bytes, {taken - 1} more than stream-bytes-max allows, and nothing of them may go: "
        "BACKLOG keeps it, or it is in nodes that are being written. Writes go on"
    ]
    assert run.is_stuck()
    run("DEL", "kept")
    run.figures.stream_bytes_max = 10**6
    run.look()
    assert not run.is_stuck()
    assert run.figures.stream_bytes == NODE + 5 * ENTRY


def test_a_stream_that_is_deleted_while_they_are_counted_costs_no_other_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Limited(3 * NODE)
    run.fill("a", count=20)
    run.fill("b", count=30)
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 5)
    run.total.run()
    for _ in range(10_000):
        if len(run.total._long) == 2:
            break
        run.total.run()
    assert run.total.is_under_way
    run("DEL", "a")
    run("SET", "a", "no stream")
    run.look()
    assert (run.firsts("b"), run.figures.stream_bytes) == ([1], 3 * NODE)


def test_counting_is_bounded_and_waits_until_there_may_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Limited(5 * NODE)
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 20_000)
    counts: list[int] = []
    begin = run.total._begin

    def counted() -> None:
        counts.append(1)
        begin()

    run.total._begin = counted  # type: ignore[method-assign]
    run.fill("a", count=30)
    run.look()
    run.fill("a", count=20)
    run.look()
    assert (len(counts), run.firsts("a")) == (1, [1])
    run.fill("a", count=10)
    run.look()
    assert (len(counts), run.firsts("a")) == (2, [11])
    run("COPY", "a", "{a}b")
    run.look()
    assert len(counts) == 2
    run.wait(limits.STREAMS_COUNTED_EVERY_MS)
    run.look()
    assert (len(counts), run.firsts("a", "{a}b")) == (3, [41, 31])
    run.clock.step_wall(-(10**9))
    run.look()
    assert len(counts) == 4


def test_no_more_nodes_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVICTED_NODES_AT_ONCE_MAX", 3)
    run = Limited(2 * NODE)
    run.fill("a", count=100)
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 10**6)
    firsts = []
    for _ in range(4):
        run.total.run()
        firsts += run.firsts("a")
    assert firsts == [31, 61, 81, 81]
    assert (run.is_stuck(), run.figures.stream_bytes) == (False, 2 * NODE)


def test_no_limit_is_no_work_and_no_node_is_opened() -> None:
    run = Limited(0)
    run.fill("a", count=50)
    cool(run.store)
    OPENED.clear()
    run.total.run()
    assert (run.total.is_under_way, run.figures.stream_bytes) == (False, 0)
    run.figures.stream_bytes_max = NODE
    OPENED.fetches = True
    try:
        run.look()
    finally:
        OPENED.fetches = False
    assert run.firsts("a") == [41]


def test_a_follower_leaves_it_to_its_leader() -> None:
    pair = Pair()
    pair("TWRITE", "k", "ENTRIES", *["t", "e"] * 3000)
    totals = [StreamTotal(each.store, RetentionFigures(30_000)) for each in (pair.leader, pair.follower)]
    for total in reversed(totals):
        for _ in range(5):
            total.run()
    assert (pair.leader.stream().first > 1, pair.follower.stream().first) == (True, 1)
    pair.sync()
    assert plain(pair.leader.stream()) == plain(pair.follower.stream())


def test_a_leader_that_follows_now_knows_no_total() -> None:
    run = Limited(1)
    run.fill("a", count=25)
    run.look()
    assert run.is_stuck()
    run.store.is_follower = True
    run.fill("a", count=25)
    run.look()
    assert (run.firsts("a"), run.is_stuck(), run.figures.stream_bytes) == ([21], False, 0)
    run.store.is_follower = False
    run.look()
    assert run.firsts("a") == [51]


def test_many_streams_are_added_up_in_steps_and_what_may_not_go_any_more_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Limited(4 * NODE)
    run.fill("a", "b", "c", "d", "e", "f", count=20)
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 4)
    seen: list[int] = []
    add_up = run.total._add_up

    def noted(at: int, line: list[tuple[int, int]]) -> int:
        seen.append(at)
        return add_up(at, line)

    run.total._add_up = noted  # type: ignore[method-assign]
    while len(seen) < 4:
        run.total.run()
    assert seen == [0, 1, 2, 3]
    first, second = [run.total._long[at][2].decode() for at in (0, 1)]
    run("DEL", first)
    run("TCONFIG", second, "BACKLOG", 20)
    run.look()
    assert (seen, run("EXISTS", first), run.firsts(second)) == ([0, 1, 2, 3, 4, 5], 0, [1])
    assert sum(run("XLEN", key) for key in "abcdef") == 20  # the deleted one had been counted
    assert run.figures.entries == {"total": 80}


def test_many_keys_of_one_slot_are_visited_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 10)
    run = Limited(10**6)
    keys = [f"{{tag}}{number}" for number in range(400)]
    run.fill(*keys, count=1)
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 50)
    visits: list[int] = []
    note_streams = run.total._note_streams

    def noted(database: Database, slot: int, part: dict[bytes, StoredValue]) -> None:
        visits[-1] += len(part)
        note_streams(database, slot, part)

    run.total._note_streams = noted  # type: ignore[method-assign]
    while not sum(visits) or run.total.is_under_way:
        visits.append(0)
        run.total.run()
        if 0 < sum(visits) < 400 and len(keys) == 400:
            keys += [f"{{tag}}{number}" for number in range(400, 800)]
            run.fill(*keys[400:], count=1)  # the slot is split further meanwhile
    assert max(visits) <= 60
    assert len(keys) == 800
    assert 400 <= sum(visits) < 800, "each of the first once, and some of the others"
    assert run.figures.stream_bytes == sum(visits) * ENTRY


def begin_count(run: Limited, monkeypatch: pytest.MonkeyPatch, *, long_count: int) -> None:
    """Count until so many streams with sealed nodes were come across; the rest is left."""
    monkeypatch.setattr(limits, "STREAMS_COUNTED_KEYS_AT_ONCE", 5)
    run.total.run()
    while len(run.total._long) < long_count:
        run.total.run()
    assert run.total.is_under_way


def test_a_limit_that_is_set_while_they_are_counted_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Limited(NODE)
    run.fill("a", count=50)
    begin_count(run, monkeypatch, long_count=1)
    run.figures.stream_bytes_max = 4 * NODE
    run.look()
    assert (run.firsts("a"), run.figures.stream_bytes) == ([11], 4 * NODE)


def test_a_database_that_is_cleared_while_they_are_counted_costs_no_other_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Limited(3 * NODE)
    run.fill("short", count=9)
    run.fill("long", count=30)
    run("MOVE", "long", 1)
    begin_count(run, monkeypatch, long_count=1)
    run("FLUSHDB")
    run.look()
    assert (run.figures.entries, run.figures.stream_bytes) == ({}, 3 * NODE)


def test_the_log_does_not_say_each_time_that_they_do_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    run = Limited(1)
    with caplog.at_level(logging.WARNING, "tidelog"):
        for waited_ms in (0, 0, limits.STREAMS_STUCK_WARNED_MS):
            run.wait(waited_ms)
            run.fill("a", count=15)
            run.look()
            assert run.is_stuck()
            run("DEL", "a")
            run.wait(limits.STREAMS_COUNTED_EVERY_MS)
            run.look()
            assert not run.is_stuck()
    assert len(caplog.records) == 2
