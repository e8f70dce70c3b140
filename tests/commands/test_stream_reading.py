"""TREAD without a group, and what it takes and refuses."""

from __future__ import annotations

import pytest

from tests.commands.running import WAITS, Commands
from tidelog import limits


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
