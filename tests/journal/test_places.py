"""Where an lsn or a ts is, beside what the reader's tests show: cutting a history in parts."""

from __future__ import annotations

import pytest

from tests.journal.machine import Machine
from tidelog.ids import Ts
from tidelog.journal.places import Places


@pytest.fixture(scope="module")
def long_journal() -> tuple[Machine, list[Ts]]:
    """300 transactions, four to a frame, and their ts."""
    machine = Machine(shards=1, ring_bytes_max=0)
    return machine, machine.fill(300)


@pytest.mark.parametrize("records", [1, 10, 97, 299])
def test_a_history_is_cut_after_about_so_many_records(long_journal: tuple[Machine, list[Ts]], records: int) -> None:
    machine, all_ts = long_journal
    places = Places(machine.source(), lambda: machine.journal.writer.visible.ends[0])
    counts: list[int] = []
    since = Ts(0)
    while (until := places.ts_after(since, records)) is not None:
        counts.append(sum(since < ts <= until for ts in all_ts))
        since = until
    rest = sum(ts > since for ts in all_ts)
    assert sum(counts) + rest == 300
    assert all(records - 4 <= count <= records + 4 for count in counts)
    assert rest <= records + 4
    assert machine.journal.ts_after(Ts(0), 1000) == all_ts[-1]


def test_a_history_without_records_is_not_cut() -> None:
    assert Machine(shards=1).journal.ts_after(Ts(0), 1) == 0
