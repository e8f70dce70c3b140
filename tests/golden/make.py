"""Makes the golden files: bytes that every later version must read, and that this one must write.

    python -m tests.golden.make              make what is missing, say what differs, overwrite nothing
    python -m tests.golden.make --overwrite  replace what differs: the format has changed, on purpose

    *.bin        one record, head or entry each; what its bytes mean is in `test_golden.py`
    link-*.bin   what a leader and a follower send each other: one piece, or all that one of them sends
    directory/   a whole data directory of two shards, as it lies on disk

    earlier-directory/ was made in the same way by a version whose epochs had no first ts, whose `meta.json` had no
    database id, and which kept holds in a file. It is only read.

Everything is made of fixed values: the clock, the epoch's id and the geometry.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from crc32c import crc32c

from tests.replication.exchange import FROM_FOLLOWER, FROM_LEADER, encoded
from tests.replication.exchange import record as sent_record
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal import blob, control, frame, operation, record, sidecar
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, START, VAL, core_table, encode_items, encode_pairs
from tidelog.journal.reader import Part
from tidelog.journal.retention import Holder
from tidelog.replication.message import LinkPing, TransactionParts
from tidelog.replication.wire import encode
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types import hold
from tidelog.types.hold import HOLD_OPCODES, Release, SetHold

GOLDEN: Final = Path(__file__).resolve().parent
FOLDER: Final = "/data"
SET_FOO_BAR: Final = encode_pairs([(b"foo", b"bar")])
EXPIRE_MS: Final = 1_800_000_000_000
TS_RELATIVE: Final = 0x01020304
MADE_US: Final = 1_700_000_000_000_000
EPOCH: Final = control.Epoch(0x0123456789ABCDEF, (Lsn(1), Lsn(2)), Ts(0xAABB), Ts(0xAACC))
_HOLD_KIND, _RELEASE_KIND = (effect.kind for effect in hold.effects())
HOLDER: Final = Holder("feed 3:reader", Ts(1_700_000_000_002_000), MADE_US, None, EPOCH.id, Ts(1_700_000_000_001_000))
HOLD: Final = _HOLD_KIND.encode(SetHold(HOLDER, Ts(1_700_000_000_014_000)))
RELEASE: Final = _RELEASE_KIND.encode(Release(["feed:old", "feed 0:n"], Ts(1_700_000_000_014_000)))
WHALE: Final = bytes(range(256)) * 2

SUMMARY: Final = sidecar.FrameSummary(
    3, 2, Lsn(10), Lsn(20), Ts(1000), Ts(2000), b"a", b"zebra", bytes.fromhex("00ff10aa80010203")
)


def single_files() -> dict[str, bytes]:
    """Name -> bytes of everything that is smaller than a frame."""
    batch = (
        frame.encode_header(Lsn(99), Ts(0x1122334455))
        + record.encode(VAL, record.FINISH, SET_FOO_BAR, ts_relative=0)
        + control.encode_mark_without_crc(Cycle(7), Ts(0x1122334455), Cycle(6), [Lsn(100), Lsn(3)])
    )
    return {
        "record-plain.bin": record.encode(VAL, 0, SET_FOO_BAR),
        "record-ts.bin": record.encode(VAL, 0, SET_FOO_BAR, ts_relative=TS_RELATIVE),
        "record-padded.bin": record.encode(VAL, 0, SET_FOO_BAR, padding=5),
        "record-expire.bin": record.encode(VAL, 0, SET_FOO_BAR, expire_ms=EXPIRE_MS),
        "record-next-cont.bin": record.encode(VAL, record.NEXT_CONT, SET_FOO_BAR),
        "record-finish.bin": record.encode(VAL, record.FINISH, SET_FOO_BAR),
        "record-blob.bin": record.encode(
            VAL, record.BLOB, blob.encode_reference(blob.BlobReference(Lsn(9), 4096, 1 << 20, 0xDEADBEEF))
        ),
        "record-all-flags.bin": record.encode(
            VAL,
            record.NEXT_CONT | record.FINISH | record.BLOB,
            SET_FOO_BAR,
            ts_relative=TS_RELATIVE,
            expire_ms=EXPIRE_MS,
            padding=1,
        ),
        "record-long.bin": record.encode(VAL, 0, encode_pairs([(b"k", bytes(300))])),
        "record-del.bin": record.encode(DEL, 0, encode_items([b"foo", b"", b"quux"])),
        "record-flushdb.bin": record.encode(FLUSHDB, 0, b""),
        "record-start.bin": record.encode(
            START, 0, operation.encode_start(operation.Start(Ts(0x0102030405060708), [ShardId(2), ShardId(4)]))
        ),
        "record-hold.bin": record.encode(HOLD_OPCODES[0], 0, HOLD),
        "record-release.bin": record.encode(HOLD_OPCODES[1], 0, RELEASE),
        "frame-head.bin": frame.encode_header(Lsn(0x0A), Ts(0x0102030405060708)),
        "frame-head-continued.bin": frame.encode_header(Lsn(0x0A), Ts(0x0102030405060708), 0x3F0),
        "batch-with-mark.bin": batch + crc32c(batch).to_bytes(4, "little"),
        "select.bin": control.encode_select(5),
        "epoch.bin": control.encode_epoch(EPOCH),
        "sidecar-entry.bin": sidecar.encode_summary(SUMMARY),
    }


def link_files() -> dict[str, bytes]:
    """Name -> bytes of what goes over a link of replication."""
    part = Part(Ts(0x1122334455), ShardId(1), [sent_record(99, 0x1122334455)], True)
    return {
        "link-ping.bin": encode(LinkPing(0x0102030405060708)),
        "link-transaction.bin": encode(TransactionParts([part])),
        "link-from-follower.bin": encoded(FROM_FOLLOWER),
        "link-from-leader.bin": encoded(FROM_LEADER),
    }


def directory_files() -> dict[str, bytes]:
    """Path -> bytes of a data directory that holds every kind of record, a snapshot, holds and a sidecar."""
    disk, clock = SimulatedDisk(), SimulatedClock(wall_us=MADE_US)
    settings = Settings(Geometry(1024, 2), 2, FsyncPolicy.ALWAYS)
    journal = Journal.open(
        disk, FOLDER, clock, settings, apply=lambda _, __: None, new_epoch_id=lambda: 0x1234_5678_9ABC_DEF0
    )
    first, second = ShardId(0), ShardId(1)

    def commit(*records: NewRecord) -> None:
        clock.advance(1000)
        journal.writer.append(journal.hlc.next(), records)
        journal.writer.write()
        journal.writer.sync()

    commit(NewRecord(first, VAL, SET_FOO_BAR))
    commit(
        NewRecord(first, VAL, encode_pairs([(b"x", b"1")])),
        NewRecord(second, VAL, encode_pairs([(b"y", b"2")]), EXPIRE_MS),
    )
    commit(NewRecord(second, VAL, encode_pairs([(b"in", b"db 3")]), None, 3), NewRecord(second, DEL, encode_items([])))
    snapshot = journal.begin_snapshot()
    assert snapshot is not None
    snapshot.add(first, VAL, SET_FOO_BAR)
    snapshot.add(first, VAL, encode_pairs([(b"x", b"1")]))
    snapshot.add(second, VAL, encode_pairs([(b"y", b"2")]), EXPIRE_MS)
    snapshot.add(second, VAL, encode_pairs([(b"in", b"db 3")]), None, 3)
    journal.finish_snapshot(snapshot)
    commit(NewRecord(first, VAL, encode_pairs([(b"whale", WHALE)])))
    commit(NewRecord(second, FLUSHDB, b"", None, 3))
    for number in range(9):  # fills frames and a segment; one of these is split over two frames
        commit(NewRecord(first, VAL, encode_pairs([(b"long%d" % number, bytes([97 + number]) * 200)])))
    commit(NewRecord(first, HOLD_OPCODES[0], HOLD))
    commit(NewRecord(first, HOLD_OPCODES[1], RELEASE))
    assert journal.make_sidecars(core_table(), 10) == 0
    journal.close()
    return dict(_tree(disk, FOLDER, ""))


def _tree(disk: SimulatedDisk, folder: str, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            found.append((f"{prefix}{name}", disk.read_file(path)))
        except IsADirectoryError:
            found += _tree(disk, path, f"{prefix}{name}/")
    return found


def golden_files() -> dict[str, bytes]:
    """Every golden file, by its path below this folder."""
    return single_files() | link_files() | {f"directory/{path}": data for path, data in directory_files().items()}


def write_files(folder: Path, *, overwrite: bool) -> list[str]:
    """Make the files; returns the paths of those that differ and were left alone."""
    refused = []
    for name, data in golden_files().items():
        path = folder / name
        if path.exists() and path.read_bytes() != data and not overwrite:
            refused.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return refused


if __name__ == "__main__":
    different = write_files(GOLDEN, overwrite="--overwrite" in sys.argv[1:])
    for name in different:
        print(f"{name} differs from what this version writes; --overwrite replaces it")
    sys.exit(1 if different else 0)
