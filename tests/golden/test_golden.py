"""The bytes of the format: written exactly so, and read back, in both directions.

The files under `tests/golden/` were made by `tests/golden/make.py`. So that they do not only prove that we agree with
ourselves, the most important ones are also spelled out here by hand, with a CRC32C worked out bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.golden.make import (
    EPOCH,
    EXPIRE_MS,
    FOLDER,
    GOLDEN,
    HOLDER,
    MADE_US,
    SET_FOO_BAR,
    SUMMARY,
    TS_RELATIVE,
    WHALE,
    directory_files,
    golden_files,
    write_files,
)
from tests.journal.machine import State, apply_to
from tests.replication.exchange import EXCHANGE, decoded
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal import blob, control, frame, operation, record, sidecar
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import DEL, FLUSHDB, START, VAL, decode_pairs
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import BLOB, EXPIRE, FINISH, NEXT_CONT, PADDED, TS, Header
from tidelog.journal.retention import Holder
from tidelog.replication.kinds import LinkSide
from tidelog.replication.wire import PieceDecoder
from tidelog.store.store import Store
from tidelog.store.type_table import operation_table
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hold import Release, SetHold

FILES: Final = golden_files()
OPENED: Final = SimulatedClock()
EPOCH_ID: Final = 0x1234_5678_9ABC_DEF0

# --- spelled out by hand ----------------------------------------------------------------------------------------

BY_HAND: Final = {
    # val, no flags, 9 bytes (flit 9 << 1 | 1): 1 pair, a key of 3, a value of 3, "foo" "bar". The document's 12 bytes.
    "record-plain.bin": "01 00 13  03 07 07 66 6f 6f 62 61 72",
    # The same with flag TS and 0x01020304, little-endian: 16 bytes.
    "record-ts.bin": "01 01 13  04 03 02 01  03 07 07 66 6f 6f 62 61 72",
    # Flag PADDED: padding_len 5 after the payload's, 5 zero bytes at the end.
    "record-padded.bin": "01 02 13 05  03 07 07 66 6f 6f 62 61 72  00 00 00 00 00",
    # Flag EXPIRE: 1,800,000,000,000 ms in 8 bytes.
    "record-expire.bin": "01 04 13  00 50 5c 18 a3 01 00 00  03 07 07 66 6f 6f 62 61 72",
    # All of them: padding_len, ts, expire in this order.
    "record-all-flags.bin": "01 3f 13 01 04 03 02 01 00 50 5c 18 a3 01 00 00  03 07 07 66 6f 6f 62 61 72  00",
    # The document's flushdb: a payload_len of zero is 0x01.
    "record-flushdb.bin": "03 00 01",
    # del: 3 keys of 3, 0 and 4 bytes.
    "record-del.bin": "02 00 17  07 07 01 09 66 6f 6f 71 75 75 78",
    # start: ts in 8 bytes, 2 shards: 2 and 4.
    "record-start.bin": "04 00 17  08 07 06 05 04 03 02 01 05 05 09",
    # hold: a name, five numbers of 8 bytes (ts, moved, epoch, seen, data_ts), and no reason for having been let go.
    "record-hold.bin": "80 00 73  07 1b 51 01  66 65 65 64 20 33 3a 72 65 61 64 65 72  d0 47 1e 18 24 0a 06 00"
    "  00 40 1e 18 24 0a 06 00  ef cd ab 89 67 45 23 01  e8 43 1e 18 24 0a 06 00  b0 76 1e 18 24 0a 06 00",
    # release: data_ts, then two names.
    "record-release.bin": "81 00 39  07 11 11 11  b0 76 1e 18 24 0a 06 00  66 65 65 64 3a 6f 6c 64"
    "  66 65 65 64 20 30 3a 6e",
    # A reference: blob file 9, position 4096, 1 MiB, crc.
    "record-blob.bin": "01 20 39  09 00 00 00 00 00 00 00  00 10 00 00 00 00 00 00  00 00 10 00 00 00 00 00"
    "  ef be ad de",
    # "DJ0", CHECKSUM, lsn 10, ts.
    "frame-head.bin": "44 4a 30 02  0a 00 00 00 00 00 00 00  08 07 06 05 04 03 02 01",
    # CHECKSUM | CONTINUES: prev_record_offset 0x3f0 follows.
    "frame-head-continued.bin": "44 4a 30 03  0a 00 00 00 00 00 00 00  08 07 06 05 04 03 02 01  f0 03 00 00",
    # select: database 5 as a flit.
    "select.bin": "f1 00 03  0b",
    # epoch: 40 bytes: id, an lsn per shard, last ts, first ts.
    "epoch.bin": "f3 00 51  ef cd ab 89 67 45 23 01  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00"
    "  bb aa 00 00 00 00 00 00  cc aa 00 00 00 00 00 00",
    # A frame's head (lsn 99), `set foo bar` with ts 0 and FINISH, and a mark of 44 bytes: cycle 7, last ts, synced
    # cycle 6, ends 100 and 3, and the CRC32C of all of this before it.
    "batch-with-mark.bin": "44 4a 30 02  63 00 00 00 00 00 00 00  55 44 33 22 11 00 00 00"
    "  01 11 13 00 00 00 00 03 07 07 66 6f 6f 62 61 72"
    "  f0 00 59  07 00 00 00 00 00 00 00  55 44 33 22 11 00 00 00  06 00 00 00 00 00 00 00"
    "  64 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00  e0 e6 29 68",
    # A piece of a link: 9 bytes follow before the CRC32C of all before it: kind 0x22 and a time.
    "link-ping.bin": "09 00 00 00  22  08 07 06 05 04 03 02 01  11 65 a3 a2",
    # Kind 0x10: a part with flag LAST, shard 1, its ts, lsn 99, one record: val, TS and FINISH, database 0, 9 bytes.
    "link-transaction.bin": "27 00 00 00  10  01  01 00  55 44 33 22 11 00 00 00  63 00 00 00 00 00 00 00  01 00"
    "  01 11 00 00 09 00 00 00  03 07 07 66 6f 6f 62 61 72  af 2d bb df",
}


def crc32c_bit_by_bit(data: bytes) -> int:
    """Castagnoli, reflected: polynomial 0x82F63B78, begun with and inverted by all ones."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_reference_crc_is_castagnoli() -> None:
    assert crc32c_bit_by_bit(b"123456789") == 0xE3069283  # the check value of the catalogue of CRCs


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_are_as_spelled_out_by_hand(name: str) -> None:
    assert FILES[name].hex(" ") == bytes.fromhex(BY_HAND[name]).hex(" ")


