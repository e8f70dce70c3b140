"""A world whose streams let entries go by themselves, by their rules or because all of them are too large.

What went is held against what could go, and what stayed against what had to (`check_retained`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from random import Random
from unittest.mock import patch

from tests.simulation.recovery import require
from tests.simulation.store_model import Model
from tests.simulation.stream_model import check_retained
from tidelog import limits
from tidelog.errors import JournalFailed
from tidelog.store.store import Store
from tidelog.store.stream_retention import RetentionFigures, StreamRetention
from tidelog.store.stream_total import StreamTotal


class ProcessEnds(Exception):
    """What was applied could not be journaled: a server stops at once, without another write."""


class Retaining(ABC):
    """The part of a world that lets entries go."""

    _rng: Random
    _model: Model
    coverage: Counter[str]

    @property
    @abstractmethod
    def _store(self) -> Store: ...

    @abstractmethod
    def _note(self) -> None:
        """Tell the ledger of a transaction, if there was one."""

    @abstractmethod
    def _require_fault(self) -> None: ...

    def _retain(self) -> None:
        """Let entries go by the rules of streams, or because all streams are too large, a transaction at a time."""
        before, now_ms = dict(self._model.state), self._store.now_ms()
        is_total = self._rng.random() < 0.25
        figures = RetentionFigures(self._rng.choice((300, 1000, 3000, 10_000)) if is_total else 0)
        at_once = {
            "RULED_STREAMS_AT_ONCE_MAX": 1,
            "EVICTED_NODES_AT_ONCE_MAX": 1,
            "STREAMS_COUNTED_KEYS_AT_ONCE": 10**6,
        }
        try:
            with patch.dict(vars(limits), at_once):
                (self._retain_total if is_total else self._retain_ruled)(figures)
        except JournalFailed:
            self._require_fault()
            raise ProcessEnds from None
        if self._store.refusal is not None:
            return
        self.coverage["retained_total" if is_total else "retained"] += bool(figures.entries)
        for place, (value, _) in self._model.state.items():
            if type(value) is tuple and value[0] == "stream":
                check_retained(before[place][0][1], value[1], now_ms, is_total=is_total)
        require(figures.is_stuck or figures.stream_bytes <= figures.stream_bytes_max, "all streams take too much")

    def _retain_ruled(self, figures: RetentionFigures) -> None:
        retention, gone = StreamRetention(self._store, figures), -1
        while gone != figures.entries.total():
            gone = figures.entries.total()
            for _ in range(retention.ruled_count):
                retention.run()
                self._note()

    def _retain_total(self, figures: RetentionFigures) -> None:
        total = StreamTotal(self._store, figures)
        total.run()
        self._note()
        while total.is_under_way:
            total.run()
            self._note()
