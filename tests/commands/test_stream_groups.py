"""Groups: who is given what, again and for the last time; TACK and TGROUP."""

from __future__ import annotations

import pytest

from tests.commands.running import WAITS, Commands
from tests.streams.plain import plain
from tidelog import limits

RETRY = ("GROUP", "g", "RETRY", 100, 1000)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    made = Commands()
    made("TWRITE", "k", "ENTRIES", *[word for at in range(1, 26) for word in (f"t{at}", at)])
    return made


def pending(run: Commands, key: bytes = b"k", group: bytes = b"g") -> list[int]:
    return list(run.stream(key).groups[group].pending)


# --- making groups ------------------------------------------------------------------------------------------------


def test_where_a_new_group_begins(run: Commands) -> None:
    run("TEVICT", "k", 10)
    assert run.offsets("TREAD", "k", 99, 2, "GROUP", "old") == [11, 12]
    assert run.offsets("TREAD", "k", 1, 2, "NEWGROUP", "new") == []
    assert run.offsets("TREAD", "k", 1, 2, "NEWGROUP", "old") == [13, 14]
    run("TWRITE", "k", "t", "e")
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "new") == [26]


def test_the_first_use_makes_group_and_stream(run: Commands) -> None:
    assert run("TREAD", "other", 1, 0, "NEWGROUP", "g", "WITHINFO") == [[1, 0]]
    assert list(run.stream(b"other").groups) == [b"g"]
    assert run("TREAD", "third", 1, 5, "NEWGROUP", "g", "BLOCK", 0) == WAITS
    run.restart()
    run("TWRITE", "other", "t", "e")
    run("TWRITE", "third", "t", "e")
    assert run.offsets("TREAD", "other", 1, 5, "NEWGROUP", "g") == [1]
    assert run.offsets("TREAD", "third", 1, 5, "NEWGROUP", "g") == [1]


def test_entries_go_to_one_reader_each(run: Commands) -> None:
    assert run.offsets("TREAD", "k", 1, 10, "GROUP", "g") == list(range(1, 11))
    assert run.offsets("TREAD", "k", 1, 10, "GROUP", "h") == list(range(1, 11))
    assert run.offsets("TREAD", "k", 1, 20, "GROUP", "g") == list(range(11, 26))
    assert run.quietly("TREAD", "k", 1, 20, "GROUP", "g") == []
    assert run("TREAD", "k", 1, 20, "GROUP", "g", "BLOCK", 5) == WAITS
    assert pending(run) == []


def test_a_group_skips_what_was_evicted_or_compacted(run: Commands) -> None:
    run("TREAD", "k", 1, 2, "GROUP", "g")
    run("TEVICT", "k", 10)
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [11, 12]
    run("TWRITE", "k", "ENTRIES", "t13", "", "t14", "")
    assert run("TCOMPACT", "k") == 2
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [15, 16]


def test_tgroup(run: Commands) -> None:
    assert run("TGROUP", "k", "g", "START", 20) == b"OK"
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [20, 21]
    assert run("TGROUP", "k", "g", "START", 24, "MAXPENDING", 1) == b"OK"
    assert run("TGROUP", "k", "g") == b"OK"
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [24]
    assert run("TGROUP", "k", "g", "MAXPENDING", 5) == b"OK"
    assert run("TGROUP", "k", "h", "START", 30) == b"OK"
    assert run.offsets("TREAD", "k", 1, 9, "GROUP", "h") == []
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 6)
    assert run.offsets("TREAD", "k", 1, 9, "GROUP", "h") == [30, 31]
    assert run("TGROUP", "fresh", "g") == b"OK"
    assert run("TYPE", "fresh") == b"stream"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["MAXPENDING"], "ERR syntax error"),
        (["MAXPENDING", 0], "ERR MAXPENDING must be at least 1"),
        (["MAXPENDING", "x"], "ERR value is not an integer or out of range"),
        (["START", 0], "ERR START must be at least 1"),
        (["START", 1, "START", 2], "ERR syntax error"),
        (["DEADLETTER", "d"], "ERR DEADLETTER and MAXDELIVERIES go together"),
        (["MAXDELIVERIES", 1], "ERR DEADLETTER and MAXDELIVERIES go together"),
        (["DEADLETTER", "", "MAXDELIVERIES", 1], "ERR DEADLETTER takes the key of a stream"),
        (["DEADLETTER", "none", "MAXDELIVERIES", 1], "ERR a stream cannot be its own dead-letter stream"),
        (["LIMIT", 1], "ERR syntax error"),
    ],
)
def test_misuse_of_tgroup(run: Commands, words: list[str | int], error: str) -> None:
    assert run.refused("TGROUP", "none", "g", *words) == error
    assert run("EXISTS", "none") == 0


# --- acknowledging ------------------------------------------------------------------------------------------------


