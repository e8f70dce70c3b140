"""Two values as one key: sorted by the first, and no two pairs have the same key.

first, in which 00 is written as 00 01 | 00 00 | second
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.runs.run_files import Batches
from tidelog.spark.runs.sorted_rows import GONE, KEY, overlaid

PAIRS: Final = pa.schema([(KEY, pa.binary()), (GONE, pa.bool_())])
"""A table of state that holds pairs."""
_BETWEEN, _BEHIND = b"\0\0", b"\0\1"


def paired(first: Any, second: Any) -> Any:
    escaped = pc.replace_substring(first, b"\0", b"\0\1")
    return pc.binary_join_element_wise(escaped, second, pa.scalar(_BETWEEN, pa.binary()))


def split(key: bytes) -> tuple[bytes, bytes]:
    first, _, second = key.partition(_BETWEEN)
    return first.replace(b"\0\1", b"\0"), second


def pairs_of(runs: Sequence[Batches], firsts: Any) -> list[tuple[bytes, bytes]]:
    """All pairs with one of some first values (each once) that the runs have."""
    escaped = pc.replace_substring(firsts, b"\0", b"\0\1")
    escaped = escaped.take(pc.sort_indices(escaped))
    nothing = pa.scalar(b"", pa.binary())
    low = pc.binary_join_element_wise(escaped, pa.scalar(_BETWEEN, pa.binary()), nothing)
    high = pc.binary_join_element_wise(escaped, pa.scalar(_BEHIND, pa.binary()), nothing)
    found = PAIRS.empty_table()
    for run in runs:
        parts = []
        for batch in run:
            column = batch.column(KEY)
            begins = pc.search_sorted(column, low).to_numpy().astype(np.int64)
            sizes = pc.search_sorted(column, high).to_numpy().astype(np.int64) - begins
            offsets = np.concatenate(([0], np.cumsum(sizes)))
            at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - begins, sizes)
            parts.append(batch.take(pa.array(at)))
        found = overlaid(found, pa.Table.from_batches(parts, PAIRS))
    return [split(key) for key in found.filter(pc.invert(found[GONE]))[KEY].to_pylist()]


def netted(first: Any, second: Any, signs: Any) -> pa.Table:
    """What pairs that come (+1) and go (-1) change in a table of pairs."""
    keys = paired(first, second).dictionary_encode()
    net = np.zeros(len(keys.dictionary), np.int64)
    np.add.at(net, keys.indices.to_numpy(), signs)
    table = pa.table([keys.dictionary, pa.array(net < 0)], schema=PAIRS).filter(pa.array(net != 0))
    return table.take(pc.sort_indices(table[KEY]))
