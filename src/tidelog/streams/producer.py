"""Producers: clients that repeat a call which may have arrived already, without its entries being written twice.

A producer numbers its calls upwards, with gaps if it likes. A stream remembers the newest calls of each producer with
the offsets that they got, and answers a repeated call with the same offset. A call older than those is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from tidelog import limits


class Producer:
    """The newest calls of one producer."""

    __slots__ = ("offsets", "seqs")

    def __init__(self) -> None:
        self.seqs = array("Q")
        """Counting up ..."""
        self.offsets = array("Q")
        """... and the offset of the first entry of each."""

    @property
    def last_seq(self) -> int:
        return self.seqs[-1] if self.seqs else -1

    def add(self, seq: int, offset: int) -> None:
        self.seqs.append(seq)
        self.offsets.append(offset)
        if len(self.seqs) >= 2 * limits.PRODUCER_SEQS_KEPT:
            del self.seqs[: -limits.PRODUCER_SEQS_KEPT], self.offsets[: -limits.PRODUCER_SEQS_KEPT]

    def offset_of(self, seq: int) -> int | None:
        """The offset that a call got; None: the call is forgotten, or was one of the gaps."""
        at = bisect_left(self.seqs, seq)
        return self.offsets[at] if at < len(self.seqs) and self.seqs[at] == seq else None

    def copy(self) -> Producer:
        made = Producer()
        made.seqs, made.offsets = self.seqs[:], self.offsets[:]
        return made
