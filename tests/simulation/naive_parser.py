"""A second, naive reader of the journal's files, written from the format's description alone.

It shares no code with `tidelog.journal`, takes whole files at a time and checks everything that it comes across, so
that the writer and the reader of the package cannot agree on a misreading of the format.

    frame   "DJ0" | flags | lsn 8 | ts 8 | [prev_record_offset 4] | records | zeros | crc32c 4
    record  opcode | flags | payload_len flit | [padding_len] | [ts 4] | [expire 8] | payload | padding

It reads files that end after a mark, as a recovery or a clean stop leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crc32c import crc32c

from tests.simulation.ledger import PlainRecord


class NotTheFormat(AssertionError):
    """The files are not what the format's description says."""


@dataclass
class ParsedShard:
    """What one shard's files hold."""

    first_lsn: int = 0
    """The name of the first file."""
    next_lsn: int = 0
    transactions: list[tuple[int, list[PlainRecord]]] = field(default_factory=list)
    """ts and records, of every transaction that begins in these files."""
    vectors: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    """Of each mark: cycle, last ts, end lsns."""
    split_count: int = 0
    blob_count: int = 0


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def flit(data: bytes, at: int) -> tuple[int, int]:
    """The trailing zero bits of the first byte say how many bytes follow."""
    zeros = 0
    while zeros < 8 and not data[at] >> zeros & 1:
        zeros += 1
    if zeros == 8:
        return number(data[at + 1 : at + 9]), at + 9
    return number(data[at : at + 1 + zeros]) >> (zeros + 1), at + 1 + zeros


def expect(condition: bool, problem: str) -> None:
    if not condition:
        raise NotTheFormat(problem)


def parse_shard(files: dict[str, bytes], frame_bytes: int, shard: int, shard_count: int) -> ParsedShard:
    """Parse the files of one shard's folder, by name."""
    names = sorted(name for name in files if name.startswith("journal-"))
    shard_parser = _Parser(files, frame_bytes, shard, shard_count)
    if names:
        first = int(names[0][8:24], 16)
        shard_parser.result.first_lsn = shard_parser.lsn = first
    for index, name in enumerate(names):
        expect(len(name) == 28 and name.endswith(".dj0"), f"{name} is not a name of a segment")
        expect(int(name[8:24], 16) == shard_parser.lsn, f"{name}, but the next lsn is {shard_parser.lsn}")
        shard_parser.parse_file(name, is_last=index == len(names) - 1)
    expect(shard_parser.head is None, "a record goes on after the last frame")
    expect(not shard_parser.open, "a transaction has no FINISH")
    shard_parser.result.next_lsn = shard_parser.lsn
    return shard_parser.result


