"""Groups for X commands: what has to survive a restart whatever the numbers are."""

from __future__ import annotations

import pytest

from tests.commands.running import WAITS, Commands
from tests.streams.plain import plain
from tidelog import limits

I64_MAX = 2**63 - 1
U64_MAX = 2**64 - 1


def test_more_entries_at_once_than_a_record_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_DELIVERED_MAX", 7)
    run = Commands()
    run("TWRITE", "k", "ENTRIES", *[word for at in range(25) for word in ("t", at)])
    run("XGROUP", "CREATE", "k", "g", 0)
    ((_, entries),) = run("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    assert len(entries) == 25
    before = plain(run.stream())
    run.restart()
    assert plain(run.stream()) == before
    assert run("XPENDING", "k", "g")[0] == 25


@pytest.mark.parametrize("number", [f"5-{U64_MAX}", f"{U64_MAX}-{U64_MAX}"])
def test_the_last_id_of_a_millisecond(number: str) -> None:
    run = Commands()
    assert run("XADD", "k", number, "f", "v") == number.encode()
    run.restart()
    assert run("XRANGE", "k", "-", "+") == [[number.encode(), [b"f", b"v"]]]


def test_entries_up_to_the_last_id_of_a_millisecond() -> None:
    run = Commands()
    run("XADD", "k", f"{2**60}-{U64_MAX - 2}", "f", "v")
    assert run("TWRITE", "k", "ENTRIES", "a", "b", "c", "d") == 2
    run.restart()
    assert run("XINFO", "STREAM", "k")[7] == b"%d-%d" % (2**60, U64_MAX)


def test_counts_end_where_clients_and_records_do() -> None:
    run = Commands()
    run("XADD", "k", "5-1", "f", "v")
    run("XADD", "k", "5-2", "f", "v")
    run("XGROUP", "CREATE", "k", "g", "0", "ENTRIESREAD", I64_MAX)
    run("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "k", ">")
    run("TREAD", "k", 1, 1, "GROUP", "g")
    run("XSETID", "k", "5-3", "ENTRIESADDED", I64_MAX)
    run("XADD", "k", "6-1", "f", "v")
    run("TREAD", "k", 1, 1, "NEWGROUP", "new")
    run("XGROUP", "CREATE", "k", "last", "$")
    run("XADD", "k", "6-2", "f", "v")
    run("XREADGROUP", "GROUP", "last", "c", "STREAMS", "k", ">")
    before = run("XINFO", "STREAM", "k"), run("XINFO", "GROUPS", "k")
    assert I64_MAX in before[0]
    assert [group[9] for group in before[1]] == [I64_MAX] * 3
    run.restart()
    assert (run("XINFO", "STREAM", "k"), run("XINFO", "GROUPS", "k")) == before


def test_a_consumer_that_finds_nothing_is_seen_and_seldom_journaled() -> None:
    run = Commands()
    run("XGROUP", "CREATE", "k", "g", "0", "MKSTREAM")
    run("XGROUP", "CREATECONSUMER", "k", "g", "c")

    def idle_ms() -> tuple[int, int]:
        (facts,) = run("XINFO", "CONSUMERS", "k", "g")
        return facts[5], facts[7]

    for waited_ms in (999, 500):
        run.wait(waited_ms)
        poll = run.quietly if waited_ms == 999 else run
        assert poll("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">") is None
        assert idle_ms() == (0, -1)
    run.wait(300)
    assert run.quietly("XREADGROUP", "GROUP", "g", "c", "BLOCK", 5, "STREAMS", "k", ">") == WAITS
    run.wait(7)
    assert idle_ms() == (7, -1)
    assert run("XINFO", "STREAM", "k", "FULL")[-1][0][-1][0][3] == run.now_ms - 7
    run.restart()
    assert idle_ms() == (307, -1)
    run("XADD", "k", "*", "f", "v")
    run("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    run.wait(100)
    assert run.quietly("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">") is None
    run.wait(1)
    assert idle_ms() == (1, 101)
