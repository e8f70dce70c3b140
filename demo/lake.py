"""What the demo shows of views and the lake, one function an act: views are kept by a job that runs on, a change shows
up in them while a feed watches, they are recomputed, and a lake has the whole history when the server is gone."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from demo.processes import DemoProcess, Line, tidelog_command
from demo.query import answers_of, ask_ledger
from demo.scene import Scene
from demo.views import (
    EVENTS,
    JOB_PREFIX,
    JOBS,
    PROFILE,
    TOML,
    jobs_of,
    ledger_rows,
    read_view,
    view_key,
)
from tidelog.cli.output.stdout import Cell, Column
from tidelog.days import JobSet, Message, Writer
from tidelog.errors import EnvironmentFault

_JOB_S_MAX: Final = 180.0
_TOLD_S_MAX: Final = 60.0
_LIVE_JOBS: Final = 5
_LOOK_S: Final = 0.01


class Viewing(NamedTuple):
    """What keeps views, and what watches them."""

    job: DemoProcess
    feed: DemoProcess
    since_s: float
    """When the job was started."""


def lake_of(scene: Scene) -> Path:
    return scene.folder / "lake"


# --- views ------------------------------------------------------------------------------------------------------------


def start_views(scene: Scene) -> Viewing:
    """Write what the second view is over, and start the job: it comes up while Spark is asked something else."""
    file = scene.folder / "views.toml"
    file.write_text(TOML)
    pipeline = scene.client.pipeline(transaction=False)
    for name, (queue, state) in jobs_of(scene.week).items():
        pipeline.hset(f"{JOB_PREFIX}{name}", mapping={"queue": queue, "state": state})
    pipeline.execute()
    since_s = time.monotonic()
    arguments = "--url", scene.server.url, "--file", file, "--to", lake_of(scene), "--continuous", "--json"
    job = scene.start_command("view", tidelog_command("pipeline", "view", *arguments))
    watched = "--url", scene.server.url, "--prefix", "view:", "--json", "--no-checkpoints"
    return Viewing(job, scene.start_command("view-feed", tidelog_command("feed", *watched)), since_s)


def keep_views(scene: Scene, viewing: Viewing) -> None:
    """Both views are what the ledger says."""
    stage, expected = scene.stage, ledger_rows(scene.week)
    stage.act("Keep two views of it as hashes, by a job on Spark that runs on")
    stage.say(f"bin/tidelog pipeline view --url {scene.server.url} --file views.toml --to lake --continuous")
    for line in filter(None, TOML.splitlines()):
        stage.say(f"  {line}")
    viewing.job.wait_until(lambda: _batches(scene) > 0, "views were built", _JOB_S_MAX)
    took_s = time.monotonic() - viewing.since_s
    built = f"process {viewing.job.pid}, ready {took_s:.1f} s after its start (while Spark was asked)"
    stage.figure("views", built, round(took_s, 2))
    for view, rows in expected.items():
        source = "events, hot and compressed" if view == EVENTS else "hashes of jobs"
        number = sum(int(row["n"]) for row in rows.values())
        stage.claim(
            f"view:{view}:* has the ledger's {len(rows)} rows, of {number:,} {source}",
            read_view(scene.client, view) == rows,
        )


def _batches(scene: Scene) -> int:
    """That the job has taken since it follows its feed."""
    return int(scene.client.hget("tidelog:pipeline:view", "batches") or 0)


def change_live(scene: Scene, viewing: Viewing) -> None:
    """Jobs come, one by one, and fail, all at once; a feed in another process tells what becomes of the views."""
    stage, week, client = scene.stage, scene.week, scene.client
    stage.act("Change something, and watch the views with a change feed in another process")
    stage.say(f"bin/tidelog feed --url {scene.server.url} --prefix view:")
    live = _LiveJobs(scene, viewing)
    were = ledger_rows(week)[JOBS]
    waits_s = live.come()
    stage.claim(
        f"the feed told each of {2 * _LIVE_JOBS} changes as a row of a view, with the ledger's number",
        len(waits_s) == 2 * _LIVE_JOBS,
    )
    if waits_s:
        median_ms, most_ms = 1000 * statistics.median(waits_s), 1000 * max(waits_s)
        waited = f"{median_ms:,.0f} ms (median), {most_ms:,.0f} ms at most, one at a time"
        stage.figure("from a write to the feed's event", waited, round(median_ms))
    live.fail()
    expected = ledger_rows(week)
    gone = live.rows_before.keys() - expected[JOBS].keys()
    stage.claim(
        "a row that nothing is left of is gone, and the feed says so",
        gone == {f"{PROFILE.queue}:submitted"} - were.keys() and all(live.is_gone(key) for key in gone),
    )
    is_so = _becomes(viewing, lambda: {view: read_view(client, view) for view in expected} == expected)
    stage.claim("both views are what the ledger says now", is_so)
    columns = Column("queue", style="bold"), Column("state"), Column("jobs", right=True)
    shown = sorted(read_view(client, JOBS).items())
    cells: list[list[Cell]] = [[row["queue"], row["state"], int(row["n"])] for _, row in shown]
    stage.table(f"HGETALL view:{JOBS}:*", columns, cells, total=False)


class _LiveJobs:
    """Jobs that come while views are watched; whatever is written is in the ledger, too."""

    def __init__(self, scene: Scene, viewing: Viewing) -> None:
        self._scene = scene
        self._viewing = viewing
        self._writer = Writer(scene.client, JobSet(PROFILE.queue, PROFILE.jobset))
        self._ids = [f"01hy{number:08x}{'0' * 14}" for number in range(_LIVE_JOBS)]
        self.rows_before: dict[str, dict[str, str]] = {}
        """Of the view of jobs, when all had come."""

    def come(self) -> list[float]:
        """Each is an event, then a hash. How long it took until the feed told of it; it ends at the first that did not
        come."""
        waits_s: list[float] = []
        week = self._scene.week
        for job in self._ids:
            message = self._record(job, "submitted")
            key = f"{message.day.isoformat()}:submitted"
            begun_s = time.monotonic()
            self._writer.write([message])
            if not self._is_told(view_key(EVENTS, key), ledger_rows(week)[EVENTS][key]["n"]):
                return waits_s
            waits_s.append(time.monotonic() - begun_s)
            self.rows_before = ledger_rows(week)[JOBS]
            key = f"{PROFILE.queue}:submitted"
            begun_s = time.monotonic()
            self._set_state(self._scene.client, job, "submitted")
            if not self._is_told(view_key(JOBS, key), self.rows_before[key]["n"]):
                return waits_s
            waits_s.append(time.monotonic() - begun_s)
        return waits_s

    def fail(self) -> None:
        """All of them, in one go."""
        self._writer.write([self._record(job, "failed") for job in self._ids])
        pipeline = self._scene.client.pipeline(transaction=True)
        for job in self._ids:
            self._set_state(pipeline, job, "failed")
        pipeline.execute()

    def is_gone(self, key: str) -> bool:
        """Whether the feed has told that a row of the view of jobs is no more."""
        name = view_key(JOBS, key)
        return self._waits(lambda line: line["key"] == name and line["type"] == "none")

    def _record(self, job: str, state: str) -> Message:
        now_ms = int(time.time() * 1000)
        created = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        names = {"queue": PROFILE.queue, "job_set": PROFILE.jobset}
        self._scene.week.add(PROFILE, now_ms, {"event": state, "job_id": job, **names, "created": created}, None)
        _, message = self._scene.week.by_queue[PROFILE.queue][-1]
        return message

    @staticmethod
    def _set_state(client: Any, job: str, state: str) -> None:
        client.hset(f"{JOB_PREFIX}{job}", mapping={"queue": PROFILE.queue, "state": state})

    def _is_told(self, key: str, number: str) -> bool:
        wanted = key, "n", number
        return self._waits(lambda line: (line["key"], line["field"], line["value"]) == wanted)

    def _waits(self, is_it: Callable[[Line], bool]) -> bool:
        """Whether the feed has told, or tells in time, something like this."""
        return _becomes(self._viewing, lambda: any(is_it(line) for line in self._values()))

    def _values(self) -> list[Line]:
        return [line for line in self._viewing.feed.told if line["kind"] == "value"]


def _becomes(viewing: Viewing, holds: Callable[[], bool]) -> bool:
    """Whether something of the views holds, or does so in time: not if the job has ended meanwhile."""
    deadline_s = time.monotonic() + _TOLD_S_MAX
    while not (is_so := holds()) and not viewing.job.has_ended and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    return is_so


# --- the lake ---------------------------------------------------------------------------------------------------------


def keep_lake(scene: Scene, viewing: Viewing) -> None:
    """Stop the job, recompute its views, and take all that has ever happened into a lake."""
    stage, url, lake = scene.stage, scene.server.url, lake_of(scene)
    stage.act("Recompute the views from scratch, and take all that ever happened into a lake")
    stage.say(f"bin/tidelog view check --url {url} --to lake")
    stage.say(f"bin/tidelog pipeline lake --url {url} --to lake --once")
    if viewing.job.has_ended:
        stage.figure("the job has ended by itself", viewing.job.complaint())
    else:
        viewing.job.send(signal.SIGTERM)
    stage.claim("the job that kept the views stopped in order", viewing.job.wait(_JOB_S_MAX) == 0)
    viewing.feed.stop()
    begun_s = time.monotonic()
    check = scene.start_command("check", tidelog_command("view", "check", "--url", url, "--to", lake, "--json"))
    words = "--url", url, "--to", lake, "--once", "--output", "json"
    job = scene.start_command("lake", tidelog_command("pipeline", "lake", *words))
    status = check.wait(_JOB_S_MAX)
    right = {line["view"] for line in check.told if line["right"]}
    stage.claim("recomputed by Spark, the hashes and the tables of both views are right", right == {EVENTS, JOBS})
    if status not in (0, 1):
        raise EnvironmentFault(f"the check ended with status {status}: {check.complaint()}")
    if (status := job.wait(_JOB_S_MAX)) != 0:
        raise EnvironmentFault(f"the lake's job ended with status {status}: {job.complaint()}")
    [summary] = [line for line in job.told if line["kind"] == "summary"]
    took_s = time.monotonic() - begun_s
    taken = f"{summary['changes']:,} changes, {summary['entries']:,} entries of streams"
    stage.figure("in the lake", f"{taken}; {took_s:.1f} s with two starts of Spark, side by side", summary["changes"])


def ask_lake(scene: Scene, analyst: DemoProcess) -> None:
    """The question of before, and others, from the files alone."""
    stage, week = scene.stage, scene.week
    stage.act("Ask the lake, now that the server is gone")
    analyst.say(json.dumps({"lake": str(lake_of(scene))}))
    analyst.wait_until(lambda: any("jobs" in line for line in analyst.told), "an answer", _JOB_S_MAX)
    analyst.end_input()
    analyst.wait(_JOB_S_MAX)
    answer = analyst.last
    stage.figure("Spark", f"read the tables, and answered in {answer['took_s']:.1f} s", answer["took_s"])
    answers, _ = answers_of(answer["rows"])
    expected = ask_ledger(week)
    stage.say("The same question as before, over what was ever appended to hot days, and three more.")
    stage.claim(
        f"all {len(expected)} rows of its answer are what the ledger says, the live events among them",
        answers.keys() == expected.keys() and all(answers[place].agrees(expected[place]) for place in expected),
    )
    rows = ledger_rows(week)
    states = sorted([row["queue"], row["state"], int(row["n"])] for row in rows[JOBS].values())
    stage.claim("`current` has every job in the state that the ledger says", sorted(answer["jobs"]) == states)
    stage.claim("`views/` has the tables of both views, as the ledger has them", answer["views"] == rows)
    jobs = len(jobs_of(week))
    stage.claim(
        f"`changes` has each of the {jobs + _LIVE_JOBS:,} times that a job's state was set, once",
        answer["changes"] == [jobs + _LIVE_JOBS] * 2,
    )