class _Parser:
    """Goes through the files of a shard from the first byte to the last."""

    def __init__(self, files: dict[str, bytes], frame_bytes: int, shard: int, shard_count: int) -> None:
        self.files = files
        self.frame_bytes = frame_bytes
        self.shard = shard
        self.shard_count = shard_count
        self.result = ParsedShard()
        self.lsn = 0
        self.ts = 0
        self.database = 0
        self.head: tuple[int, int, int, int, int, bytes] | None = None
        """A record that goes on in the next frame: its offset in the frame, and what is known of it."""
        self.open: list[PlainRecord] | None = None
        """None: in a transaction whose beginning is gone."""

    def parse_file(self, name: str, *, is_last: bool) -> None:
        data = self.files[name]
        for start in range(0, len(data), self.frame_bytes):
            frame = data[start : start + self.frame_bytes]
            is_last_frame = is_last and start + self.frame_bytes >= len(data)
            where = f"{name} at {start}"
            self._parse_frame(frame, where, is_last_frame)

    def _parse_frame(self, frame: bytes, where: str, is_last: bool) -> None:
        expect(frame[:3] == b"DJ0", f"{where}: the magic is {frame[:3]!r}")
        flags = frame[3]
        expect(flags in (2, 3), f"{where}: flags {flags}")
        expect(number(frame[4:12]) == self.lsn, f"{where}: lsn {number(frame[4:12])}, expected {self.lsn}")
        base_ts = number(frame[12:20])
        at = 20
        if flags & 1:
            at = 24
            offset = number(frame[20:24])
            # The first frame that is left may go on with a record that was erased with the one before.
            expect(self.head is None or self.head[0] == offset, f"{where}: prev_record_offset {offset}")
        expect(bool(flags & 1) or self.head is None, f"{where}: a record should go on here")
        end = len(frame)
        if not is_last:
            end = self.frame_bytes - 4
            expect(len(frame) == self.frame_bytes, f"{where}: a short frame inside the journal")
            expect(crc32c(frame[:end]) == number(frame[end:]), f"{where}: the crc of the frame")
        self.ts, self.database = base_ts, 0
        skips_first = bool(flags & 1) and self.head is None
        mark_base = 0
        while at < end and frame[at]:
            opcode, at, is_mark = self._parse_record(frame, at, base_ts, mark_base, skips_first, where)
            skips_first = skips_first and opcode >= 0xF0
            if is_mark:
                mark_base = at
        if is_last:
            expect(mark_base == len(frame), f"{where}: the journal does not end after a mark")
        else:
            expect(not frame[at:end].strip(b"\0"), f"{where}: the padding is not zero")

    def _parse_record(
        self, frame: bytes, start: int, base_ts: int, mark_base: int, is_skipped: bool, where: str
    ) -> tuple[int, int, bool]:
        opcode, flags = frame[start], frame[start + 1]
        expect(not flags & 0xC0, f"{where}: reserved bits at {start}")
        size, at = flit(frame, start + 2)
        padding = 0
        if flags & 2:
            padding, at = frame[at], at + 1
        ts = None
        if flags & 1:
            ts, at = base_ts + number(frame[at : at + 4]), at + 4
        expire = -1
        if flags & 4:
            expire, at = number(frame[at : at + 8]), at + 8
        payload = frame[at : at + size]
        expect(len(payload) == size, f"{where}: a record at {start} runs past the end")
        end = at + size + padding
        if opcode >= 0xF0:
            self._parse_control(opcode, payload, frame, mark_base, at + size, where)
            return opcode, end, opcode == 0xF0
        if not is_skipped:
            self._take(opcode, flags, ts, expire, payload, start, where)
        return opcode, end, False

    def _parse_control(
        self, opcode: int, payload: bytes, frame: bytes, mark_base: int, payload_end: int, where: str
    ) -> None:
        if opcode == 0xF1:
            self.database, end = flit(payload, 0)
            expect(end == len(payload), f"{where}: a select of {len(payload)} bytes")
        elif opcode == 0xF0:
            expect(len(payload) == 8 * (3 + self.shard_count) + 4, f"{where}: a mark of {len(payload)} bytes")
            crc = number(payload[-4:])
            expect(crc32c(frame[mark_base : payload_end - 4]) == crc, f"{where}: the crc of a mark")
            numbers = [number(payload[i : i + 8]) for i in range(0, len(payload) - 4, 8)]
            cycle, last_ts, synced, *ends = numbers
            expect(synced < cycle, f"{where}: cycle {cycle} names {synced} as synced")
            expect(ends[self.shard] == self.lsn, f"{where}: a mark with ends {ends} at lsn {self.lsn}")
            self.result.vectors.append((cycle, last_ts, tuple(ends)))
        else:
            expect(opcode == 0xF3, f"{where}: opcode {opcode:#x}")
            expect(len(payload) == 8 * (3 + self.shard_count), f"{where}: an epoch of {len(payload)} bytes")

    def _take(
        self, opcode: int, flags: int, ts: int | None, expire: int, payload: bytes, start: int, where: str
    ) -> None:
        """A record of an operation, whole or in part."""
        if self.head is not None:
            _, lsn, head_opcode, database, expire, first_part = self.head
            expect(opcode == head_opcode and ts is None, f"{where}: the continuation at {start} is another record's")
            payload = first_part + payload
            self.head = None
            self.result.split_count += 1
        else:
            lsn, database = self.lsn, self.database
            self.lsn += 1
            if ts is not None:
                expect(not self.open, f"{where}: a transaction begins inside another at {start}")
                expect(ts >= self.ts, f"{where}: ts {ts} after {self.ts}")
                self.ts = ts
                self.open = []
            else:
                expect(self.open != [], f"{where}: the transaction at {start} begins without a ts")
            if flags & 8:
                self.head = (start, lsn, opcode, database, expire, payload)
                return
        if self.open is None:
            return
        if flags & 32:
            name = f"blob-{number(payload[:8]):016x}.bin"
            at, length = number(payload[8:16]), number(payload[16:24])
            blob = self.files[name][at : at + length]
            expect(len(blob) == length and crc32c(blob) == number(payload[24:28]), f"{where}: a blob in {name}")
            payload = blob
            self.result.blob_count += 1
        self.open.append((lsn, opcode, database, expire, payload))
        if flags & 16:
            self.result.transactions.append((self.ts, self.open))
            self.open = []
