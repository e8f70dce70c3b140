"""Cold nodes that were read stay open within a bound of bytes, and are fetched where nobody may wait for a disk."""

from __future__ import annotations

import pytest

from tests.streams.cold_nodes import chill_all, chilled, cold_node
from tests.streams.plain import filled
from tidelog.streams.cold import OPENED, NodesAway, OpenedNodes
from tidelog.streams.read_ahead import ReadAhead
from tidelog.streams.rows import TAGGED, Rows
from tidelog.streams.sealed_node import SealedNode


def held(opened: OpenedNodes, nodes: list[SealedNode]) -> list[bool]:
    return [node in opened for node in nodes]


def test_what_was_not_read_again_is_closed() -> None:
    a, b, c = nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(2 * a.opened_bytes)
    opened.open(a)
    opened.open(b)
    assert a.columns.batch.num_rows == 1
    opened.open(c)
    assert held(opened, nodes) == [True, False, True]
    assert opened.bytes_held == 2 * a.opened_bytes
    opened.open(b)
    opened.open(c)
    assert held(opened, nodes) == [False, True, True], "it was spared once, and not read since"
    opened.clear()
    assert opened.bytes_held == 0


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    node = cold_node(1, 1000)
    opened = OpenedNodes(node.opened_bytes - 1)
    assert opened.open(node).batch.num_rows == 1
    assert opened.bytes_held == 0


def test_what_is_pinned_stays() -> None:
    a, b, _ = nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(a.opened_bytes)
    opened.pin([a, b])
    for node in nodes:
        opened.open(node)
    assert held(opened, nodes) == [True, True, False]
    opened.clear()
    assert held(opened, nodes) == [True, True, False]
    opened.unpin([a, b])
    assert opened.bytes_held <= a.opened_bytes


def test_what_is_open_keeps_no_place_of_a_node_that_is_gone() -> None:
    node = cold_node(1, 1000)
    opened = OpenedNodes(10 * node.opened_bytes)
    opened.open(node)
    assert node.columns.batch.num_rows == 1
    assert node.place is not None
    file = node.place.file
    file.tally()
    assert file.live_count == 1
    del node
    file.tally()
    assert file.live_count == 0, "its file can go"
    others = [cold_node(1, 1000) for _ in range(10)]
    for other in others:
        opened.open(other)
    assert all(held(opened, others)), "what is left of it goes first, though it was read"
    assert opened.bytes_held > 0
    opened.clear()
    assert opened.bytes_held == 0


def test_what_is_open_of_nodes_that_are_gone_is_closed_soon() -> None:
    nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(10 * nodes[0].opened_bytes)
    for node in nodes:
        opened.open(node)
        assert node.columns.batch.num_rows == 1
    assert opened.close_unread() == 0
    kept = nodes.pop()
    size = kept.opened_bytes
    del nodes, node
    assert opened.close_unread() == 2 * size
    assert opened.bytes_held == size
    assert kept in opened


def test_what_was_written_is_made_ready_for_readers_when_one_comes() -> None:
    node = SealedNode.of_rows(Rows([1], [1], [0], [TAGGED], [b"t"], [b"e"]))
    opened = OpenedNodes(2 * node.opened_bytes)
    opened.put_written([node])
    chilled(node)
    assert node in opened
    assert not node.is_away
    assert node.opened is not None
    assert node.opened.columns is None
    assert node.rows(0, 1).entries == [b"e"]
    assert node.opened.was_read
    opened.put_written([node])
    assert opened.bytes_held == node.opened_bytes, "once"


def test_what_was_read_ahead_keeps_no_place_of_a_node_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPENED, "fetch_ahead", None)
    stream, ahead = chill_all(filled(3000)), ReadAhead()
    for offset in (1, 1001, 1, 11):
        assert ahead.read(stream, offset, 10) == stream.read(offset, 10)
    place = stream.sealed[0].place
    assert place is not None
    file = place.file
    del place
    file.tally()
    count = file.live_count
    stream.sealed = []
    file.tally()
    assert file.live_count == 0 < count


def test_who_fetches_is_told_of_all_that_are_needed_at_once() -> None:
    a, b, c = nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(10 * a.opened_bytes)
    opened.open(b)
    opened.fetches = True
    opened.require([b])
    with pytest.raises(NodesAway) as away:
        opened.require(nodes)
    assert away.value.nodes == nodes, "with the one that is there, which has to stay"
    with pytest.raises(NodesAway) as away:
        opened.open(c)
    assert away.value.nodes == [c]
    opened.fetches = False
    opened.require(nodes)
    assert opened.open(c).batch.num_rows == 1
