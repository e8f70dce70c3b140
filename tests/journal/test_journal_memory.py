"""Memory is bounded by frames and limits, not by the size of the journal: 64 MB on this machine's disk."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog import limits
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import VAL
from tidelog.journal.reader import Part, Record
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

JOURNAL_BYTES: Final = 64 * limits.MIB
FRAME: Final = limits.MIB
RING_BYTES: Final = 2 * limits.MIB
BATCH_BYTES: Final = limits.MIB
RECORD_BYTES: Final = 8 * limits.KIB
SETTINGS: Final = Settings(Geometry(FRAME), 1, FsyncPolicy.NEVER, RING_BYTES)
RECORDS: Final = JOURNAL_BYTES // RECORD_BYTES


class Peak:
    """How much more memory was held than at the beginning."""

    bytes = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    gc.collect()
    tracemalloc.start()
    peak = Peak()
    try:
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def open_journal(folder: Path, apply: Callable[[JournalTransaction, Callable[[Part, Record], bytes]], None]) -> Journal:
    return Journal.open(SystemDisk(), str(folder), SystemClock(), SETTINGS, apply=apply, new_epoch_id=lambda: 1)


def test_neither_writing_nor_reading_nor_recovering_holds_more_than_a_few_frames(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with peak_memory() as writing:
        journal = open_journal(folder, lambda _, __: None)
        for number in range(RECORDS):
            payload = number.to_bytes(8, "little") * (RECORD_BYTES // 8)
            journal.writer.append_one(ShardId(0), journal.hlc.next(), VAL, payload)
            if journal.writer.batch_bytes >= BATCH_BYTES:
                journal.writer.write()
        journal.writer.write()
    # The batch as records and again as chunks, the ring, and what is being joined.
    assert writing.bytes < RING_BYTES + 4 * BATCH_BYTES + 2 * FRAME
    assert sum(path.stat().st_size for path in folder.rglob("journal-*")) > JOURNAL_BYTES

    count = 0
    with peak_memory() as reading:
        reader = journal.reader_since(Ts(0))
        for transaction in reader.read():
            assert transaction.parts[0].records[0].payload[:8] == count.to_bytes(8, "little")
            count += 1
        reader.close()
    assert count == RECORDS
    # A frame, and the records that were cut out of it.
    assert reading.bytes < 4 * FRAME
    journal.close()

    replayed = 0

    def apply(_: JournalTransaction, __: object) -> None:
        nonlocal replayed
        replayed += 1

    with peak_memory() as recovering:
        open_journal(folder, apply).close()
    assert replayed == RECORDS
    assert recovering.bytes < 5 * FRAME
