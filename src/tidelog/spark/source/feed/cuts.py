"""Where a stretch of history is cut, so that several tasks read it: moments, the same for all shards.

A moment lies between two transactions, whichever it is, so a cut changes nothing of what is read. First it is cut at
frames of the journal, with about so many records in between. If these are too few, because the journal is small, the
rest is cut by time.
"""

from __future__ import annotations

from itertools import pairwise

from tidelog.spark.source.feed.origin import FeedOrigin


def cut_history(origin: FeedOrigin, since: int, until: int, records: int | None, pieces_min: int) -> list[int]:
    """The moments between two, so that each shard has about so many records (None: any number) between two cuts, and
    that there are so many pieces, if the time between them can be cut into as many."""
    cuts = [] if records is None else _at_frames(origin, since, until, records)
    if len(cuts) + 1 >= pieces_min:
        return cuts
    behind = origin.behind(since)
    shards = len(origin.position().shards)
    waiting = behind.records - origin.behind(until).records
    cuts = _at_frames(origin, since, until, max(1, waiting // (shards * pieces_min)))
    if len(cuts) + 1 >= pieces_min:
        return cuts
    return _by_time(max(since, min(behind.begin, until)), until, cuts, pieces_min)


def _at_frames(origin: FeedOrigin, since: int, until: int, records: int) -> list[int]:
    cuts: list[int] = []
    at = since
    while at < until:
        found = origin.position(at, records).until
        if found <= at or found >= until:
            break
        cuts.append(found)
        at = found
    return cuts


def _by_time(begin: int, until: int, cuts: list[int], pieces_min: int) -> list[int]:
    """Each piece is cut into as many."""
    edges = [begin, *(cut for cut in cuts if cut > begin), until]
    each = -(-pieces_min // (len(edges) - 1))
    found = {first + (last - first) * index // each for first, last in pairwise(edges) for index in range(each)}
    return sorted((found | {cut for cut in cuts if cut > begin}) - {begin, until})
