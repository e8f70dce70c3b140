"""How far a query is behind, as its progress tells it.

A source in Python has no metrics in Spark's progress (`sources[0].metrics` is empty). But Spark asks it how far there
is something to read, and shows the answer as text, unread. So the lag is in that answer:

    sources[0].latestOffset    {"newest": {"orders": 1235}, "lag": {"rows": 12, "ms": 840}}

`newest` is as the offsets of batches are. The lag is what is left after the batch that the progress is about:

    rows    rows that wait; of a feed, records of the journal; null if that is not known
    ms      for how long the first of them has been waiting; null if that is not known
"""

from __future__ import annotations

from typing import Any, NamedTuple


class SourceLag(NamedTuple):
    """What waits to be read."""

    rows: int | None
    ms: int | None


NONE_WAITS = SourceLag(0, 0)
NOT_KNOWN = SourceLag(None, None)


def report_of(newest: dict[str, Any], lag: SourceLag) -> dict[str, Any]:
    """What Spark is told."""
    return {"newest": newest, "lag": lag._asdict()}
