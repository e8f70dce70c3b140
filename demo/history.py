"""What the demo shows of history, one function an act: old days are compressed on Spark, Spark answers a question over
all days, and the journal is verified, damaged and repaired."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from demo.processes import DemoProcess, tidelog_command
from demo.query import Answer, Place, answers_of, ask_ledger
from demo.scene import Scene
from demo.stage import Stage
from tidelog.cli.output.stdout import Cell, Column
from tidelog.cli.output.values import time_or_number
from tidelog.errors import EnvironmentFault
from tidelog.ids import ShardId
from tidelog.journal.inspection import FrameInfo, ShardInspection, locate
from tidelog.journal.layout import shard_folder
from tidelog.journal.operation import core_table
from tidelog.journal.repair import repair
from tidelog.journal.segment import journal_name
from tidelog.journal.verify import verify
from tidelog.system.disk import SystemDisk

HOT_DAYS: Final = 2
_JOB_S_MAX: Final = 180.0


def start_analyst(scene: Scene) -> DemoProcess:
    """Spark takes some seconds to start: it does so while days are compressed."""
    return scene.start("analyst", "demo.analyst", scene.server.url)


def compress(scene: Scene) -> dict[date, tuple[int, int]]:
    """Compress the old days by the real command; returns the bytes of each before and after."""
    stage, week = scene.stage, scene.week
    stage.act(f"Compress all but the last {HOT_DAYS} days on Spark")
    stage.say(f"bin/tidelog pipeline compress --url {scene.server.url} --older-than-days {HOT_DAYS}")
    arguments = "--url", scene.server.url, "--older-than-days", HOT_DAYS, "--json"
    old = [day for day in week.days if day < datetime.now(UTC).date() - timedelta(days=HOT_DAYS)]
    before_bytes = scene.stream_bytes(compressed=False, days=old)
    job = scene.start_command("compress", tidelog_command("pipeline", "compress", *arguments))
    status = job.wait(_JOB_S_MAX)
    if status != 0:
        raise EnvironmentFault(f"the job ended with status {status}: {job.complaint()}")
    streams = [line for line in job.told if line["kind"] == "stream"]
    [summary] = [line for line in job.told if line["kind"] == "summary"]
    sizes: dict[date, tuple[int, int]] = {}
    for line in streams:
        day = date.fromisoformat(line["day"])
        was, now = sizes.get(day, (0, 0))
        sizes[day] = was + line["event_bytes"], now + line["packed_bytes"]
    stage.figure("day streams compressed", f"{summary['streams']} with {summary['events']:,} events", summary["events"])
    packed = summary["packed_bytes"]
    stage.figure("events, before and after", f"{summary['event_bytes']:,} bytes -> {packed:,}", packed)
    after_bytes, ratio = scene.stream_bytes(compressed=True, days=old), summary["ratio"]
    in_memory = f"{before_bytes:,} bytes -> {after_bytes:,}: {ratio:.1f} times smaller"
    stage.figure("in the server's memory", in_memory, ratio)
    jobsets = {(cell.day, cell.queue, cell.jobset) for cell in week.cells if cell.day in old}
    done = {(date.fromisoformat(line["day"]), line["queue"], line["jobset"]) for line in streams}
    stage.claim(f"all {len(jobsets)} day streams of the {len(old)} old days are compressed", jobsets == done)
    stage.claim("they are smaller", packed < summary["event_bytes"] and after_bytes < before_bytes)
    stage.claim("a reader finds the same ids and bytes as before, over all days", scene.read_all() == week.seen)
    told = scene.feed_until_now()
    stage.claim(
        "the feed was told of it: so many batches came, so many hot days went",
        (sum(told["compressed"].values()), sum(told["gone"].values())) == (summary["batches"], len(done)),
    )
    return sizes


def ask(scene: Scene, analyst: DemoProcess, sizes: dict[date, tuple[int, int]]) -> None:
    """One query over all days, checked against the ledger."""
    stage = scene.stage
    stage.act("Ask Spark about hot and compressed days together")
    analyst.say("{}")
    analyst.wait_until(lambda: len(analyst.lines) > 1, "an answer", _JOB_S_MAX)
    started, answered = analyst.told
    answers, compressed = answers_of(answered["rows"])
    expected = ask_ledger(scene.week)
    took = f"started in {started['start_s']:.1f} s (while days were compressed), answered in {answered['took_s']:.1f} s"
    stage.figure("Spark", took, answered["took_s"])
    stage.claim("it read the old days compressed, and the others hot", compressed == set(sizes))
    stage.claim(
        f"all {len(expected)} rows of its answer are what the ledger says: events, failures, p95 of run times",
        answers.keys() == expected.keys() and all(answers[place].agrees(expected[place]) for place in expected),
    )
    _show_days(stage, scene, answers, sizes)
    _show_jobsets(stage, answers)


_FIGURES: Final = (
    Column("events", right=True),
    Column("failed", right=True),
    Column("jobs ended", right=True),
    Column("p95 run, s", right=True),
)


def _figures(answer: Answer) -> list[Cell]:
    return [answer.events, answer.failed, answer.runs, None if answer.p95_ms is None else f"{answer.p95_ms / 1000:.1f}"]


def _show_days(stage: Stage, scene: Scene, answers: dict[Place, Answer], sizes: dict[date, tuple[int, int]]) -> None:
    columns = (
        Column("day", style="bold"),
        Column("state"),
        *_FIGURES,
        Column("bytes", right=True),
        Column("packed", right=True),
        Column("ratio", right=True),
    )
    rows: list[list[Cell]] = []
    for day in scene.week.days:
        if (day, None, None) in answers:
            was, now = sizes.get(day, (None, None))
            ratio = f"{was / now:.1f}" if was and now else None
            state = "compressed" if day in sizes else "hot"
            rows.append([day.isoformat(), state, *_figures(answers[day, None, None]), was, now, ratio])
    was, now = (sum(each[index] for each in sizes.values()) for index in (0, 1))
    total = answers.get((None, None, None))
    if total is not None and now:
        rows.append(["all", None, *_figures(total), was, now, f"{was / now:.1f}"])
    stage.table("By day, from Spark", columns, rows, total=True)


def _show_jobsets(stage: Stage, answers: dict[Place, Answer]) -> None:
    columns = Column("queue", style="bold"), Column("jobset", style="bold"), *_FIGURES
    rows: list[list[Cell]] = [
        [queue, jobset, *_figures(answer)]
        for (day, queue, jobset), answer in sorted(answers.items(), key=str)
        if day is None and queue is not None
    ]
    stage.table("By job set, from Spark", columns, rows, total=False)


# --- the journal ------------------------------------------------------------------------------------------------------


def examine_journal(scene: Scene) -> None:
    """Stop the server; its journal is sound. In a copy, one flipped bit is found, and repaired."""
    stage, data = scene.stage, scene.server.data
    stage.act("Stop the server, verify its journal, then flip one bit in a copy of it")
    stage.claim("the server stopped in order", scene.server.stop() == 0)
    disk = SystemDisk()
    begun_s = time.monotonic()
    report = verify(disk, str(data), core_table())
    took_s = time.monotonic() - begun_s
    stage.figure("the data directory", f"{_bytes_in(data):,} bytes, verified in {took_s:.1f} s", _bytes_in(data))
    stage.claim("every checksum, mark and transaction of the whole week is sound", report.is_sound)
    copy = scene.folder / "copy"
    shutil.copytree(data, copy)
    frame = _middle_frame(copy)
    path = Path(shard_folder(str(copy), ShardId(0))) / journal_name(frame.segment)
    position = frame.position + frame.used_bytes // 2
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    stage.figure("flipped", f"bit 4 of byte {position:,} in frame {frame.frame} of {path.relative_to(copy)}")
    problems = verify(disk, str(copy), core_table()).problems
    found = any((problem.path, problem.frame) == (str(path), frame.frame) for problem in problems)
    stage.claim("verify finds it, and names the file and the frame", found)
    fixed = repair(disk, str(copy))
    stage.figure("repaired", f"history of the copy ends at {time_or_number(fixed.last_ts)}")
    stage.claim("after repair it is sound again", verify(disk, str(copy), core_table()).is_sound)
    shutil.rmtree(copy)


def _middle_frame(folder: Path) -> FrameInfo:
    disk = SystemDisk()
    inspection = ShardInspection(disk, locate(disk, str(folder)), ShardId(0))
    sealed = [frame for frame in inspection.frames() if frame.checksum == "ok"]
    inspection.close()
    return sealed[len(sealed) // 2]


def _bytes_in(folder: Path) -> int:
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)