def test_the_crc_of_a_mark_covers_the_frame_from_its_start() -> None:
    data = FILES["batch-with-mark.bin"]
    assert int.from_bytes(data[-4:], "little") == crc32c_bit_by_bit(data[:-4])


@pytest.mark.parametrize("name", ["link-ping.bin", "link-transaction.bin"])
def test_the_crc_of_a_piece_covers_its_length_and_kind(name: str) -> None:
    data = FILES[name]
    assert int.from_bytes(data[-4:], "little") == crc32c_bit_by_bit(data[:-4])


def test_set_foo_bar_has_12_bytes_without_a_ts_and_16_with_one() -> None:
    assert len(FILES["record-plain.bin"]) == 12
    assert len(FILES["record-ts.bin"]) == 16


# --- this version writes what lies there ------------------------------------------------------------------------


def golden_paths() -> list[str]:
    found = [path for path in GOLDEN.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}]
    paths = [str(path.relative_to(GOLDEN)) for path in found]
    return sorted(path for path in paths if not path.startswith("earlier-directory/"))


def test_every_golden_file_is_known_and_there() -> None:
    assert golden_paths() == sorted(FILES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_this_version_writes_the_golden_bytes(name: str) -> None:
    assert FILES[name].hex(" ") == (GOLDEN / name).read_bytes().hex(" ")


def test_making_golden_files_overwrites_only_when_asked(tmp_path: Path) -> None:
    assert write_files(tmp_path, overwrite=False) == []
    (tmp_path / "select.bin").write_bytes(b"of an older version")

    assert write_files(tmp_path, overwrite=False) == ["select.bin"]
    assert (tmp_path / "select.bin").read_bytes() == b"of an older version"
    assert write_files(tmp_path, overwrite=True) == []
    assert (tmp_path / "select.bin").read_bytes() == FILES["select.bin"]


# --- this version reads what lies there -------------------------------------------------------------------------


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


HEADERS: Final = {
    "record-plain.bin": Header(VAL, 0, -1, -1, 0, 3, 12, 12),
    "record-ts.bin": Header(VAL, TS, TS_RELATIVE, -1, 0, 7, 16, 16),
    "record-padded.bin": Header(VAL, PADDED, -1, -1, 0, 4, 13, 18),
    "record-expire.bin": Header(VAL, EXPIRE, -1, EXPIRE_MS, 0, 11, 20, 20),
    "record-next-cont.bin": Header(VAL, NEXT_CONT, -1, -1, 0, 3, 12, 12),
    "record-finish.bin": Header(VAL, FINISH, -1, -1, 0, 3, 12, 12),
    "record-blob.bin": Header(VAL, BLOB, -1, -1, 0, 3, 31, 31),
    "record-all-flags.bin": Header(VAL, 0x3F, TS_RELATIVE, EXPIRE_MS, 0, 16, 25, 26),
    "record-long.bin": Header(VAL, 0, -1, -1, 0, 4, 309, 309),
    "record-del.bin": Header(DEL, 0, -1, -1, 0, 3, 14, 14),
    "record-flushdb.bin": Header(FLUSHDB, 0, -1, -1, 0, 3, 3, 3),
    "record-start.bin": Header(START, 0, -1, -1, 0, 3, 14, 14),
    "record-hold.bin": Header(0x80, 0, -1, -1, 0, 3, 60, 60),
    "record-release.bin": Header(0x81, 0, -1, -1, 0, 3, 31, 31),
    "select.bin": Header(control.SELECT, 0, -1, -1, 0, 3, 4, 4),
    "epoch.bin": Header(control.EPOCH, 0, -1, -1, 0, 3, 43, 43),
}


@pytest.mark.parametrize("name", HEADERS)
def test_golden_records_are_walked(name: str) -> None:
    data = golden(name)
    assert list(record.walk(data, 0, len(data))) == [HEADERS[name]]


_TABLE: Final = operation_table()
PAYLOADS: Final[dict[str, tuple[Callable[[bytes], object], object]]] = {
    "record-plain.bin": (decode_pairs, [(b"foo", b"bar")]),
    "record-padded.bin": (decode_pairs, [(b"foo", b"bar")]),
    "record-all-flags.bin": (decode_pairs, [(b"foo", b"bar")]),
    "record-long.bin": (decode_pairs, [(b"k", bytes(300))]),
    "record-del.bin": (operation.decode_items, [b"foo", b"", b"quux"]),
    "record-start.bin": (operation.decode_start, operation.Start(Ts(0x0102030405060708), [ShardId(2), ShardId(4)])),
    "record-blob.bin": (blob.decode_reference, blob.BlobReference(Lsn(9), 4096, 1 << 20, 0xDEADBEEF)),
    "record-hold.bin": (partial(_TABLE.decode, 0x80, expire_ms=None), SetHold(HOLDER, Ts(MADE_US + 14_000))),
    "record-release.bin": (
        partial(_TABLE.decode, 0x81, expire_ms=None),
        Release(["feed:old", "feed 0:n"], Ts(MADE_US + 14_000)),
    ),
    "select.bin": (control.decode_select, 5),
    "epoch.bin": (partial(control.decode_epoch, control.EPOCH), EPOCH),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_golden_payloads_are_decoded(name: str) -> None:
    decode, expected = PAYLOADS[name]
    header = HEADERS[name]
    assert decode(golden(name)[header.payload : header.payload_end]) == expected


def test_golden_frame_heads_are_decoded() -> None:
    lsn, ts = Lsn(0x0A), Ts(0x0102030405060708)
    assert frame.decode_header(golden("frame-head.bin")) == frame.FrameHeader(2, lsn, ts, None, 20)
    assert frame.decode_header(golden("frame-head-continued.bin")) == frame.FrameHeader(3, lsn, ts, 0x3F0, 24)


def test_a_golden_mark_is_decoded() -> None:
    data = golden("batch-with-mark.bin")
    *_, mark = record.walk(data, frame.HEADER_BYTES, len(data))
    assert mark.opcode == control.MARK
    assert control.decode_mark(data[mark.payload : mark.payload_end]) == control.Mark(
        Cycle(7), Ts(0x1122334455), Cycle(6), (Lsn(100), Lsn(3)), 0x6829E6E0
    )


def test_a_golden_sidecar_entry_is_decoded() -> None:
    # Entries count from 0 and this one is of frame 3, so three others go before it.
    before = [sidecar.encode_summary(SUMMARY._replace(frame=index)) for index in range(3)]
    found = sidecar.decode_summaries(b"TLSC" + b"".join(before) + golden("sidecar-entry.bin"))
    assert found[3] == SUMMARY


@pytest.mark.parametrize("side", LinkSide)
def test_a_golden_exchange_of_a_leader_and_a_follower_is_decoded(side: LinkSide) -> None:
    data = golden(f"link-from-{side.value}.bin")
    assert decoded(PieceDecoder(side), data) == list(EXCHANGE[side])


# --- the data directory -----------------------------------------------------------------------------------------


def golden_disk(name: str = "directory") -> SimulatedDisk:
    """The golden directory on a disk, with the folder that git does not keep because it is empty."""
    disk = SimulatedDisk()
    root = GOLDEN / name
    disk.make_folder(FOLDER)
    for path in sorted(root.rglob("*")):
        place = f"{FOLDER}/{path.relative_to(root).as_posix()}"
        if path.is_dir():
            disk.make_folder(place)
        else:
            disk.write_file(place, path.read_bytes())
    return disk


EXPECTED_STATE: Final[State] = {
    (0, 0, b"foo"): b"bar",
    (0, 0, b"x"): b"1",
    (0, 0, b"whale"): WHALE,
    (1, 0, b"y"): b"2",
    **{(0, 0, b"long%d" % number): bytes([97 + number]) * 200 for number in range(9)},
}


class Opened:
    """The golden directory, opened."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.state: State = {}
        self.expiries: list[int] = []
        self.journal = Journal.open(disk, FOLDER, OPENED, Settings(), apply=self._apply, new_epoch_id=lambda: 1)

    def _apply(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        apply_to(self.state, transaction, payload_of)
        self.expiries += [each.expire_ms for part in transaction.parts for each in part.records if each.expire_ms >= 0]


@pytest.mark.parametrize(
    ("name", "first_ts", "lsns"), [("directory", MADE_US, (15, 4)), ("earlier-directory", 0, (13, 4))]
)
def test_the_golden_directory_is_recovered(name: str, first_ts: int, lsns: tuple[int, int]) -> None:
    opened = Opened(golden_disk(name))
    assert opened.state == EXPECTED_STATE
    assert opened.expiries == [EXPIRE_MS]
    journal = opened.journal
    assert journal.meta.geometry == Geometry(1024, 2)
    assert journal.meta.slots == ((0, 8191), (8192, 16383))
    assert journal.recovered.lsns == lsns
    assert journal.recovered.tail_bytes == 0
    assert journal.hlc.was_clean
    assert journal.epochs == [control.Epoch(EPOCH_ID, (Lsn(0), Lsn(0)), Ts(0), Ts(first_ts))]
    made_us, drawn = (MADE_US, EPOCH_ID) if name == "directory" else (OPENED.wall_us(), 1)
    assert journal.meta.database_id == f"{made_us:016x}{drawn:016x}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("directory", HOLDER), ("earlier-directory", Holder("reader", HOLDER.ts, MADE_US + 14_000))],
)
def test_the_holds_of_the_golden_directory_are_taken_over(name: str, expected: Holder) -> None:
    disk = golden_disk(name)
    for _ in range(2):
        store = Store.open(disk, FOLDER, OPENED, Settings(), lambda: 1, Random(1))
        assert store.holds.by_name == {expected.name: expected}
        assert store.journal.holders.all() == [expected]
        assert not disk.exists(f"{FOLDER}/holders.json")
        disk.kill()


def test_the_golden_directory_is_recovered_without_its_snapshot() -> None:
    disk = golden_disk()
    (snapshot,) = disk.list(f"{FOLDER}/snapshots")
    disk.rename(f"{FOLDER}/snapshots/{snapshot}", f"{FOLDER}/moved-away")

    assert Opened(disk).state == EXPECTED_STATE


def test_the_transactions_of_the_golden_directory_are_read() -> None:
    journal = Opened(golden_disk()).journal
    reader = journal.reader_since(Ts(0))
    found = list(reader.read())
    assert [transaction.ts - 1_700_000_000_000_000 for transaction in found] == list(range(1000, 17000, 1000))
    assert [[part.shard for part in transaction.parts] for transaction in found][:5] == [[0], [0, 1], [1], [0], [1]]
    second = [(each.opcode, each.database) for part in found[1].parts for each in part.records]
    assert second == [(START, 0), (VAL, 0), (VAL, 0)]
    assert [(each.opcode, each.database, each.lsn) for each in found[2].parts[0].records] == [(VAL, 3, 1), (DEL, 0, 2)]
    whale = found[3].parts[0]
    assert whale.records[0].flags & BLOB
    assert decode_pairs(reader.payload_of(whale, whale.records[0])) == [(b"whale", WHALE)]
    assert (found[4].parts[0].records[0].opcode, found[4].parts[0].records[0].database) == (FLUSHDB, 3)


def test_the_golden_directory_holds_what_it_is_for() -> None:
    files = directory_files()
    first = files["shard-0/journal-0000000000000000.dj0"]
    assert frame.decode_header(first, 1024).prev_record_offset == 0x358, "a record is split over two frames"
    split = next(record.walk(first, 0x358, 1020))
    assert split.flags == TS | NEXT_CONT
    assert next(record.walk(first, 1024 + 24, 2044)).flags == FINISH
    assert "shard-0/journal-000000000000000a.dj0" in files, "the first segment is full"
    assert SET_FOO_BAR in first
