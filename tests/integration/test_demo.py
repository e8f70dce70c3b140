"""`bin/demo`, once, at its smallest: it ends well and says so; it fails when something is not true, and leaves nothing
behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from demo import acts, history, lake
from demo.__main__ import EVENTS_MIN, app
from demo.scene import Scene
from demo.views import JOBS, jobs_of, view_key
from tests.cli.command_line import ENVIRONMENT
from tidelog.days import Message, Writer, Written

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", "-m", "demo"]
DEMO_ENVIRONMENT = {**ENVIRONMENT, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
"""As `bin/demo` sets it: the demo is a package of the checkout, and is not installed."""
SMALL = ("--events", str(EVENTS_MIN))


def processes_left(folder: Path) -> list[str]:
    """Those that run in a folder, or name it, and do not end by themselves: Java ends a little after its Python."""
    deadline = time.monotonic() + 20
    while (found := _processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line, cwd = (process / "cmdline").read_bytes(), os.readlink(process / "cwd")
        except OSError:  # it has ended meanwhile
            continue
        if str(folder).encode() in line or cwd.startswith(str(folder)):
            found.append(line.replace(b"\0", b" ").decode())
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_everything_it_shows_is_true(tmp_path: Path) -> None:
    environment = {**DEMO_ENVIRONMENT, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, *SMALL, "--json", "--keep"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]

    def of_kind(kind: str) -> list[dict[str, Any]]:
        return [each for each in told if each["kind"] == kind]

    assert [claim["text"] for claim in of_kind("claim") if not claim["holds"]] == []
    [summary] = of_kind("summary")
    assert (summary["claims"], summary["broken"]) == (len(of_kind("claim")), [])
    assert summary["claims"] >= 30
    assert [act["title"].partition(" ")[0] for act in of_kind("act")] == [
        "Start",
        "Bring",
        "Move",
        "Kill",
        "Compare:",
        "Compress",
        "Ask",
        "Keep",
        "Change",
        "Recompute",
        "Stop",
        "Ask",
    ]
    by_day, by_jobset, by_state = (table["rows"] for table in of_kind("table"))
    assert [row["state"] for row in by_day] == ["compressed"] * 5 + ["hot"] * 2 + [None]
    assert EVENTS_MIN <= by_day[-1]["events"] == sum(row["events"] for row in by_jobset)
    assert {"queue": "research", "state": "submitted"}.items() not in [row.items() for row in by_state]
    assert processes_left(tmp_path) == []
    # What it leaves is a data directory that works.
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "tidelog.cli", "journal", "verify", f"{summary['folder']}/data"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.fixture
def signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("signals")
def test_an_event_that_is_lost_makes_it_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_an_event(scene: Scene) -> None:
        crash_server(scene)
        key = scene.week.jobsets[0].hot(scene.week.days[3]).key
        [(entry_id, _)] = scene.client.xrange(key, count=1)
        scene.client.xdel(key, entry_id)

    crash_server = acts.crash_server
    monkeypatch.setattr(acts, "crash_server", lose_an_event)
    for name in ("start_analyst", "compress", "ask", "examine_journal"):
        monkeypatch.setattr(history, name, lambda *_: None)
    for name in ("start_views", "keep_views", "change_live", "keep_lake", "ask_lake"):
        monkeypatch.setattr(lake, name, lambda *_: None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(app, [*SMALL])
    broken = [line.strip() for line in result.stdout.splitlines() if "✗" in line]
    assert result.exit_code == 1, result.output
    assert broken[0] == "✗ nothing is lost, doubled or out of order: every id and byte is as it was made"
    assert "1 of 9 claims did not hold" in result.stdout
    assert list(tmp_path.iterdir()) == []


class ForgetfulWriter(Writer):
    """Says that the first message was written."""

    forgot = False

    def write(self, messages: Iterable[Message]) -> Written:
        if self.forgot:
            return super().write(messages)
        self.forgot = True
        return Written(1, 0, 0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("signals")
def test_views_and_a_lake_that_are_wrong_make_it_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_views, keep_lake = lake.keep_views, lake.keep_lake

    def spoil_a_row(scene: Scene, viewing: lake.Viewing) -> None:
        key = view_key(JOBS, "media:succeeded")
        viewing.job.wait_until(lambda: scene.client.exists(key) and lake._batches(scene) > 0, "it was built", 180)
        scene.client.hset(key, "n", "1")
        keep_views(scene, viewing)

    def change_unseen(scene: Scene, viewing: lake.Viewing) -> None:
        first, second, *_ = (job for job, (queue, _) in jobs_of(scene.week).items() if queue == "reports")
        scene.client.delete(f"job:{first}")
        scene.client.hset(f"job:{second}", "state", "lost")
        keep_lake(scene, viewing)

    monkeypatch.setattr(lake, "keep_views", spoil_a_row)
    monkeypatch.setattr(lake, "Writer", ForgetfulWriter)
    monkeypatch.setattr(lake, "_TOLD_S_MAX", 2.0)
    monkeypatch.setattr(lake, "keep_lake", change_unseen)
    monkeypatch.setattr(history, "compress", lambda _: {})
    monkeypatch.setattr(history, "ask", lambda *_: None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(app, [*SMALL, "--json"])
    assert result.exit_code == 1, result.output
    [summary] = [each for each in map(json.loads, result.stdout.splitlines()) if each["kind"] == "summary"]
    assert [text.partition(" ")[0] for text in summary["broken"]] == [
        "view:jobs_by_state:*",
        "the",  # feed told each change
        "a",  # row that nothing is left of is gone
        "both",  # views are what the ledger says
        "recomputed",
        "all",  # rows of the lake's answer
        "`current`",
        "`views/`",
        "`changes`",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_cleans_up_when_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**DEMO_ENVIRONMENT, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not process.stdout.readline().startswith(b"3. "):  # the server, the feed and consumers run
            assert process.poll() is None
        time.sleep(0.5)
        process.send_signal(number)
        process.stdout.read()
        assert process.stderr.read() == b""
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
    assert processes_left(tmp_path) == []
