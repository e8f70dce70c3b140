"""Into how many pieces ranges are cut, so that a batch has as many tasks as are wanted.

`partition_rows` bounds a task from above. `minPartitions` asks for so many tasks, as long as there are as many rows: a
range is cut into more pieces, in proportion to its size. Both follow from the ranges alone, so a batch that is repeated
is cut at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog import limits
from tidelog.spark.options import Options


def take_pieces_min(options: Options) -> int | None:
    """The option `minPartitions`."""
    return options.number("minPartitions", 1, limits.SPARK_PARTITIONS_MAX)


def pieces_of(sizes: Sequence[int], pieces_min: int) -> list[int]:
    """Into how many pieces to cut ranges of these sizes, so that there are so many if no piece is to be empty."""
    total = max(sum(sizes), 1)
    return [min(size, -(-size * pieces_min // total)) for size in sizes]


def cut_evenly(first: int, last: int, pieces: int) -> Iterator[tuple[int, int]]:
    """A range of numbers, both ends included, in pieces whose sizes differ by one at most."""
    size = last - first + 1
    for index in range(pieces):
        yield first + size * index // pieces, first + size * (index + 1) // pieces - 1
