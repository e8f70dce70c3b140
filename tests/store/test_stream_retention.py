"""Streams with a rule lose entries by themselves: bounded at a time, journaled, on the leader alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands.running import Commands
from tests.store.test_store_received import Pair
from tests.streams.cold_nodes import cool
from tests.streams.plain import plain
from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.store.stream_retention import StreamRetention
from tidelog.streams.cold import OPENED


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    return Commands(2)


def fill(run: Any, *keys: str, count: int = 45) -> None:
    for key in keys:
        run("TWRITE", key, "ENTRIES", *["tag", "entry"] * count)


def firsts(run: Commands, *keys: str) -> list[int]:
    return [run.stream(key.encode()).first for key in keys]


def test_by_age_though_nobody_writes(run: Commands) -> None:
    retention = StreamRetention(run.store)
    run("TCONFIG", "k", "MAXAGE", 1000)
    fill(run, "k")
    run.wait(500)
    fill(run, "k", count=1)
    run.wait(500)
    before = run.store.journal.writer.batch_bytes
    retention.run()
    assert (firsts(run, "k"), run.store.journal.writer.batch_bytes) == ([1], before)
    run.wait(1)
    retention.run()
    assert firsts(run, "k") == [41]
    assert (retention.figures.entries, retention.ruled_count) == ({"age": 40}, 1)
    assert retention.figures.bytes["age"] == 4 * 10 * (24 + 8)
    run.wait(500)
    retention.run()
    assert (run("XLEN", "k"), firsts(run, "k")) == (0, [47])
    run.wait(10_000)
    before = run.store.journal.writer.batch_bytes
    retention.run()
    assert run.store.journal.writer.batch_bytes == before


def test_what_groups_have_pending_ends_as_with_tevict(run: Commands) -> None:
    for key in ("k", "l"):
        fill(run, key)
        run("TREAD", key, 0, 25, "GROUP", "g", "RETRY", 1000, 0)
    run("TCONFIG", "k", "BACKLOG", 25)
    StreamRetention(run.store).run()
    assert run("TEVICT", "l", -25) == 20
    run("TCONFIG", "l", "BACKLOG", 25)
    assert plain(run.stream())["groups"] == plain(run.stream(b"l"))["groups"]
    assert list(run.stream().groups[b"g"].pending) == [21, 22, 23, 24, 25]


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_rule_and_what_went_survive(run: Commands, has_snapshot: bool) -> None:
    run("TCONFIG", "k", "MAXBYTES", 1000, "MAXAGE", 10**9, "BACKLOG", 3)
    fill(run, "k", "other")
    StreamRetention(run.store).run()
    assert firsts(run, "k", "other") == [21, 1]
    before = plain(run.stream())
    if has_snapshot:
        run.store.save()
    run.restart()
    assert plain(run.stream()) == before
    assert list(run.store.database(0).ruled) == [b"k"]
    fill(run, "k")
    StreamRetention(run.store).run()
    assert firsts(run, "k") == [61]


def test_copies_have_the_rule_too(run: Commands) -> None:
    run("TCONFIG", "{a}k", "BACKLOG", 10)
    fill(run, "{a}k")
    run("COPY", "{a}k", "{a}l")
    run("COPY", "{a}k", "far")
    run("RENAME", "{a}k", "{a}m")
    run("COPY", "{a}m", "{a}n", "DB", 3)
    run("MOVE", "{a}m", 2)
    ruled = [sorted(database.ruled) for database in run.store.databases]
    assert ruled[:4] == [[b"far", b"{a}l"], [], [b"{a}m"], [b"{a}n"]]
    StreamRetention(run.store).run()
    assert firsts(run, "far", "{a}l") == [31, 31]
    assert run.store.database(2).find(b"{a}m").first == run.store.database(3).find(b"{a}n").first == 31  # type: ignore[union-attr]


def test_streams_that_are_gone_are_forgotten(run: Commands) -> None:
    retention = StreamRetention(run.store)
    for key in ("deleted", "ranged", "set", "kept", "expired"):
        run("TCONFIG", key, "BACKLOG", 10)
        fill(run, key)
    run("DEL", "deleted")
    run("DELRANGE", "ranged", "ranged0")
    run("SET", "set", 1)
    run("PEXPIRE", "expired", 1)
    run.wait(1)
    retention.run()
    assert run.store.database(0).ruled == {b"kept": None}
    assert (firsts(run, "kept"), run("GET", "set"), run.store.database(0).size) == ([31], b"1", 2)
    assert retention.figures.entries == {"backlog": 30}
    run("FLUSHALL")
    assert retention.ruled_count == 0
    retention.run()


def test_all_have_their_turn(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RULED_STREAMS_AT_ONCE_MAX", 2)
    monkeypatch.setattr(limits, "EVICTED_NODES_AT_ONCE_MAX", 5)
    keys = ["a", "b", "c"]
    for key in keys:
        run("TCONFIG", key, "BACKLOG", 10)
    retention = StreamRetention(run.store)
    fill(run, *keys)
    seen = []
    for _ in range(4):
        retention.run()
        seen.append(firsts(run, *keys))
    assert seen == [[31, 21, 1], [31, 21, 31], [31, 31, 31], [31, 31, 31]]


def test_no_node_is_opened(run: Commands) -> None:
    fill(run, "k")
    cool(run.store)
    OPENED.clear()
    assert all(node.is_cold for node in run.stream().sealed)
    run("TCONFIG", "k", "MAXBYTES", 500, "MAXAGE", 10)
    OPENED.fetches = True
    try:
        StreamRetention(run.store).run()
    finally:
        OPENED.fetches = False
    assert firsts(run, "k") == [31]


def test_a_pass_is_no_use_of_the_key(run: Commands) -> None:
    fill(run, "k")
    run("TCONFIG", "k", "BACKLOG", 10)
    run.wait(90_000)
    run.store.note_time()
    StreamRetention(run.store).run()
    assert run.store.idle_s(b"k") == 90
    assert firsts(run, "k") == [31]
    assert run.store.idle_s(b"k") == 0


def test_a_follower_evicts_nothing_by_itself() -> None:
    pair = Pair()
    leader, follower = StreamRetention(pair.leader.store), StreamRetention(pair.follower.store)
    pair("TCONFIG", "k", "MAXAGE", 1000)
    fill(pair, "k", count=2500)
    assert plain(pair.follower.stream()) == plain(pair.leader.stream())
    for each in (pair.leader, pair.follower):
        each.wait(10_000)
    follower.run()
    assert firsts(pair.follower, "k") == [1]
    leader.run()
    pair.sync()
    assert firsts(pair.leader, "k") == firsts(pair.follower, "k") == [2501]
    assert (leader.figures.entries["age"], follower.figures.entries["age"]) == (2500, 0)
    fill(pair, "k", count=1000)
    for each in (pair.leader, pair.follower):
        each.wait(10_000)
    pair.follower.store.is_follower = False  # it takes over
    pair.leader.store.is_follower = True
    leader.run()
    follower.run()
    assert firsts(pair.leader, "k") + firsts(pair.follower, "k") == [2501, 3501]


def test_nothing_goes_while_writes_are_refused(run: Commands) -> None:
    run("TCONFIG", "k", "BACKLOG", 10)
    fill(run, "k")
    run.disk.capacity_bytes = 0
    with pytest.raises(JournalFull):
        run.store.journal.writer.write()
    StreamRetention(run.store).run()
    assert firsts(run, "k") == [1]
