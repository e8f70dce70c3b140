"""`tidelog events put`: lines and entries into day streams, on a Tidelog; with `--long` on a Redis and a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run, run_on_terminal
from tests.cli.day_streams import KINDS, DaysServer, line, text_of
from tests.days.days_of_events import DAY_MS, MAY_MS
from tests.days.servers import Servers
from tidelog.days.message import Message
from tidelog.days.writer import Writer, Written

LINES = [line(MAY_MS + n) for n in range(5)] + [line(MAY_MS + DAY_MS + n) for n in range(3)]
HOT = "{q%5F1_jobs}_2024-05-01"


@pytest.fixture(params=KINDS)
def days(request: pytest.FixtureRequest, servers: Servers) -> Iterator[DaysServer]:
    made = DaysServer(servers, request.param)
    yield made
    made.close()


def test_lines_of_standard_input_become_day_streams(days: DaysServer) -> None:
    outcome = run("events", "put", "q_1", "jobs", *days.options, stdin=text_of(LINES))
    assert outcome == (0, "8 written, 0 duplicate, 0 late\n", "")
    assert days.redis.smembers("{q%5F1_jobs}_streams") == {HOT.encode(), b"{q%5F1_jobs}_2024-05-02"}
    [(entry_id, fields), *_] = days.redis.xrange(HOT)
    assert entry_id == b"%d-0" % MAY_MS
    assert {name: json.loads(value) for name, value in fields.items()} == {b"event": {"at": MAY_MS}}
    again = run("events", "put", "q_1", "jobs", *days.options, "--json", stdin=text_of([*LINES, line(5)]))
    assert again.objects == [{"kind": "summary", "written": 0, "duplicate": 8, "late": 1}]
    assert days.redis.xlen("{q%5F1_jobs}_late") == 1


def test_a_file(days: DaysServer, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(text_of(LINES))
    outcome = run("events", "put", "q_1", "jobs", "--file", tmp_path / "lines", *days.options)
    assert outcome == (0, "8 written, 0 duplicate, 0 late\n", "")


def test_a_bad_line_is_named_and_what_stands_before_it_is_written(days: DaysServer) -> None:
    text = text_of(LINES[:3]) + "\n{nonsense\n" + text_of(LINES[3:])
    outcome = run("events", "put", "q_1", "jobs", *days.options, stdin=text)
    assert (outcome.status, outcome.stdout) == (2, "3 written, 0 duplicate, 0 late\n")
    assert outcome.stderr.startswith("tidelog: line 5: not a message: ")
    assert outcome.stderr.count("\n") == 1
    assert days.redis.xlen(HOT) == 3


def test_entries_of_a_stream_are_acknowledged(days: DaysServer) -> None:
    for n in range(5):
        days.redis.xadd("incoming", {"event": "{}"}, id=f"{MAY_MS + n}-0")
    options = ["--from-stream", "incoming", "--group", "g", "--consumer", "c", "--until-now"]
    outcome = run("events", "put", "q_1", "jobs", *options, *days.options)
    assert outcome == (0, "5 written, 0 duplicate, 0 late\n", "")
    assert days.redis.xpending("incoming", "g")["pending"] == 0
    assert days.redis.xlen(HOT) == 5


def test_a_bad_entry_goes_to_the_late_ones_and_the_rest_goes_on(days: DaysServer) -> None:
    for n in range(5):
        days.redis.xadd("incoming", {"event" if n != 2 else "else": "{}"}, id=f"{MAY_MS + n}-0")
    options = ["--from-stream", "incoming", "--group", "g", "--until-now"]
    outcome = run("events", "put", "q_1", "jobs", *options, *days.options)
    assert (outcome.status, outcome.stdout) == (0, "4 written, 0 duplicate, 1 late\n")
    assert outcome.stderr.startswith(f"tidelog: entry {MAY_MS + 2}-0 and perhaps others went to the late messages: ")
    assert outcome.stderr.count("\n") == 1
    assert days.redis.xpending("incoming", "g")["pending"] == 0
    [(_, late)] = days.redis.xrange("{q%5F1_jobs}_late")
    assert late[b"reason"] == b"not a message: it has no field event"
    assert run("events", "put", "q_1", "jobs", *options, *days.options).stdout == "0 written, 0 duplicate, 0 late\n"


def test_how_far_ahead_a_message_may_be(days: DaysServer) -> None:
    ahead = [line(MAY_MS), line(4_000_000_000_000), line(MAY_MS + 1)]
    assert run("events", "put", "q_1", "jobs", *days.options, stdin=text_of(ahead)).stdout.startswith("2 written")
    options = [*days.options, "--max-ahead", "inf"]
    assert run("events", "put", "q_1", "more", *options, stdin=text_of(ahead)).stdout.startswith("2 written")
    assert days.redis.smembers("{q%5F1_jobs}_streams") == {HOT.encode()}
    assert len(days.redis.smembers("{q%5F1_more}_streams")) == 2


def test_a_stream_is_followed_until_it_is_stopped(days: DaysServer) -> None:
    for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        days.redis.flushall()
        command = [*COMMAND, "events", "put", "q_1", "jobs", "--from-stream", "incoming", "--group", "g", *days.options]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for n in range(3):
                days.redis.xadd("incoming", {"event": "{}"}, id=f"{MAY_MS + n}-0")
                deadline = time.monotonic() + SECONDS_MAX
                while days.redis.xlen(HOT) <= n:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            process.send_signal(number)
            assert process.wait(SECONDS_MAX) == status
            assert process.stdout.read() == b"3 written, 0 duplicate, 0 late\n"
            assert process.stderr.read() == b""


def test_what_is_written_is_counted_and_acknowledged_whenever_a_signal_comes(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the write and its count."""
    write = Writer.write

    def write_and_stop(writer: Writer, messages: Sequence[Message]) -> Written:
        written = write(writer, messages)
        os.kill(os.getpid(), signal.SIGTERM)
        return written

    days = DaysServer(servers, "tidelog")
    monkeypatch.setattr(Writer, "write", write_and_stop)
    try:
        for n in range(3):
            days.redis.xadd("incoming", {"event": "{}"}, id=f"{MAY_MS + n}-0")
        options = ["--from-stream", "incoming", "--group", "g", *days.options]
        assert invoke("events", "put", "q_1", "jobs", *options) == (0, "3 written, 0 duplicate, 0 late\n", "")
        assert days.redis.xpending("incoming", "g")["pending"] == 0
    finally:
        days.close()


