"""Buckets of `current`: by a hash of its key, each row belongs to one, and so a task can do all there is to do for it.

    bucket = crc32(key) modulo count          count: a power of two; 1 for a small table

The folder of a file says which bucket it is of: `bucket-0003-of-0008/part-....parquet`. Files of the table's own folder
are those of the one bucket that there is at first. There is no column for it, and readers need not know. A bucket of
8 is a part of one bucket of 4: so when a table has grown, each file is divided by itself.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog import limits

_FOLDER: Final = re.compile(r"bucket-([0-9]+)-of-([0-9]+)/")


class Bucket(NamedTuple):
    """One of so many buckets."""

    number: int
    of: int

    @property
    def folder(self) -> str:
        """Below the table's folder, with a slash at its end; empty: that folder itself."""
        return f"bucket-{self.number:04}-of-{self.of:04}/" if self.of > 1 else ""


def bucket_of(path: str) -> Bucket:
    """The bucket that a file belongs to."""
    found = _FOLDER.match(path)
    return Bucket(int(found[1]), int(found[2])) if found else Bucket(0, 1)


def bucket_numbers(keys: pa.ChunkedArray, count: int) -> npt.NDArray[np.int64]:
    """Of each key the number of its bucket."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    encoded: Any = pa.chunked_array(keys).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # there are more bytes than one array can have
        encoded = encoded.unify_dictionaries().combine_chunks()
    hashes = np.fromiter(map(zlib.crc32, encoded.dictionary.to_pylist()), np.int64, len(encoded.dictionary))
    numbers: npt.NDArray[np.int64] = (hashes % count)[encoded.indices.to_numpy()]
    return numbers


def rows_of_buckets(numbers: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
    """Of each bucket the numbers of its rows, in their order."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(count), "right")
    return np.split(order, ends[:-1])


def wanted_count(size_bytes: int, count: int) -> int:
    """Into how many buckets a table should be divided that has `count` of them.

    A bucket may grow to the size of a file. Then there will be as many as leave it half as large, because dividing
    rewrites all files; at most so many times as many as one pass over a file can write.
    """
    if size_bytes <= count * limits.LAKE_FILE_BYTES:
        return count
    most = min(limits.LAKE_BUCKETS_MAX, count * limits.LAKE_DIVIDED_MAX)
    wanted = count
    while wanted < most and 2 * size_bytes > wanted * limits.LAKE_FILE_BYTES:
        wanted *= 2
    return wanted