def test_tack(run: Commands) -> None:
    run("TREAD", "k", 1, 20, *RETRY)
    assert run("TACK", "k", "g", 3) == 1
    assert run.quietly("TACK", "k", "g", 3) == 0
    assert run("TACK", "k", "g", "5-8", 9, 1, "20-99", "7-9") == 7
    assert pending(run) == [2, 4, *range(10, 20)]
    assert run.quietly("TACK", "k", "g", 21, 25) == 0
    assert run("TACK", "k", "g", f"0-{10**18}") == 12
    assert run.quietly("TACK", "k", "none", 1) == run.quietly("TACK", "none", "g", 1) == 0
    run.restart()
    assert pending(run) == []
    assert run.stream().groups[b"g"].ack_offset == 21


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("x", "ERR an offset is not an integer or out of range"),
        ("-5", "ERR an offset must not be negative"),
        ("5-", "ERR an offset is not an integer or out of range"),
        ("7-5", "ERR the start of a range is after its end"),
        ("1-2-3", "ERR an offset is not an integer or out of range"),
    ],
)
def test_misuse_of_tack(run: Commands, word: str, error: str) -> None:
    run("TREAD", "k", 1, 20, *RETRY)
    assert run.refused("TACK", "k", "g", 1, word) == error
    assert len(pending(run)) == 20


# --- again --------------------------------------------------------------------------------------------------------


def test_what_is_not_acknowledged_comes_again_first(run: Commands) -> None:
    assert run.offsets("TREAD", "k", 1, 3, *RETRY) == [1, 2, 3]
    run.wait(50)
    assert run.offsets("TREAD", "k", 1, 2, *RETRY) == [4, 5]
    run("TACK", "k", "g", 2)
    run.wait(50)
    assert run.offsets("TREAD", "k", 1, 3, *RETRY) == [1, 3, 6]
    assert pending(run) == [4, 5, 1, 3, 6]
    run.restart()
    run.wait(99)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [4]
    run.wait(1)
    assert run.offsets("TREAD", "k", 1, 9, "GROUP", "g") == [5, 1, 3, 6, 7, 8, 9, 10, 11]
    assert run.stream().groups[b"g"].pending[1].deliveries == 3


def test_the_first_that_is_not_due_ends_the_search(run: Commands) -> None:
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 500, 0)
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 100, 0)
    run.wait(200)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [3]
    run.wait(300)
    assert run.offsets("TREAD", "k", 1, 9, "GROUP", "g")[:2] == [1, 2]


def test_what_is_never_due_is_in_nobodys_way(run: Commands) -> None:
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 0, 0)
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 100, 0)
    run.wait(10**9)
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [2, 3]
    assert pending(run) == [1, 2]


def test_expired_entries_are_dropped(run: Commands) -> None:
    run("TREAD", "k", 1, 3, "GROUP", "g", "RETRY", 400, 1000)
    run.wait(400)
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [1, 2]
    run.wait(600)
    assert run.offsets("TREAD", "k", 1, 3, "GROUP", "g") == [4, 5, 6]
    assert pending(run) == []
    before = plain(run.stream())
    run.restart()
    assert plain(run.stream()) == before


def test_expiry_without_retry(run: Commands) -> None:
    run("TREAD", "k", 1, 3, "GROUP", "g", "RETRY", 0, 1000)
    run.wait(999)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [4]
    assert pending(run) == [1, 2, 3]
    run.wait(1)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [5]
    assert pending(run) == []


def test_an_expired_entry_counts_neither_for_maxpending_nor_as_acknowledged(run: Commands) -> None:
    run("TGROUP", "k", "g", "MAXPENDING", 3)
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 10**6, 0)
    run("TREAD", "k", 1, 2, "GROUP", "g", "RETRY", 10**6, 500)
    run.wait(500)
    ids = [entry[0] for entry in run("XRANGE", "k", "-", "+", "COUNT", 3)]
    assert run.quietly("TACK", "k", "g", 2, "3-9") == 0
    assert run.quietly("XACK", "k", "g", *ids[1:]) == 0
    assert run("XCLAIM", "k", "g", "c", 0, *ids[1:], "FORCE") == []
    assert run("XAUTOCLAIM", "k", "g", "c", 0, 0, "COUNT", 3)[1] == [[ids[0], [b"tag", b"t1", b"entry", b"1"]]]
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [4, 5]
    assert pending(run) == [1, 4, 5]


def test_an_expired_entry_is_not_delivered_again_though_it_is_due(run: Commands) -> None:
    run("TREAD", "k", 1, 2, "GROUP", "g", "RETRY", 100, 100)
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [3, 4]
    assert pending(run) == []


def test_what_only_expires_is_in_no_ones_way(run: Commands) -> None:
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 0, 10**6)
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 100, 0)
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [2]


