"""Lists in the plainest way, for the model of the store (`store_model`): tuples that are made anew with every change,
by code that shares nothing with `tidelog.types.two_ended_list`. An operation that names elements must name those that
are there."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.recovery import require
from tidelog.types.list import LInsert, LPop, LPush, LRem, LSet, LTrim, RPop, RPush

ListOperation = LPush | RPush | LPop | RPop | LSet | LInsert | LRem | LTrim
PlainList = tuple[bytes, ...]


def list_after(old: PlainList, operation: ListOperation) -> PlainList:
    """What an operation makes of a list; nothing: the key is gone."""
    match operation:
        case LPush(_, elements):
            return (*reversed(elements), *old)
        case RPush(_, elements):
            return (*old, *elements)
        case LPop(_, elements):
            return _without(old, range(len(elements)), elements)
        case RPop(_, elements):
            return _without(old, range(len(old) - len(elements), len(old)), elements[::-1])
        case LRem(_, positions, element):
            return _without(old, positions, [element] * len(positions))
        case LSet(_, index, element):
            require(index < len(old), "index", index, "is set in a list of", len(old))
            return (*old[:index], element, *old[index + 1 :])
        case LInsert(_, index, element):
            require(index <= len(old), "index", index, "is inserted into a list of", len(old))
            return (*old[:index], element, *old[index:])
        case LTrim(_, start, stop):
            require(stop < len(old), "a list of", len(old), "is trimmed to", stop)
            return old[start : stop + 1]


def _without(old: PlainList, positions: Sequence[int], elements: Sequence[bytes]) -> PlainList:
    there = [old[at] if 0 <= at < len(old) else None for at in positions]
    require(there == list(elements), "removed were", elements, "and at", positions, "there are", there)
    gone = set(positions)
    return tuple(element for at, element in enumerate(old) if at not in gone)
