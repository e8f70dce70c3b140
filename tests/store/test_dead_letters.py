"""Pending entries that expire by themselves: all of them, bounded at a time, journaled, and into the dead letters."""

from __future__ import annotations

import logging

import pytest

from tests.commands.running import Commands
from tests.streams.plain import plain
from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.store.dead_letters import PendingExpiry


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    made = Commands(2)
    made("TWRITE", "k", "ENTRIES", *[word for at in range(1, 26) for word in (f"t{at}", at)])
    made("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 9)
    return made


def read(run: Commands, count: int, retry_ms: int, expire_ms: int, key: str = "k") -> None:
    assert len(run("TREAD", key, 0, count, "GROUP", "g", "RETRY", retry_ms, expire_ms)) == count


def pending(run: Commands, key: bytes = b"k", group: bytes = b"g") -> list[int]:
    return list(run.stream(key).groups[group].pending)


def dead(run: Commands) -> list[int]:
    return [int(entry[2]) for entry in run("TREAD", "dead", 1, 999)]


def expire(run: Commands) -> int:
    return PendingExpiry(run.store).run()


def test_whatever_stands_before_it_and_though_nobody_reads(run: Commands) -> None:
    read(run, 1, 10**6, 0)
    read(run, 1, 0, 10**6)
    read(run, 2, 10**6, 1000)
    read(run, 1, 0, 500)
    run.wait(499)
    assert expire(run) == 0
    run.wait(1)
    assert expire(run) == 1
    assert (pending(run), dead(run)) == ([1, 2, 3, 4], [5])
    run.wait(500)
    assert expire(run) == 2
    assert expire(run) == 0
    assert (pending(run), dead(run)) == ([1, 2], [5, 3, 4])
    before = plain(run.stream()), plain(run.stream(b"dead"))
    run.restart()
    assert (plain(run.stream()), plain(run.stream(b"dead"))) == before


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_also_after_a_restart_a_rename_and_a_copy(run: Commands, has_snapshot: bool) -> None:
    read(run, 3, 0, 1000)
    run("COPY", "k", "copy")
    run("RENAME", "k", "renamed")
    if has_snapshot:
        run.store.journal.writer.write()
        run.store.save()
    run.restart()
    run.wait(1000)
    assert expire(run) == 6
    assert pending(run, b"copy") == pending(run, b"renamed") == []
    assert sorted(dead(run)) == [1, 1, 2, 2, 3, 3]


def test_each_group_of_each_database(run: Commands) -> None:
    read(run, 2, 0, 100)
    run("TREAD", "k", 0, 3, "GROUP", "h", "RETRY", 0, 200)
    run("MOVE", "k", 1)
    run.wait(150)
    assert expire(run) == 2
    run.wait(50)
    assert expire(run) == 3
    assert expire(run) == 0
    assert not run.store.database(0).alarms.times


def test_what_was_acknowledged_removed_or_replaced_in_time(run: Commands) -> None:
    read(run, 4, 0, 100)
    run("TACK", "k", "g", 1, 3)
    run("XDEL", "k", run("XRANGE", "k", "-", "+", "COUNT", 2)[1][0])
    for key in ("deleted", "replaced", "mortal", "regrouped"):
        run("COPY", "k", key)
    run("DEL", "deleted")
    run("SET", "replaced", "v")
    run("PEXPIRE", "mortal", 100)
    run("XGROUP", "DESTROY", "regrouped", "g")
    run.wait(100)
    assert expire(run) == 1
    assert dead(run) == [4]
    assert run("EXISTS", "mortal") == 0
    assert not run.store.database(0).alarms.times
    read(run, 1, 0, 100)
    run("FLUSHDB")
    run.wait(100)
    assert expire(run) == 0


def test_without_a_dead_letter_stream_it_is_dropped(run: Commands) -> None:
    run("TREAD", "k", 0, 3, "GROUP", "plain", "RETRY", 0, 100)
    run.wait(100)
    assert expire(run) == 3
    assert pending(run, group=b"plain") == []
    assert run("XLEN", "k") == 25
    assert run("EXISTS", "dead") == 0


def test_it_is_bounded(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GIVEN_UP_ENTRIES_MAX", 4)
    monkeypatch.setattr(limits, "EXPIRED_PENDING_AT_ONCE_MAX", 8)
    read(run, 20, 0, 100)
    run.wait(100)
    assert [expire(run) for _ in range(4)] == [8, 8, 4, 0]
    assert dead(run) == list(range(1, 21))


def test_it_is_bounded_over_all_groups_of_a_stream(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRED_PENDING_AT_ONCE_MAX", 8)
    monkeypatch.setattr(limits, "BATCH_BYTES_FULL", 1)
    for number in range(5):
        run("TREAD", "k", 0, 4, "GROUP", f"g{number}", "RETRY", 0, 100)
    run.wait(100)
    writer = run.store.journal.writer
    before = writer.written.cycle
    assert [expire(run) for _ in range(4)] == [8, 8, 4, 0]
    cycles = writer.written.cycle - before
    assert cycles >= 4, "each group has its own transaction, and a full batch is written before it"


@pytest.mark.parametrize(("size_max", "expected"), [("GIVEN_UP_BYTES_MAX", 5), ("EXPIRED_PENDING_BYTES_MAX", 1)])
def test_large_entries_go_a_few_at_a_time(
    run: Commands, monkeypatch: pytest.MonkeyPatch, size_max: str, expected: int
) -> None:
    monkeypatch.setattr(limits, "GIVEN_UP_BYTES_MAX", 1)
    monkeypatch.setattr(limits, size_max, 1)
    read(run, 5, 0, 100)
    run.wait(100)
    assert expire(run) == expected
    while expire(run):
        pass
    assert dead(run) == [1, 2, 3, 4, 5]


def test_a_read_gives_up_no_more_than_a_transaction_takes(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GIVEN_UP_ENTRIES_MAX", 3)
    run("TGROUP", "k", "g", "MAXPENDING", 10)
    read(run, 10, 0, 100)
    run.wait(100)
    assert run.offsets("TREAD", "k", 0, 9, "GROUP", "g") == list(range(11, 20))
    assert dead(run) == [1, 2, 3]
    assert expire(run) == 7
    assert sorted(dead(run)) == list(range(1, 11))


def test_letters_of_both_kinds_keep_their_order_and_form(run: Commands) -> None:
    run("XADD", "mixed", "*", "a", "b")
    run("TWRITE", "mixed", "t", "e")
    run("XADD", "mixed", "*", "c", "d")
    run("TGROUP", "mixed", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 9)
    read(run, 3, 0, 100, "mixed")
    run.wait(100)
    assert expire(run) == 3
    assert [fields for _, fields in run("XRANGE", "dead", "-", "+")] == [
        [b"a", b"b"],
        [b"tag", b"t", b"entry", b"e"],
        [b"c", b"d"],
    ]


def test_letters_are_not_lost_to_another_type(run: Commands, caplog: pytest.LogCaptureFixture) -> None:
    expiry = PendingExpiry(run.store)
    read(run, 2, 0, 100)
    run("SET", "dead", "value")
    run("TREAD", "k", 0, 1, "GROUP", "h", "RETRY", 0, 100)
    run.wait(100)
    with caplog.at_level(logging.WARNING, "tidelog"):
        assert expiry.run() == 1
        for _ in range(5):
            run.wait(limits.DEAD_LETTERS_RETRY_MS)
            assert expiry.run() == 0
    assert len(caplog.records) == 1
    assert "group b'g' of stream b'k' stay pending" in caplog.text
    assert pending(run) == [1, 2]
    run("DEL", "dead")
    run.wait(limits.DEAD_LETTERS_RETRY_MS)
    assert expiry.run() == 2
    assert dead(run) == [1, 2]


def test_while_nothing_can_be_written_it_stays_and_counts_for_nothing(run: Commands) -> None:
    run("TGROUP", "k", "g", "MAXPENDING", 2)
    read(run, 2, 0, 100)
    run.wait(100)
    run.disk.capacity_bytes = run.disk.used_bytes
    run("SET", "x", b"y" * 100_000)
    with pytest.raises(JournalFull):
        run.store.journal.writer.write()
    assert expire(run) == 0
    run.disk.capacity_bytes = None
    run.store.journal.writer.write()
    assert expire(run) == 2
