"""Named holders, drawn at random: they come, move, are let go and go, alone or with keys in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.simulation.recovery import require
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.ids import Ts
from tidelog.journal.journal import Journal
from tidelog.journal.retention import Holder
from tidelog.store.hold_changes import change_holds
from tidelog.store.store import Store

_TABLE: Final = command_table()
_NAMES: Final = ("one", "two", "three")


def draw_change(rng: Random, store: Store, known_ts: Sequence[int], now_us: int, words: list[bytes]) -> None:
    """Change some; `words`: a command that may be a part of the same transaction."""
    known = list(store.holds.by_name)
    released = [rng.choice(known)] if known and rng.random() < 0.3 else []
    ts = Ts(max(store.journal.erased_ts, rng.choice(known_ts or [0])))
    lapsed = rng.choice((None, None, None, "why"))
    changed = [Holder(rng.choice(_NAMES), ts, now_us, lapsed, rng.randrange(3))]
    if released and rng.random() < 0.5:
        changed = []
    if rng.random() < 0.7:
        change_holds(store, changed, released)
        return
    joined = store.begin()
    run_command(find_command(_TABLE, words), joined, words)
    change_holds(store, changed, released, joined)
    store.commit(joined)


def check_holds(journal: Journal) -> None:
    for holder in journal.holders.holding():
        require(holder.ts >= journal.erased_ts, "what", holder.name, "holds was erased")
