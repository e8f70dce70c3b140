"""What feeds tell of streams that RENAME, COPY and MOVE make, live, from disk, and with the groups; and of TCONFIG."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feeds.made import Watched
from tests.feeds.rebuilt import RULE
from tidelog.ids import Ts
from tidelog.store.stream_retention import StreamRetention


def said(events: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Key, type, field and value of values."""
    return [tuple(event[1:]) for event in events if event[0] == b"value"]


def renamed_over(watched: Watched) -> None:
    watched("XADD", "old", "7-1", "f", "v")
    watched("XADD", "old", "8-0", "tag", "t", "entry", "e")
    watched("XDEL", "old", "7-1")
    watched("XADD", "new", "1-1", "f", "v")
    watched("RENAME", "old", "new")


@pytest.mark.parametrize("is_live", [True, False])
def test_a_copy_is_one_event(is_live: bool) -> None:
    watched = Watched()
    if is_live:
        _, known = watched.watch()
        renamed_over(watched)
    else:
        renamed_over(watched)
        watched.restart()
        _, known = watched.watch(since=Ts(1))
    assert said(watched.events(known))[-3:] == [
        (b"new", b"none", None, None),
        (b"new", b"stream", b"copy", [1, 2, b"8-0", b"7-1", 2, 0, b"old"]),
        (b"old", b"none", None, None),
    ]
    assert known.state[b"new"][1][2] == (b"8-0", b"t", b"e")
    assert b"old" not in known.state


def test_a_copy_from_another_database_says_so() -> None:
    watched = Watched()
    _, known = watched.watch(database=4)
    watched("XADD", "k", "7-1", "f", "v")
    watched("COPY", "k", "l", "DB", 4)
    watched("MOVE", "k", 4)
    assert said(watched.events(known)) == [
        (b"l", b"stream", b"copy", [1, 1, b"7-1", b"0-0", 1, 0, b"k"]),
        (b"k", b"stream", b"copy", [1, 1, b"7-1", b"0-0", 1, 0, b"k"]),
    ]


def test_the_groups_of_a_copy_are_told() -> None:
    watched = Watched()
    watched("XADD", "k", "7-1", "f", "v")
    watched("XGROUP", "CREATE", "k", "g", "0")
    watched("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    _, known = watched.watch(has_groups=True)
    watched("COPY", "k", "l")
    assert [(field, value) for _, _, field, value in said(watched.events(known))] == [
        (b"copy", [1, 1, b"7-1", b"0-0", 1, 0, b"k"]),
        (b"group", [b"g", b"set", 1, b"7-1", 1, 0, b"", 0]),
        (b"group", [b"g", b"pend", b"c", [1]]),
    ]


def test_a_copy_in_another_shard_tells_the_entries() -> None:
    watched = Watched(2)
    _, known = watched.watch()
    watched("XADD", "k", "7-1", "f", "v")
    names = [b"n%d" % number for number in range(8)]
    for name in names:
        watched("COPY", "k", name)
    fields = {field for key, _, field, _ in said(watched.events(known)) if key in names}
    assert fields == {None, b"setid", b"copy"}
    assert all(known.state[name] == known.state[b"k"] for name in names)


@pytest.mark.parametrize("is_live", [True, False])
def test_what_a_stream_keeps_by_itself_is_told(is_live: bool) -> None:
    watched = Watched()
    config = b"stream", b"config"
    _, known = watched.watch()
    watched("TCONFIG", "k", "MAXBYTES", 7, "BACKLOG", 2)
    watched("XADD", "k", "7-1", "f", "v")
    watched("TCONFIG", "k", "MAXAGE", 60_000)
    watched("RENAME", "k", "l")
    if not is_live:
        watched.restart()
        _, known = watched.watch(since=Ts(1))
    events = said(watched.events(known))
    assert [event for event in events if event[1:3] == config] == [
        (b"k", *config, [7, 0, 2]),
        (b"k", *config, [7, 60_000, 2]),
        (b"l", *config, [7, 60_000, 2]),
    ]
    assert known.state[b"l"][1][RULE] == (7, 60_000, 2)
    _, initial = watched.watch(is_initial=True)
    assert said(watched.events(initial)) == [(b"l", b"stream", None, [1, 1]), (b"l", *config, [7, 60_000, 2])]


def test_what_goes_by_itself_is_told_as_evicted() -> None:
    watched = Watched()
    _, known = watched.watch()
    watched("TCONFIG", "k", "MAXAGE", 1000)
    watched("TWRITE", "k", "ENTRIES", "t", "e", "t", "f")
    watched.wait(5000)
    StreamRetention(watched.store).run()
    assert said(watched.events(known))[-1] == (b"k", b"stream", b"evict", 3)
