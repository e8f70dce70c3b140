"""`tidelog events tail`: what was put, in the same form, from anywhere, and what comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run, run_on_terminal
from tests.cli.day_streams import KINDS, DaysServer, line, text_of
from tests.days.days_of_events import DAY_MS, MAY_MS
from tests.days.servers import Servers
from tests.integration.heir import Heir, heir
from tests.integration.server_process import ServerProcess, is_readable
from tidelog.days.compressor import compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.retention import expire_days

__all__ = ["heir"]

LINES = [
    line(MAY_MS, {"b": 1, "a": [1.5, None, "é€", 2**70]}),
    line(7 + MAY_MS, "text", timestamp_ms=MAY_MS + 9, seq=3),
    line(MAY_MS + 10, {}, timestamp_ms=MAY_MS + DAY_MS - 1),
    line(MAY_MS + DAY_MS, [1]),
    line(MAY_MS + 2 * DAY_MS, None),
]


@pytest.fixture(params=KINDS)
def days(request: pytest.FixtureRequest, servers: Servers) -> Iterator[DaysServer]:
    made = DaysServer(servers, request.param)
    made.put("q", "j", LINES)
    yield made
    made.close()


def tail(days: DaysServer, *arguments: str) -> list[dict[str, Any]]:
    outcome = run("events", "tail", "q", "j", *days.options, "--until-now", "--json", *arguments)
    assert (outcome.status, outcome.stderr) == (0, "")
    return outcome.objects


def test_what_was_put_comes_out_the_same_also_when_it_is_compressed(days: DaysServer) -> None:
    assert tail(days) == LINES
    for day in (1, 2):
        compress_day(days.redis, JobSet("q", "j"), date(2024, 5, day), 1)
    assert tail(days, "--from", LINES[1]["id"]) == LINES[2:]
    assert tail(days, "--from", "now") == []
    printed = run("events", "tail", "q", "j", *days.options, "--until-now", "--json")
    assert printed.objects == LINES
    copied = run("events", "put", "q", "copy", *days.options, stdin=printed.stdout)
    assert copied.stdout == "5 written, 0 duplicate, 0 late\n"


def test_a_table_for_people(days: DaysServer) -> None:
    outcome = run("events", "tail", "q", "j", *days.options, "--until-now")
    head, first, second, *_ = outcome.stdout.splitlines()
    assert head.split() == ["id", "time", "event"]
    assert first.startswith(f"{MAY_MS}-0 ")
    assert "2024-05-01T00:00:00.000000Z" in first
    assert '"text\\"' in second or '"\\"text\\""' in second
    assert "\x1b[1m" in run_on_terminal("events", "tail", "q", "j", *days.options, "--until-now").stdout


class Following:
    """A tail that goes on."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "events", "tail", "q", "j", "--json", *arguments],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._rest = b""

    def line(self) -> Any:
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS_MAX
        while b"\n" not in self._rest:
            assert is_readable(self.process.stdout.fileno(), deadline - time.monotonic()), "nothing came"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.process.stderr and self.process.stderr.read()
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        return json.loads(text)

    def end(self, number: int) -> tuple[int, bytes]:
        assert self.process.stderr is not None
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX), self.process.stderr.read()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_follows_until_it_is_stopped(days: DaysServer, number: int, status: int) -> None:
    with Following(*days.options) as following:
        assert [following.line() for _ in LINES] == LINES
        more = [line(MAY_MS + 2 * DAY_MS + 1), line(MAY_MS + 5 * DAY_MS)]
        for each in more:
            days.put("q", "j", [each])
            assert following.line() == each
        assert following.end(number) == (status, b"")


