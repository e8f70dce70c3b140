"""TREAD without a group, and what it takes and refuses."""

from __future__ import annotations

import pytest

from tests.commands.running import WAITS, Commands
from tidelog import limits
from tidelog.commands.stream_reading import tread
from tidelog.resp.encoder import Later, Spliced


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    return Commands()


def test_from_an_offset_on(run: Commands) -> None:
    assert run.quietly("TREAD", "k", 1, 9) == []
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 25)
    assert run.offsets("TREAD", "k", 1, 3) == [1, 2, 3]
    assert run.offsets("TREAD", "k", 0, 3) == [1, 2, 3]
    assert run.offsets("TREAD", "k", 9, 3) == [9, 10, 11]
    assert run.offsets("TREAD", "k", 24, 99) == [24, 25]
    assert run.quietly("TREAD", "k", 26, 99) == []
    assert run.quietly("TREAD", "k", 2**63 - 1, 2**63 - 1) == []
    assert run.quietly("TREAD", "k", 5, 0) == []


def test_from_an_offset_down(run: Commands) -> None:
    assert run.quietly("TREAD", "k", 0, 9, "REV") == []
    run("TWRITE", "k", "ENTRIES", *[word for at in range(1, 26) for word in (f"t{at}", at)])
    assert run.quietly("TREAD", "k", 3, 2, "REV") == [[3, b"t3", b"3"], [2, b"t2", b"2"]]
    for offset in (0, 25, 26, 999, 2**63 - 1):
        assert run.offsets("TREAD", "k", offset, 3, "rev") == [25, 24, 23]
    assert run.offsets("TREAD", "k", 12, 4, "REV") == [12, 11, 10, 9]
    assert run.offsets("TREAD", "k", 3, 99, "REV") == [3, 2, 1]
    assert run.offsets("TREAD", "k", 0, 99, "REV") == list(range(25, 0, -1))
    assert run.offsets("TREAD", "k", 7, 0, "REV") == []
    assert run.offsets("TREAD", "k", 1, 1, "REV", "BLOCK", 0) == [1]
    run("XADD", "k", "*", "field", "value")
    assert run("TREAD", "k", 0, 1, "REV", "WITHINFO") == [[1, 26], [26, b"", [b"field", b"value"]]]


def test_down_over_holes_and_evicted_entries(run: Commands) -> None:
    run("TWRITE", "k", "ENTRIES", *[word for at in range(1, 26) for word in (f"t{at}", at)])
    run("TEVICT", "k", 10)
    run("TWRITE", "k", "ENTRIES", *[word for at in (12, 13, 25) for word in (f"t{at}", "again")])
    run("TCOMPACT", "k")
    assert run.offsets("TREAD", "k", 0, 5, "REV") == [28, 27, 26, 24, 23]
    assert run.offsets("TREAD", "k", 25, 2, "REV") == [24, 23]
    assert run.offsets("TREAD", "k", 14, 5, "REV") == [14, 11, None, None, None]
    assert run("TREAD", "k", 11, 2, "REV", "WITHINFO") == [[11, 28], [11, b"t11", b"11"], None]
    assert run.offsets("TREAD", "k", 3, 99, "REV") == [None, None, None]
    run("TEVICT", "k", 99)
    assert run.offsets("TREAD", "k", 0, 2, "REV") == [None, None]
    assert run.offsets("TREAD", "k", 0, 99, "REV") == [None] * 28


def test_many_are_made_later_also_over_evicted_entries(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LATER_ENTRIES_MIN", 10)
    run("TWRITE", "k", "ENTRIES", *["tag", "entry"] * 25)
    run("TEVICT", "k", 10)
    for words in ((b"1", b"99"), (b"0", b"99", b"REV")):
        reply, _ = tread(run.store.begin(), [b"TREAD", b"k", *words])
        assert isinstance(reply, Spliced)
        assert all(isinstance(part, Later) for part in reply.body)
        assert (reply.count, reply.nulls_before + reply.nulls_after) == (15, 10)
    assert run.offsets("TREAD", "k", 0, 99, "REV") == [*range(25, 10, -1), *[None] * 10]


def test_down_waits_for_a_first_entry(run: Commands) -> None:
    assert run("TREAD", "k", 0, 1, "REV", "BLOCK", 0) == WAITS
    run("TWRITE", "k", "t", "e")
    assert run("TREAD", "k", 0, 1, "REV", "BLOCK", 0) == [[1, b"t", b"e"]]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["REV", "GROUP", "g"], "ERR REV is for reads without a group"),
        (["NEWGROUP", "g", "RETRY", 1, 1, "REV"], "ERR REV is for reads without a group"),
        (["REV", "REV"], "ERR syntax error"),
    ],
)
def test_misuse_of_rev(run: Commands, words: list[str | int], error: str) -> None:
    assert run.refused("TREAD", "k", 0, 1, *words) == error


