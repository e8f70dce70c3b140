"""The runs of a copy's lineages that together are its history: each transaction in one of them.

    lineage 1    ├────────────────┤
    lineage 2             ├───────────────┤          taken: 1 up to where 2 begins, then 2, then 3
    lineage 3                          ├──────┤

A lineage that begins with a snapshot of ts S has every transaction after S, up to its end. So the older one is taken up
to S: a transaction that both have is taken from the newer. If the older one ends before S, what lies between is in
neither of them. Such a gap is an error, unless the caller wants to go on without what is missing.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.errors import TooOld
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.moments import covered_moments

_LOG: Final = logging.getLogger("tidelog")


class HistoryRun(NamedTuple):
    """Transactions of one lineage."""

    lineage: str
    after: int
    """The ts after which it begins; -1: at the beginning of everything."""
    last: int
    """The ts of the last transaction in it."""


def history_runs(manifest: Manifest) -> list[HistoryRun]:
    """All transactions that a manifest shows, oldest first. Two runs that do not meet have a gap between them."""
    runs: list[HistoryRun] = []
    next_begins: int | None = None
    for covered in reversed(covered_moments(manifest)):
        after = covered.first or -1
        last = covered.lineage.history_ts if next_begins is None else min(covered.lineage.history_ts, next_begins)
        if next_begins is not None and after >= next_begins:
            continue  # the newer one has all of it
        runs.append(HistoryRun(covered.lineage.name, after, last))
        next_begins = after
    return runs[::-1]


def runs_between(
    manifest: Manifest, since: int | None, until: int, *, fail_on_loss: bool, url: str
) -> list[HistoryRun]:
    """The runs that have transactions after `since` (None: all that there are) up to `until`.

    `TooOld`: some of them are missing, and `fail_on_loss`; otherwise that is logged.
    """
    runs = history_runs(manifest)
    losses = [
        (before.last, after.after)
        for before, after in pairwise(runs)
        if before.last < after.after and before.last < until and (since is None or after.after > since)
    ]
    if runs and since is not None and since < runs[0].after:
        losses.insert(0, (since, runs[0].after))
    for first, last in losses:
        told = f"{url} has no transactions after ts {first} up to {last}: "
        told += "they were erased, or lost when another server took over"
        if fail_on_loss:
            raise TooOld(f"{told}. Give a later since, or failOnDataLoss=false to go on without them", oldest=last)
        _LOG.warning("%s", told)
    return [run for run in runs if run.after < until and (since is None or run.last > since)]
