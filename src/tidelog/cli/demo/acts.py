"""What the demo shows, one function an act. Each leaves the data directory closed for the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Final

from tidelog.cli.demo.bank import ACCOUNTS, CLIENTS, SHARD_COUNT, Bank
from tidelog.cli.demo.stage import Stage
from tidelog.cli.values import time_or_number
from tidelog.errors import Corruption
from tidelog.ids import ShardId, Ts
from tidelog.journal.inspection import FrameInfo, ShardInspection, locate
from tidelog.journal.layout import shard_folder
from tidelog.journal.operation import core_table
from tidelog.journal.repair import repair
from tidelog.journal.segment import journal_name
from tidelog.journal.verify import verify
from tidelog.system.disk import SystemDisk

_KILLS_MAX: Final = 4
_KILL_AFTER_S: Final = 0.005
"""After it began to write: the write takes some ten times as long."""


def write_and_measure(stage: Stage, folder: str, transfers: int) -> None:
    stage.act(f"Write {transfers:,} transfers between {ACCOUNTS} accounts on {SHARD_COUNT} shards")
    stage.say(
        f"fsync = always: a transfer counts when it is on the disk. {CLIENTS} clients wait for their replies; a thread "
        "fsyncs"
    )
    stage.say("while the next ones are gathered, so that one fsync serves many (group commit).")
    bank = Bank(folder)
    bank.open_accounts()
    run = bank.run(transfers)
    durable = bank.journal.writer.durable_ts
    stage.figure("transfers a second, all durable", f"{run.transfers / run.seconds:,.0f}")
    stage.figure("of these over several shards", f"{run.over_shards:,}")
    stage.figure("fsyncs", f"{run.fsyncs:,} (one for {run.transfers / run.fsyncs:.0f} transfers)")
    stage.figure("reply after", f"{run.latency_p50_ms:.1f} ms in the middle, {run.latency_p99_ms:.1f} ms for 99 %")
    stage.figure("durable up to", f"{time_or_number(durable)} (ts {durable})")
    stage.claim("everything that was written is durable", durable == bank.journal.writer.written_ts)
    _read_suffix(stage, bank)
    bank.close()


def _read_suffix(stage: Stage, bank: Bank) -> None:
    stage.act("Read back from a moment on")
    stage.say("A ts is a time, an order and a place to resume from: a reader goes to it by bisection over frames.")
    everything = [transaction.ts for transaction in bank.journal.reader_since(Ts(0)).read()]
    since = everything[len(everything) * 9 // 10]
    started = time.perf_counter()
    suffix = [transaction.ts for transaction in bank.journal.reader_since(since).read()]
    took_ms = (time.perf_counter() - started) * 1000
    stage.figure("since", f"{time_or_number(since)} (ts {since})")
    stage.figure("transactions read", f"{len(suffix):,} of {len(everything):,} in {took_ms:.0f} ms")
    stage.claim("they are exactly those after it, in order", suffix == [ts for ts in everything if ts > since])


def kill_and_recover(stage: Stage, folder: str) -> None:
    stage.act("Kill a process in the middle of writing, with SIGKILL")
    stage.say(
        "It tells how many transfers were acknowledged, then begins to write one large transaction over all shards."
    )
    stage.say("What has no valid mark on every shard never happened, and is cut. If the kill came too late: again.")
    for attempt in range(1, _KILLS_MAX + 1):
        pid, acknowledged, was_written = _run_and_kill(folder, attempt)
        started = time.perf_counter()
        bank = Bank(folder)
        took_ms = (time.perf_counter() - started) * 1000
        tail_bytes = bank.journal.recovered.tail_bytes
        stage.figure(f"process {pid}", f"killed after {acknowledged:,} transfers were acknowledged")
        stage.figure("recovered", f"{bank.receipts:,} transfers in {took_ms:.0f} ms; cut: {tail_bytes:,} bytes")
        stage.claim("every acknowledged transfer is there", bank.receipts >= acknowledged > 0)
        stage.claim(f"no transfer is there by half: all money adds up to {bank.money():,}", bank.is_whole())
        bank.close()
        if tail_bytes and not was_written:
            return
    stage.say(f"(All {_KILLS_MAX} kills came too early or too late to leave a tail.)")


def _run_and_kill(folder: str, seed: int) -> tuple[int, int, bool]:
    """Start the child and kill it; returns its process id, the last number it told, and whether that was too late."""
    command = [sys.executable, "-P", "-m", "tidelog.cli.demo.child", folder, str(seed)]
    told: list[str] = []
    # In a session of its own: Ctrl-C is for us, and we end the child.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                told.append(line.strip())
                if told[-1] == "writing":
                    time.sleep(_KILL_AFTER_S)
                    break
        finally:
            os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.read().split()
        return child.pid, max((int(word) for word in told if word.isdecimal()), default=0), "written" in told


def snapshot_and_erase(stage: Stage, folder: str) -> None:
    stage.act("Take a snapshot, erase the history that it covers, start from it")
    bank = Bank(folder)
    before, size_before = dict(bank.state), _bytes_in(folder)
    writer = bank.journal.begin_snapshot()
    if writer is None:
        stage.claim("a snapshot of this moment can be taken", False)
        return
    for key, value in bank.state.items():
        record = bank.record_of(key, value)
        writer.add(record.shard, record.opcode, record.payload)
    snapshot = bank.journal.finish_snapshot(writer)
    erased = bank.journal.erase()
    bank.close()
    stage.figure("snapshot", f"{snapshot.path.rpartition('/')[2]}, {snapshot.size(SystemDisk()):,} bytes")
    stage.figure("erased", f"{len(erased)} segments, {sum(segment.size for segment in erased):,} bytes")
    stage.figure("the directory", f"{size_before:,} bytes before, {_bytes_in(folder):,} now")
    stage.claim("there was something to erase", bool(erased))
    bank = Bank(folder)
    is_restored = bank.journal.recovered.snapshot is not None and bank.state == before
    stage.claim(f"a start from the snapshot has the same state, all {len(before):,} keys", is_restored)
    bank.close()


def _bytes_in(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def flip_a_bit(stage: Stage, folder: str, transfers: int) -> None:
    stage.act("Flip one bit in the middle of the journal")
    bank = Bank(folder)
    snapshot = bank.journal.recovered.snapshot
    bank.run(transfers)
    receipts = bank.receipts
    bank.close()
    assert snapshot is not None
    shard = ShardId(1)
    frame = _frame_after(folder, shard, snapshot.point.lsns[shard])
    path = f"{shard_folder(folder, shard)}/{journal_name(frame.segment)}"
    position = frame.position + frame.used_bytes // 2
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    stage.figure("flipped", f"bit 4 of byte {position:,} in frame {frame.frame} of {path.removeprefix(folder + '/')}")
    report = verify(SystemDisk(), folder, core_table())
    for problem in report.problems:
        stage.figure("verify says", str(problem).replace(f"{folder}/", ""))
    found = any((problem.path, problem.frame) == (path, frame.frame) for problem in report.problems)
    stage.claim("verify finds it, and names the file and the frame", found)
    try:
        Bank(folder).close()
    except Corruption as error:
        refused = (error.path, error.frame) == (path, frame.frame)
    else:
        refused = False
    stage.claim("a start refuses, rather than going on without what is damaged", refused)
    _repair(stage, folder, receipts)


def _frame_after(folder: str, shard: ShardId, lsn: int) -> FrameInfo:
    """A frame in the middle of what came after an lsn, sealed."""
    disk = SystemDisk()
    inspection = ShardInspection(disk, locate(disk, folder), shard)
    sealed = [frame for frame in inspection.frames() if frame.checksum == "ok" and (frame.lsn or 0) > lsn]
    inspection.close()
    return sealed[len(sealed) // 2]


def _repair(stage: Stage, folder: str, receipts: int) -> None:
    stage.act("Repair: back to the newest point that is whole; what is cut is set aside")
    report = repair(SystemDisk(), folder)
    for action in report.actions:
        stage.say(action.replace(f"{folder}/", ""))
    stage.figure("history ends at", f"{time_or_number(report.last_ts)} (ts {report.last_ts})")
    aside = report.set_aside or ""
    stage.claim(f"what was cut is in {os.path.basename(aside) or 'no folder'}", os.path.isdir(aside))
    stage.claim("verify finds nothing any more", verify(SystemDisk(), folder, core_table()).is_sound)
    bank = Bank(folder)
    stage.figure("transfers lost", f"{receipts - bank.receipts:,} of {receipts:,}")
    stage.claim(f"the rest is whole: {bank.money():,} in all accounts", bank.is_whole() and bank.receipts < receipts)
    bank.close()


def say_what_next(stage: Stage, folder: str, *, kept: bool) -> None:
    stage.act("What to try next")
    if not kept:
        stage.say("bin/demo --keep leaves the directory, for these to look at:")
    for command in (
        f"ls {folder}",
        f"show {folder} --payload --limit 20",
        f"show {folder} --payload --key account:7 --no-control --json",
        f"verify {folder}",
    ):
        stage.say(f"bin/tidelog journal {command}")