def test_lines_that_trickle_in_are_written_as_they_come(days: DaysServer) -> None:
    command = [*COMMAND, "events", "put", "q_1", "jobs", *days.options]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        for n in range(3):
            process.stdin.write(text_of([LINES[n]]).encode())
            process.stdin.flush()
            deadline = time.monotonic() + SECONDS_MAX
            while days.redis.xlen(HOT) <= n:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 0


def test_lines_that_were_not_read_to_their_end_are_no_success(days: DaysServer) -> None:
    command = [*COMMAND, "events", "put", "q_1", "jobs", *days.options]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text_of(LINES[:2]).encode())
        process.stdin.flush()
        deadline = time.monotonic() + SECONDS_MAX
        while days.redis.xlen(HOT) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 143
        assert process.stdout.read() == b"2 written, 0 duplicate, 0 late\n"


def test_a_terminal_is_shown_how_it_goes(servers: Servers, tmp_path: Path) -> None:
    days = DaysServer(servers, "redis")
    (tmp_path / "lines").write_text(text_of(LINES))
    outcome = run_on_terminal("events", "put", "q_1", "jobs", "--file", tmp_path / "lines", *days.options)
    assert "\r\x1b[K8 written, 0 duplicate, 0 late\r\x1b[K" in outcome.stdout
    days.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--file", "a", "--from-stream", "b", "--group", "g"], "cannot be used together"),
        (["--from-stream", "b"], "needs --group"),
        (["--group", "g"], "need --from-stream"),
        (["--until-now"], "need --from-stream"),
        (["--url", "http://x"], "not the URL of a server"),
        (["--url", "redis://127.0.0.1:1"], "no server answers at redis://127.0.0.1:1"),
        (["--url", "unix:///nowhere", "--cluster"], "neither a unix socket"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_2(arguments: list[str], reason: str) -> None:
    outcome = invoke("events", "put", "q", "j", *arguments)
    assert outcome.status == 2
    assert reason in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_missing_file_is_one_line_and_2(servers: Servers) -> None:
    days = DaysServer(servers, "redis")
    outcome = run("events", "put", "q", "j", "--file", "/nowhere", *days.options)
    assert (outcome.status, outcome.stderr) == (2, "tidelog: /nowhere: No such file or directory\n")
    days.close()


def test_a_wrong_type_is_told(servers: Servers) -> None:
    days = DaysServer(servers, "tidelog")
    days.redis.set("{q_j}_streams", "x")
    outcome = run("events", "put", "q", "j", *days.options, stdin=text_of(LINES))
    assert outcome.status == 2
    assert "WRONGTYPE" in outcome.stderr
    days.close()


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    from tests.integration.server_process import ServerProcess

    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(tmp_path / "password")) as server:
        options = ["--url", f"redis://127.0.0.1:{server.port}"]
        refused = run("events", "put", "q", "j", *options, stdin=text_of(LINES))
        assert refused.status == 2
        assert "does not let us in" in refused.stderr
        outcome = run(
            "events", "put", "q", "j", *options, "--password-file", tmp_path / "password", stdin=text_of(LINES)
        )
        assert outcome == (0, "8 written, 0 duplicate, 0 late\n", "")
        (tmp_path / "password").chmod(0o644)
        outcome = run("events", "ls", *options, "--password-file", tmp_path / "password")
        assert outcome.status == 0
        told = f"every user of this machine can read the password in {tmp_path / 'password'}"
        assert outcome.stderr == f"tidelog: {told}: chmod 600 {tmp_path / 'password'}\n"
