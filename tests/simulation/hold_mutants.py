"""Planted bugs of named holders: each must be caught by the simulation of the store (`store_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

HOLD_MUTANTS: Final = (
    Mutant(
        "snapshot-without-holds",
        "store/capture.py",
        "        self._add([SetHold(holder, data_ts) for holder in store.holds.by_name.values()])\n",
        "",
        "a hold is lost as soon as a snapshot takes the place of its record",
        "store",
        focus="holds",
    ),
    Mutant(
        "hold-not-held-until-it-is-durable-that-it-moved",
        "journal/retention.py",
        "        needed = min(self._replaced, self._replaced_since, *held)\n",
        "        needed = min(NOTHING, NOTHING, *held)\n",
        "a crash takes back that a hold has moved, and what it holds was erased",
        "store",
        focus="holds",
    ),
    Mutant(
        "named-holds-ignored-by-retention",
        "journal/retention.py",
        "        held = (holder.ts for holder in self.holding())\n",
        "        held = (holder.ts for holder in self._passing.values())\n",
        "what a named feed has not read is erased",
        "store",
        focus="holds",
    ),
    Mutant(
        "hold-forgets-why-it-was-let-go",
        "types/hold.py",
        "_text(items[2]) or None, epoch",
        "None, epoch",
        "a hold that was let go holds again after a start",
        "store",
        focus="holds",
    ),
    Mutant(
        "release-not-replayed",
        "types/hold.py",
        "Release([_text(name) for name in items[1:]]",
        "Release([_text(name) for name in items[2:]]",
        "a hold that was dropped is back after a start",
        "store",
        focus="holds",
    ),
)
