"""Journals of strings: one whose keys come in order, so that each frame has keys of its own; one of a single record."""

from __future__ import annotations

from typing import Final

from tests.cli.directories import open_journal
from tidelog.ids import ShardId
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, core_table, encode_pairs
from tidelog.system.disk import SystemDisk
from tidelog.testing.clock import SimulatedClock

KEYS: Final = [b"key:%06d" % number for number in range(1500)]


def write_ordered(folder: str) -> None:
    disk, clock = SystemDisk(), SimulatedClock()
    journal = open_journal(disk, folder, clock, shards=1)
    for key in KEYS:
        clock.advance(1000)
        record = NewRecord(ShardId(0), VAL, encode_pairs([(key, b"v" * 50)]), None, 0)
        journal.writer.append(journal.hlc.next(), [record])
        journal.writer.write()
    journal.make_sidecars(core_table(), 10_000)
    journal.close()


def write_pairs(folder: str, count: int) -> None:
    """One record that sets many keys."""
    journal = open_journal(SystemDisk(), folder, SimulatedClock(), shards=1)
    pairs = encode_pairs([(b"key:%d" % number, b"v") for number in range(count)])
    journal.writer.append(journal.hlc.next(), [NewRecord(ShardId(0), VAL, pairs, None, 0)])
    journal.writer.write()
    journal.close()
