"""Cold nodes that were read stay open within a bound of bytes, and are fetched where nobody may wait for a disk."""

from __future__ import annotations

import pytest

from tests.streams.cold_nodes import cold_node
from tidelog.streams.cold import NodesAway, OpenedNodes
from tidelog.streams.sealed_node import SealedNode


def held(opened: OpenedNodes, nodes: list[SealedNode]) -> list[bool]:
    return [node in opened for node in nodes]


def test_the_least_recently_used_is_closed() -> None:
    a, b, c = nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(2 * a.opened_bytes)
    for node in (a, b, a, c):
        opened.open(node)
    assert held(opened, nodes) == [True, False, True]
    assert opened.bytes_held == 2 * a.opened_bytes
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


def test_who_fetches_is_told_of_all_that_are_needed_at_once() -> None:
    a, b, c = nodes = [cold_node(1, 1000) for _ in range(3)]
    opened = OpenedNodes(10 * a.opened_bytes)
    opened.open(b)
    opened.fetches = True
    opened.open(b)
    with pytest.raises(NodesAway) as away:
        opened.require(nodes)
    assert away.value.nodes == nodes, "with the one that is there, which has to stay"
    with pytest.raises(NodesAway) as away:
        opened.open(c)
    assert away.value.nodes == [c]
    opened.fetches = False
    opened.require(nodes)
    assert opened.open(c).batch.num_rows == 1
