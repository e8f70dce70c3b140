"""Changes of rows at random, and what they do to rows, the naive way: one step after the other, in dicts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.views.dataflow.changes import CLEAR, GONE, SET, changes_schema

COLUMNS: Final = 3
IDS: Final = 6

Step = Mapping[str, Any]
State = dict[bytes, tuple[dict[int, str], frozenset[bytes]]]
"""By id: the columns that it has, and the names of what keeps it alive."""

_NOTHING: Final = {
    **dict.fromkeys(["end", "is_reset", "more", "less", "touched"]),
    **{f"c{number}": None for number in range(COLUMNS)},
}


def random_steps(chance: random.Random) -> list[Step]:
    return [_step(chance) for _ in range(chance.randrange(1, 12))]


def _step(chance: random.Random) -> Step:
    op = chance.choices([SET, GONE, CLEAR], [8, 2, 1])[0]
    given: dict[str, Any] = {**_NOTHING, "op": op, "id": bytes([chance.randrange(IDS)])}
    if op == CLEAR:
        given["end"] = chance.choice([None, bytes([chance.randrange(IDS + 1)])])
    elif op == SET:
        names = [bytes([97 + number]) for number in chance.sample(range(4), chance.randrange(4))]
        cut = chance.randrange(len(names) + 1)
        touched = chance.randrange(1 << COLUMNS)
        given |= {"is_reset": chance.random() < 0.2, "touched": touched}
        given |= {"more": names[:cut] or None, "less": names[cut:] or None}
        given |= {f"c{n}": chance.choice([None, "x", "y", "z"]) for n in range(COLUMNS) if touched >> n & 1}
    return given


def table_of(steps: Iterable[Step]) -> pa.Table:
    return pa.Table.from_pylist(list(steps), changes_schema(COLUMNS))


def applied(state: State, steps: Iterable[Step]) -> State:
    """The state after some steps. A row that nothing is left of is still there, for more may be said about it."""
    state = dict(state)
    for step in steps:
        start, end = step["id"], step["end"]
        if step["op"] == CLEAR:
            state = {each: row for each, row in state.items() if each < start or (end is not None and each >= end)}
        elif step["op"] == GONE:
            state.pop(start, None)
        else:
            columns, names = state.get(start, ({}, frozenset()))
            if step["is_reset"]:
                columns, names = {}, frozenset()
            said = {n: step[f"c{n}"] for n in range(COLUMNS) if step["touched"] >> n & 1}
            left = {n: value for n, value in {**columns, **said}.items() if value is not None}
            state[start] = left, (names - set(step["less"] or ())) | set(step["more"] or ())
    return state


def living(state: State) -> State:
    """Without rows that nothing is left of."""
    return {each: row for each, row in state.items() if row[1]}
