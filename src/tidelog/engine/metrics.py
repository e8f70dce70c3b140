"""What the server counts, since it started or since CONFIG RESETSTAT.

Nothing here is touched for every command of the hot path: each session counts its own, a buffer at a time, and
`Sessions` adds them up when someone asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.engine.tallies import Tallies

SYNC_BOUNDS_S: Final[tuple[float, ...]] = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


OTHER_ERRORS: Final = "ERRORSTATS_OVERFLOW"
"""In the place of codes beyond the limit, as in Redis."""


class Durations:
    """A histogram of durations."""

    def __init__(self, bounds_s: tuple[float, ...] = SYNC_BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        """Per bound, how many were at most that long and longer than the bound before; the last: longer than all."""
        self.total_s = 0.0
        self.last_s = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.total_s += seconds
        self.last_s = seconds


class SpaceFacts(NamedTuple):
    """How the disk stands, and what was erased to make room on it."""

    free_bytes: int = 0
    is_low: bool = False
    """It is nearly full."""
    segments_erased: int = 0
    """Segments that only the retention limits kept, since the start ..."""
    bytes_erased: int = 0
    """... and their size."""


class ScrubFacts(NamedTuple):
    """How the scrub of node files stands, since the start."""

    bytes: int = 0
    """That were read."""
    passes: int = 0
    """Over all files."""
    pass_bytes: int = 0
    """That were read in the pass under way; 0: it rests."""
    damaged: int = 0
    """Places that are damaged, in files that are still there."""


class SnapshotFacts(NamedTuple):
    """How snapshots stand."""

    is_under_way: bool = False
    current_took_s: float | None = None
    """For how long one has been under way."""
    keys_done: int = 0
    """How many keys the one under way has written ..."""
    keys_total: int = 0
    """... and how many it will have, roughly."""
    made: int = 0
    """How many were made since the start."""
    failures: int = 0
    """How many snapshots in a row failed."""
    error: str | None = None
    """Why the last one failed; None: it did not."""
    last_took_s: float | None = None
    newest_ts: int = 0
    """The moment that the newest one shows; 0: there is none."""
    newest_bytes: int = 0
    newest_keys: int | None = None
    bytes_since: int = 0
    """Journal written since the newest one ..."""
    records_since: int = 0
    """... and its records."""
    space: SpaceFacts = SpaceFacts()
    scrub: ScrubFacts = ScrubFacts()


class Metrics:
    """Counters of events that are rare enough to be counted one by one."""

    def __init__(self) -> None:
        self.commands = Tallies()
        self.reset()

    def reset(self) -> None:
        self.commands.reset()
        self.connections = 0
        """Connections that were made, including those that were turned away."""
        self.connections_refused = 0
        self.cut_for_output = 0
        """Connections that were cut because they listened and did not read ..."""
        self.cut_unauthenticated = 0
        """... and because they had not authenticated and did not read."""
        self.cut_for_idling = 0
        self.errors: Counter[str] = Counter()
        """Error replies by their code. A script can make up codes: of very many, the last are counted as one."""
        self.syncs = Durations()

    def count_error(self, message: str) -> None:
        code = message.partition(" ")[0]
        if code not in self.errors and len(self.errors) >= limits.ERROR_CODES_MAX:
            code = OTHER_ERRORS
        self.errors[code] += 1