@pytest.mark.parametrize("how", ["XDEL", "TCOMPACT", "TEVICT", "XTRIM", "BACKLOG"])
def test_an_entry_that_goes_gives_its_place_back(run: Commands, how: str) -> None:
    run("TGROUP", "k", "g", "MAXPENDING", 12)
    run("TREAD", "k", 1, 12, "GROUP", "g", "RETRY", 10**6, 0)
    if how == "XDEL":
        run("XDEL", "k", *[entry[0] for entry in run("XRANGE", "k", "-", "+", "COUNT", 10)])
    elif how == "TCOMPACT":
        run("TWRITE", "k", "ENTRIES", *[word for at in range(1, 11) for word in (f"t{at}", "again")])
        assert run("TCOMPACT", "k") == 10
    elif how == "TEVICT":
        assert run("TEVICT", "k", 10) == 10
    elif how == "XTRIM":
        assert run("XTRIM", "k", "MAXLEN", 15) == 10
    else:
        run("TWRITE", "k", "BACKLOG", 15, "ENTRIES", "t", "e")
    assert pending(run) == [11, 12]
    before = plain(run.stream())
    run.restart()
    assert plain(run.stream()) == before
    assert run.offsets("TREAD", "k", 1, 99, *RETRY) == list(range(13, 23))


def test_what_a_consumer_was_given_stays_pending_and_gives_its_place_back(run: Commands) -> None:
    run("TGROUP", "k", "g", "MAXPENDING", 4)
    run("XREADGROUP", "GROUP", "g", "c", "COUNT", 4, "STREAMS", "k", ">")
    ids = [entry[0] for entry in run("XRANGE", "k", "-", "+", "COUNT", 4)]
    run("XDEL", "k", ids[0], ids[2])
    assert run("XPENDING", "k", "g")[0] == 4
    for has_snapshot in (False, True):
        if has_snapshot:
            run.store.journal.writer.write()
            run.store.save()
        run.restart()
        assert sorted(run.stream().groups[b"g"].lost) == [1, 3]
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [5, 6]
    assert run("XACK", "k", "g", ids[0], ids[1]) == 2
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [7]


def test_evicted_entries_are_let_go(run: Commands) -> None:
    run("TREAD", "k", 1, 12, *RETRY)
    run("TEVICT", "k", 10)
    assert run.offsets("TREAD", "k", 1, 1, *RETRY) == [13]
    assert pending(run) == [11, 12, 13]
    run("TWRITE", "k", "t11", "")
    run("TCOMPACT", "k")
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 2, *RETRY) == [12, 13]
    assert pending(run) == [12, 13]


# --- bounds -------------------------------------------------------------------------------------------------------


def test_maxpending_stops_new_entries(run: Commands) -> None:
    run("TGROUP", "k", "g", "MAXPENDING", 5)
    assert run.offsets("TREAD", "k", 1, 3, *RETRY) == [1, 2, 3]
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [4, 5]
    assert run.quietly("TREAD", "k", 1, 9, *RETRY) == []
    assert run.quietly("TREAD", "k", 1, 9, "GROUP", "g", "BLOCK", 0) == WAITS
    run("TACK", "k", "g", 2)
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [6]
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 2, *RETRY) == [1, 3]
    run("TGROUP", "k", "g", "MAXPENDING", 2)
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [4, 5, 6]
    run.wait(1000)
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [7, 8]


def test_the_default_bound(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PENDING_MAX_DEFAULT", 4)
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == [1, 2, 3, 4]
    assert run.offsets("TREAD", "k", 1, 9, *RETRY) == []


# --- dead letters -------------------------------------------------------------------------------------------------


def test_dead_letters(run: Commands) -> None:
    run("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 2)
    run("TREAD", "k", 1, 2, "GROUP", "g", "RETRY", 100, 0)
    run("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 0, 150)
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 2, "GROUP", "g") == [1, 2]
    run.wait(100)
    assert run.offsets("TREAD", "k", 1, 1, "GROUP", "g") == [4]
    assert run("TREAD", "dead", 1, 9) == [[1, b"t3", b"3"], [2, b"t1", b"1"], [3, b"t2", b"2"]]
    assert pending(run) == []
    before = plain(run.stream()), plain(run.stream(b"dead"))
    run.restart()
    assert (plain(run.stream()), plain(run.stream(b"dead"))) == before


def test_dead_letters_are_not_lost_to_another_type(run: Commands) -> None:
    run("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 1)
    run("TREAD", "k", 1, 1, *RETRY)
    run("SET", "dead", "value")
    run.wait(100)
    assert run.refused("TREAD", "k", 1, 1, *RETRY).endswith("wrong kind of value: the dead-letter stream")
    assert pending(run) == [1]
    run("DEL", "dead")
    assert run.offsets("TREAD", "k", 1, 1, *RETRY) == [2]
    assert len(run.stream(b"dead")) == 1


def test_a_stream_renamed_to_its_dead_letters_drops_them(run: Commands) -> None:
    run("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 1)
    run("TREAD", "k", 1, 1, *RETRY)
    run("RENAME", "k", "dead")
    run.wait(100)
    assert run.offsets("TREAD", "dead", 1, 1, *RETRY) == [2]
    assert len(run.stream(b"dead")) == 25