def test_info_stands_in_front(run: Commands) -> None:
    assert run("TREAD", "k", 1, 0, "WITHINFO") == [[1, 0]]
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 25)
    assert run("TREAD", "k", 1, 0, "withinfo") == [[1, 25]]
    assert run("TREAD", "k", 25, 9, "WITHINFO") == [[1, 25], [25, b"t", b"e"]]
    assert run("TREAD", "k", 26, 9, "WITHINFO") == [[1, 25]]
    run("TEVICT", "k", 10)
    assert run("TREAD", "k", 1, 0, "WITHINFO") == [[11, 25]]
    run("TEVICT", "k", 25)
    assert run("TREAD", "k", 26, 9, "WITHINFO") == [[26, 25]]


@pytest.mark.parametrize("protocol", [2, 3])
def test_evicted_offsets_are_nils_and_count(run: Commands, protocol: int) -> None:
    run.protocol = protocol
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 25)
    run("TEVICT", "k", 10)
    assert run.offsets("TREAD", "k", 8, 5) == [None, None, None, 11, 12]
    assert run.offsets("TREAD", "k", 1, 4) == [None] * 4
    run("TEVICT", "k", 25)
    assert run.offsets("TREAD", "k", 24, 9) == [None, None]
    assert run.offsets("TREAD", "k", 24, 9, "BLOCK", 0) == [None, None]


def test_one_reply_has_a_bound(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_ENTRIES_MAX", 7)
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 25)
    assert run.offsets("TREAD", "k", 1, 10**18) == [1, 2, 3, 4, 5, 6, 7]
    run("TEVICT", "k", 25)
    assert run.offsets("TREAD", "k", 1, 10**18) == [None] * 7


def test_it_waits_for_an_entry_at_or_after_the_offset(run: Commands) -> None:
    assert run.quietly("TREAD", "k", 1, 9, "BLOCK", 0) == WAITS
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 3)
    assert run.offsets("TREAD", "k", 3, 9, "BLOCK", 0) == [3]
    assert run.quietly("TREAD", "k", 4, 9, "BLOCK", 100) == WAITS
    assert run.quietly("TREAD", "k", 10, 9, "BLOCK", 100) == WAITS
    assert run.quietly("TREAD", "k", 4, 0, "BLOCK", 100) == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["x", 1], "ERR offset is not an integer or out of range"),
        ([1, "x"], "ERR count is not an integer or out of range"),
        ([-1, 1], "ERR offset must not be negative"),
        ([1, -1], "ERR count must not be negative"),
        ([2**63, 1], "ERR offset is not an integer or out of range"),
        ([1, 1, "BLOCK"], "ERR syntax error"),
        ([1, 1, "BLOCK", "x"], "ERR timeout is not an integer or out of range"),
        ([1, 1, "BLOCK", -1], "ERR timeout is negative"),
        ([1, 1, "BLOCK", 1, "BLOCK", 1], "ERR syntax error"),
        ([1, 1, "GROUP"], "ERR syntax error"),
        ([1, 1, "GROUP", "g", "NEWGROUP", "g"], "ERR syntax error"),
        ([1, 1, "RETRY", 1, 1], "ERR RETRY requires GROUP"),
        ([1, 1, "GROUP", "g", "RETRY", 1], "ERR syntax error"),
        ([1, 1, "GROUP", "g", "RETRY", "x", 1], "ERR retry time is not an integer or out of range"),
        ([1, 1, "GROUP", "g", "RETRY", 1, -1], "ERR expire time is negative"),
        ([1, 1, "WITHINFO", "WITHINFO"], "ERR syntax error"),
        ([1, 1, "COUNT", 5], "ERR syntax error"),
    ],
)
def test_misuse(run: Commands, words: list[str | int], error: str) -> None:
    assert run.refused("TREAD", "k", *words) == error
    assert run("EXISTS", "k") == 0


def test_options_come_in_any_order(run: Commands) -> None:
    run("TWRITE", "k", "t", "e")
    words: list[str | int] = ["retry", 5, 6, "Block", 0, "WithInfo", "group", "GROUP"]
    assert run("TREAD", "k", 1, 1, *words) == [[1, 1], [1, b"t", b"e"]]
    assert list(run.stream().groups) == [b"GROUP"]