def test_a_pipe_that_closes_is_quiet(days: DaysServer) -> None:
    script = f"set -o pipefail; {' '.join(COMMAND)} events tail q j --json {' '.join(days.options)} | head -n 2"
    done = subprocess.Popen(["bash", "-c", script], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout is not None
    assert [json.loads(done.stdout.readline()) for _ in range(2)] == LINES[:2]
    days.put("q", "j", [line(MAY_MS + 3 * DAY_MS)])  # which it cannot print
    assert done.communicate(timeout=SECONDS_MAX) == (b"", b"")
    assert done.returncode == 0


def test_a_server_that_comes_back_is_read_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        options = ["--url", f"redis://127.0.0.1:{server.port}"]
        run("events", "put", "q", "j", *options, stdin=text_of(LINES[:1]))
        with Following(*options) as following:
            assert following.line() == LINES[0]
            server.terminate()
            again = subprocess.Popen(
                [*COMMAND, "serve", "--data", str(tmp_path / "data"), "--port", str(server.port),
                 "--http-port", "0", "--flight-port", "0"],
                env=ENVIRONMENT,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                deadline = time.monotonic() + SECONDS_MAX
                while run("events", "put", "q", "j", *options, stdin=text_of(LINES)).status:
                    assert time.monotonic() < deadline
                assert [following.line() for _ in LINES[1:]] == LINES[1:]
            finally:
                again.terminate()
                again.wait(SECONDS_MAX)


def test_it_goes_on_at_the_server_that_takes_over(heir: Heir) -> None:
    options = ["--url", heir.url]
    run("events", "put", "q", "j", *options, stdin=text_of(LINES[:2]))
    with Following(*options) as following:
        assert [following.line() for _ in range(2)] == LINES[:2]
        heir.take_over()
        assert run("events", "put", "q", "j", *options, stdin=text_of(LINES)).status == 0
        assert [following.line() for _ in LINES[2:]] == LINES[2:]
        status, told = following.end(signal.SIGTERM)
        assert status == 0
        lost, again = told.decode().splitlines()
        assert lost.startswith("tidelog: connection lost (")
        assert again == "tidelog: connected again"


def test_a_day_that_is_gone_ends_it_with_2(servers: Servers) -> None:
    days = DaysServer(servers, "redis")
    days.put("q", "j", [line(MAY_MS)])
    with Following(*days.options) as following:
        following.line()
        days.redis.delete("{q_j}_2024-05-01")
        days.redis.srem("{q_j}_streams", "{q_j}_2024-05-01")
        assert following.process.stderr is not None
        assert b"{q_j}_2024-05-01 was removed" in following.process.stderr.read()
        assert following.process.wait(SECONDS_MAX) == 2
    days.close()


def test_a_day_that_the_index_has_and_that_does_not_exist_ends_it_with_2_unless_it_is_skipped(days: DaysServer) -> None:
    days.redis.delete("{q_j}_2024-05-02")
    outcome = run("events", "tail", "q", "j", *days.options, "--until-now", "--json")
    assert (outcome.status, outcome.objects) == (2, LINES[:3])
    assert "{q_j}_2024-05-02 was removed, but the index still has it" in outcome.stderr
    outcome = run("events", "tail", "q", "j", *days.options, "--until-now", "--json", "--skip-missing")
    assert (outcome.status, outcome.objects) == (0, [*LINES[:3], LINES[4]])
    assert outcome.stderr.startswith("tidelog: skipped: {q_j}_2024-05-02 was removed")
    assert outcome.stderr.count("\n") == 1


def test_a_damaged_batch_ends_it_with_1(servers: Servers) -> None:
    days = DaysServer(servers, "redis")
    days.redis.xadd("{q_j}_compressed_2024-05-01", {"batch": "nonsense"}, id="5-5")
    days.redis.sadd("{q_j}_streams", "{q_j}_compressed_2024-05-01")
    outcome = run("events", "tail", "q", "j", *days.options, "--until-now")
    assert outcome.status == 1
    assert "{q_j}_compressed_2024-05-01: batch 5-5 is damaged" in outcome.stderr
    days.close()


def test_an_id_before_the_first_day_begins_with_it(days: DaysServer) -> None:
    expire_days(days.redis, JobSet("q", "j"), keep_days=0, today=date(2024, 5, 2))
    assert tail(days, "--from", "5-5") == LINES[3:]


@pytest.mark.parametrize("start", ["yesterday", "5", "", "1-2-3"])
def test_a_wrong_place_to_begin_is_told(start: str, servers: Servers) -> None:
    url = f"redis://127.0.0.1:{servers.port('redis')}"
    outcome = invoke("events", "tail", "q", "j", "--from", start, "--url", url)
    assert outcome.status == 2
    assert "--from takes beginning, now or an id" in outcome.stderr
