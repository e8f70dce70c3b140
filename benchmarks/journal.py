"""The journal beside the raw disk: how much of a plain file write is left once every byte is framed and proved.

    python -m benchmarks.journal [--records N] [--rounds N] [--folder DIR] [--json]

Goals, on one core:  append of 100-byte payloads       600,000 records/s
                     append of 10-KB payloads          0.6 of the raw write
                     scan of headers                   4 times as fast as full decode

The peer is the same bytes through one plain file: what the journal made is written again in chunks of the same size
with pwrite(2) into a fresh file. Rounds alternate between the two and the median counts, because machines are noisy.
Nothing is fsynced on either side (`fsync = never`): that is the disk's speed, not ours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import record
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import CRC_BYTES, decode_header
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.layout import shard_folder
from tidelog.journal.merge import JournalReader
from tidelog.journal.operation import VAL, core_table, encode_pairs
from tidelog.journal.source import ShardSource
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

SHARD = ShardId(0)


def payloads(size: int, count: int) -> list[bytes]:
    """`val` payloads of about `size` bytes over many keys."""
    value = os.urandom(size)
    made = []
    for number in range(count):
        key = b"key:%08d" % number
        made.append(encode_pairs([(key, value[: size - len(key) - 4])]))
    return made


def open_journal(folder: str) -> Journal:
    return Journal.open(
        SystemDisk(),
        folder,
        SystemClock(),
        Settings(policy=FsyncPolicy.NEVER),
        apply=lambda _transaction, _payload_of: None,
        new_epoch_id=lambda: 1,
    )


def timed(work: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def append(journal: Journal, load: list[bytes], per_batch: int) -> int:
    """Append every payload as a transaction of its own, a batch per cycle."""
    writer, next_ts = journal.writer, journal.hlc.next
    append_one = writer.append_one
    for start in range(0, len(load), per_batch):
        # As in the server, a turn of the loop reads the clock once and counts up from there.
        ts = next_ts()
        for payload in load[start : start + per_batch]:
            ts = Ts(ts + 1)
            append_one(SHARD, ts, VAL, payload)
        journal.hlc.restore(ts)
        writer.write()
    return len(load)


def raw_write(path: str, size: int, chunk_bytes: int) -> int:
    """The same bytes, chunk by chunk, into one plain file."""
    chunk = os.urandom(chunk_bytes)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        for at in range(0, size, chunk_bytes):
            os.pwrite(file, chunk[: size - at], at)
    finally:
        os.close(file)
    return size


def source_of(folder: str, journal: Journal) -> ShardSource:
    return ShardSource(SystemDisk(), shard_folder(folder, SHARD), journal.meta.geometry, SHARD)


def scan_headers(folder: str, journal: Journal) -> int:
    """Every header of every sealed frame, checksums verified, payloads untouched."""
    source = source_of(folder, journal)
    frame_bytes = journal.meta.geometry.frame_bytes
    count = 0
    for segment in source.segments():
        for start in range(0, source.size(segment) - frame_bytes + 1, frame_bytes):
            data = source.sealed_frame(segment, start)
            for _ in record.skim(data, decode_header(data).size, frame_bytes - CRC_BYTES):
                count += 1
    source.close()
    return count


def decode_all(folder: str, journal: Journal) -> int:
    """Everything as a loader sees it: whole transactions, each operation decoded."""
    table = core_table()
    geometry, ends = journal.meta.geometry, journal.writer.visible.ends
    reader = JournalReader(SystemDisk(), folder, geometry, 1, lambda: ends)
    reader.seek_lsns([Lsn(0)])
    count = 0
    for transaction in reader.read():
        for part in transaction.parts:
            for found in part.records:
                table.decode(found.opcode, found.payload, None)
                count += 1
    reader.close()
    return count


def journal_bytes(folder: str) -> int:
    inner = shard_folder(folder, SHARD)
    return sum(os.path.getsize(f"{inner}/{name}") for name in os.listdir(inner))


def run(base: str, count: int, rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size, number, per_batch in ((100, count, 1000), (10_000, max(count // 20, 100), 100)):
        load = payloads(size, number)
        ours, raw, scans, decodes = [], [], [], []
        written = records = 0
        for round_number in range(rounds):
            folder = f"{base}/journal-{size}-{round_number}"
            journal = open_journal(folder)
            seconds, records = timed(lambda: append(journal, load, per_batch))  # noqa: B023
            ours.append(seconds)
            written = journal_bytes(folder)
            chunk = written * per_batch // number
            seconds, _ = timed(lambda: raw_write(f"{base}/raw", written, chunk))  # noqa: B023
            raw.append(seconds)
            os.remove(f"{base}/raw")
            scan_seconds, scanned = timed(lambda: scan_headers(folder, journal))  # noqa: B023
            decode_seconds, decoded = timed(lambda: decode_all(folder, journal))  # noqa: B023
            scans.append(scan_seconds / max(scanned, 1))
            decodes.append(decode_seconds / max(decoded, 1))
            journal.close()
            shutil.rmtree(folder)
        append_s, raw_s = statistics.median(ours), statistics.median(raw)
        scan_s, decode_s = statistics.median(scans), statistics.median(decodes)
        rows += [
            row(f"append {size} B", records / append_s, written / append_s, "raw write", raw_s / append_s),
            row(f"scan headers {size} B", 1 / scan_s, size / scan_s, "full decode", decode_s / scan_s),
            row(f"full decode {size} B", 1 / decode_s, size / decode_s, "append", append_s / records / decode_s),
        ]
    return rows


def row(name: str, rate: float, bytes_rate: float, peer: str, ratio: float) -> dict[str, object]:
    return {
        "benchmark": name,
        "records_per_s": round(rate),
        "mb_per_s": round(bytes_rate / 1e6, 1),
        "peer": peer,
        "ratio": round(ratio, 2),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The journal beside the raw disk.")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many of 100 bytes (a 20th of 10 KB)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to write (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    base = tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.folder)
    try:
        rows = run(base, options.records, options.rounds)
    finally:
        shutil.rmtree(base)
    for found in rows:
        if options.json:
            sys.stdout.write(json.dumps(found) + "\n")
        else:
            sys.stdout.write(
                f"{found['benchmark']:<22} {found['records_per_s']:>12,} records/s {found['mb_per_s']:>9,} MB/s   "
                f"{found['ratio']:>6} x {found['peer']}\n"
            )


if __name__ == "__main__":
    main()
