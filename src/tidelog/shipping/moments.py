"""Which moments a copy covers, and which lineage shows one of them.

    lineage 1   begins ├──────────────────┤ ends (a server took over here)
    lineage 2          begins ├───────────┼──────────────┤ shipped so far
                                          └ both show the moments before: the newer one is taken

If a lineage could only begin with a snapshot from after the takeover, there is a gap before it, and moments in it are
refused: the state of the moment before the gap is not the state of that moment.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from tidelog.errors import DataDirectoryError
from tidelog.ids import Ts
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CoveredMoments(NamedTuple):
    """A run of moments that can be restored."""

    first: Ts
    last: Ts
    lineage: Lineage


def covered_moments(manifest: Manifest) -> list[CoveredMoments]:
    """What can be restored from the lineages of a manifest, oldest first."""
    found: list[CoveredMoments] = []
    for index, lineage in enumerate(manifest.lineages):
        if lineage.begins_ts is None or not lineage.ends:
            continue
        if lineage.ends_ts is not None and not lineage.history_ts:
            continue  # whatever it has was lost
        is_newest = index == len(manifest.lineages) - 1
        last = max(lineage.history_ts, manifest.closed_ts) if is_newest else lineage.history_ts
        if last >= lineage.begins_ts:
            found.append(CoveredMoments(lineage.begins_ts, last, lineage))
    return found


def lineage_at(manifest: Manifest, at: Ts | None) -> tuple[Lineage, Ts]:
    """The lineage that shows a moment (None: the newest), and the last ts to take from it."""
    covered = covered_moments(manifest)
    if not covered:
        raise DataDirectoryError(
            f"nothing of database {manifest.database_id} can be restored yet: its first snapshot is still being shipped"
        )
    if at is None:
        newest = covered[-1]
        return newest.lineage, newest.lineage.history_ts
    for each in reversed(covered):
        if each.first <= at <= each.last:
            return each.lineage, min(at, each.lineage.history_ts)
    runs = ", ".join(f"{_shown(each.first)} to {_shown(each.last)}" for each in covered)
    raise DataDirectoryError(f"{_shown(at)} is not covered: this copy shows the moments from {runs}")


def _shown(ts: Ts) -> str:
    """A moment for people: a time and its ts."""
    if not ts:
        return "0 (the beginning)"
    try:
        moment = _EPOCH + timedelta(microseconds=ts)
    except OverflowError:
        return f"ts {ts}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}Z (ts {ts})"
