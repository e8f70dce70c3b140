"""`tidelog pipeline run`: what its file may say, and the jobs of one process against a real server. Not with Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command_line import Outcome, invoke
from tests.cli.running_command import RunningCommand
from tests.days.servers import Servers
from tidelog.cli.app import COMMANDS
from tidelog.cli.pipeline.jobs_file import JOBS, read_jobs
from tidelog.days.fence import DAYS_LEASE
from tidelog.errors import ClientError
from tidelog.keys import LEASE_PREFIX

LEASE = f"{LEASE_PREFIX}{DAYS_LEASE}"
VIEWS = '[views.v]\nsource = "prefix:order:"\nsql = "select count(*) as n from source"\nkey = []\n'


class Place(NamedTuple):
    """A folder for the file, and a server."""

    folder: Path
    url: str
    client: Any

    def write(self, text: str) -> str:
        (self.folder / "views.toml").write_text(VIEWS)
        path = self.folder / "pipeline.toml"
        path.write_text(f'url = "{self.url}"\n{text}')
        return str(path)

    def run(self, text: str, *more: str) -> Outcome:
        return invoke("pipeline", "run", "--file", self.write(text), *more)

    def status(self) -> dict[str, dict[str, Any]]:
        told = invoke("pipeline", "status", "--json", "--url", self.url).objects
        return {each["job"]: each for each in told}


@pytest.fixture
def place(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    client = servers.client("tidelog-RESP2")
    client.flushall()
    url = f"redis://127.0.0.1:{servers.port('tidelog-RESP2')}"
    monkeypatch.setenv("TIDELOG_URL", url)
    monkeypatch.chdir(tmp_path)
    yield Place(tmp_path, url, client)
    client.close()


DAYS = '[compress]\nevery = "1h"\nolder_than_days = 2\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no job: write [lake]"),
        ("lake = 1", "names no job: write [lake]"),
        ("view = 1\n[lake]\nto = 'x'", "view is no option of lake"),
        ("[lake", "not TOML"),
        ("[lakes]\nto = 'x'", "[lakes] is not a job: write one of [lake], [view], [compress], [expire]"),
        ("[lake]", "[lake] to is missing: The folder of the lake"),
        ("[lake]\nto = 'x'\nbatch_records = 0", "[lake] batch_records: Input should be greater than or equal to 1"),
        ("[lake]\nto = 'x'\nstart = 'middle'", "[lake] start: 'middle' is not one of 'auto'"),
        ("[lake]\nto = 'x'\ntoo = 'y'", "[lake] too is not an option: it has every, at, batch_records, compact"),
        ("[lake]\nto = ['x']", "[lake] to takes one value, not a list"),
        ("[lake]\nto = true", "[lake] to takes a text or a number"),
        ("[lake]\nto = 'x'\ncompact = 1", "[lake] compact is true or false"),
        ("[lake]\nto = 'x'\nonce = true", "[lake] once is not for a file"),
        ("[lake]\nto = 'x'\nmaster = 'local'", "[lake] master is for all jobs"),
        (DAYS + "dry_run = true", "[compress] dry_run is not for a file"),
        (DAYS + "json = true", "[compress] json is not for a file"),
        ("[compress]\nolder_than_days = 2", 'does not say when it runs: write every = "1h" or at = "03:00"'),
        (DAYS + "at = '03:00'", "has both every and at"),
        (DAYS.replace("1h", "soon"), '[compress] every is a time from 1s to 366d, such as "30m"'),
        (DAYS.replace('"1h"', "true"), "[compress] every is a time"),
        ("[expire]\nat = '24:00'\nolder_than_days = 2", "[expire] at is a time of the day in UTC"),
        ("[expire]\nat = []\nolder_than_days = 2", "[expire] at has 0 times"),
        (DAYS.replace("2", "'two'"), "[compress] older_than_days"),
        ("every = '1h'\n[lake]\nto = 'x'", "every is no option of lake"),
        ("lease = 3\n[lake]\nto = 'x'", "lease is no option of lake"),
        ("conf = 'a.b=c'\n[lake]\nto = 'x'", "conf is a list of Spark settings"),
    ],
)
def test_an_entry_that_is_not_good_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    with pytest.raises(ClientError) as raised:
        read_jobs(str(path))
    assert str(raised.value).startswith(f"{path}: ")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[view]\nto = 'lake'\nfile = 'nothing.toml'", "[view]: nothing.toml: cannot be read"),
        ("[lake]\nto = 'lake'\nprefix = 'tidelog:pipeline:x'", "[lake]: --prefix"),
        (
            "[lake]\nto = 'lake'\npassword_file = 'nothing'",
            "[lake]: --password-file names nothing, which",
        ),
        (DAYS + "password_file = 'nothing'", "[compress]: "),
    ],
)
def test_what_a_command_refuses_is_refused_before_any_job_begins(place: Place, text: str, reason: str) -> None:
    outcome = place.run(f'{text}\n[expire]\nevery = "1s"\nolder_than_days = 3\n')
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "pipeline.toml: " in outcome.stderr
    assert reason in outcome.stderr
    assert place.client.dbsize() == 0


def test_options_are_those_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(
        'url = "redis://other:1"\ndatabase = 3\nmaster = "local[2]"\nconf = ["a.b=c"]\n'
        '[lake]\nto = "lake"\nprefix = ["a:", "-b:"]\njson = true\ncompact = false\ntrigger_seconds = 0.5\n'
        "database = 4\nfrom_followers = false\n"
        '[expire]\nat = ["15:30", 03:00:00]\nolder_than_days = 30\n'
    )
    file = read_jobs(str(path))
    lake, expire = file.jobs
    assert lake.words == (
        "--url=redis://other:1", "--database=4", "--to=lake", "--prefix=a:", "--prefix=-b:", "--json", "--no-compact",
        "--trigger-seconds=0.5",
    )  # fmt: skip
    assert expire.words == ("--url=redis://other:1", "--database=3", "--older-than-days=30")
    assert (lake.is_endless, expire.is_endless, expire.at_s) == (True, False, (10800, 55800))
    assert (file.master, file.conf) == ("local[2]", ("a.b=c",))


def test_every_job_is_a_command_and_no_option_hides_its_schedule() -> None:
    functions = {row.words: row.function for row in COMMANDS}
    for row in JOBS:
        assert functions[f"pipeline {row.name}"] is row.function
        assert not {"every", "at"} & set(row.function.__annotations__)


def test_once(place: Place) -> None:
    outcome = place.run(DAYS + "[expire]\nat = '03:00'\nolder_than_days = 30\n", "--once", "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert [each["job"] for each in outcome.of_kind("ended")] == ["compress", "expire"], "one after the other"
    first = outcome.of_kind("ended")[0]
    assert (first["state"], first["error"], first["figures"]["state"]) == ("done", None, "done")
    [summary] = outcome.of_kind("summary")
    assert (summary["jobs"], summary["runs"], summary["failing"]) == (2, 2, 0)
    told = place.status()
    assert set(told) == {"run", "run:compress", "run:expire", "compress", "expire"}
    assert told["run"]["state"] == told["run:compress"]["state"] == "done"


def test_a_failure_is_told_tried_again_and_counts(place: Place) -> None:
    """`expire` finds its lease taken; the other job goes on, and SIGTERM ends both."""
    place.client.set(LEASE, "somebody", px=600_000)
    file = place.write('[expire]\nevery = "1h"\nolder_than_days = 30\n')
    with RunningCommand("pipeline", "run", "--file", file, "--json") as running:
        assert running.line() == {"kind": "began", "job": "expire", "runs": 1}
        ended = running.line()
        assert (ended["kind"], ended["state"], ended["failures"]) == ("ended", "failed", 1)
        assert "another job has the lease" in ended["error"]
        assert running.line()["runs"] == 2, "it is tried again"
        told = place.status()
        assert told["run:expire"]["last_error"] == ended["error"]
        assert told["run"]["state"] == "running"
        place.client.delete(LEASE)
        while (line := running.line())["kind"] != "ended" or line["state"] != "waiting":
            pass
        assert line["error"] is None
        assert line["due_ms"] is not None
        status, said = running.end(signal.SIGTERM)
        assert (status, said) == (0, "")
    assert place.status()["run"]["state"] == "done"
    assert place.status()["run:expire"]["state"] == "stopped"


def test_a_job_that_fails_until_the_end_is_in_the_exit_status(place: Place) -> None:
    place.client.set(LEASE, "somebody", px=600_000)
    outcome = place.run('[expire]\nevery = "1h"\nolder_than_days = 30\n', "--once")
    assert outcome.status == 1
    assert "tidelog: expire failed: expire did not start: another job has the lease" in outcome.stderr
    header, row = outcome.stdout.splitlines()
    assert header.split() == ["job", "state", "runs", "failed", "last", "error"]
    assert row.split()[:4] == ["expire", "failed", "1", "1"]
    place.client.delete(LEASE)
    place.client.flushall()


def test_the_reader_of_the_output_may_go_away(place: Place) -> None:
    file = place.write('[expire]\nevery = "1s"\nolder_than_days = 30\n')
    with RunningCommand("pipeline", "run", "--file", file, "--json") as running:
        assert running.line()["kind"] == "began"
        assert running.process.stdout is not None
        running.process.stdout.close()
        status, said = running.end()
        assert (status, said) == (0, "")


def test_help_has_every_job() -> None:
    text = invoke("pipeline", "run", "--help").stdout
    for row in JOBS:
        assert f"[{row.name}]" in text
