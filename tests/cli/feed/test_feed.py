"""`tidelog feed` on a real server: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, Outcome, run, run_on_terminal
from tests.integration.feed_server import now, url_of
from tests.integration.server_process import ServerProcess, is_readable


def pairs(outcome: Outcome) -> list[tuple[Any, Any]]:
    return [(each["key"], each["value"]) for each in outcome.of_kind("value")]


class Running:
    """A `tidelog feed` that goes on."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "feed", *arguments],
            env={**ENVIRONMENT, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._rest = b""

    def next(self, kind: str) -> dict[str, Any]:
        """The next line of a kind."""
        while True:
            line = self.line()
            if line["kind"] == kind:
                return line

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS_MAX
        while b"\n" not in self._rest:
            assert is_readable(self.process.stdout.fileno(), deadline - time.monotonic()), "nothing came"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.process.stderr and self.process.stderr.read()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self, number: int | None = None) -> tuple[int, str]:
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(SECONDS_MAX)
        assert self.process.stderr is not None
        return status, self.process.stderr.read().decode()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


# --- what it prints ---------------------------------------------------------------------------------------------


def test_history_as_json_lines(server: ServerProcess, redis: Any) -> None:
    since = str(now(redis))
    redis.set("user:1", "Ada")
    redis.set(b"user:\xff", b"\xfe\x00")
    redis.hset("user:h", "f", "v")
    redis.set("other", 1)
    redis.delete("user:1")
    outcome = run("feed", "--url", url_of(server), "--prefix", "user:", "--since", since, "--until-now", "--txn")
    assert outcome.status == 0, outcome.stderr
    assert outcome.stderr == ""
    first, *_, last = outcome.objects
    assert first == {
        "kind": "value",
        "ts": first["ts"],
        "key": "user:1",
        "type": "string",
        "field": None,
        "value": "Ada",
    }
    assert pairs(outcome)[1:] == [({"base64": "dXNlcjr/"}, {"base64": "/gA="}), ("user:h", "v"), ("user:1", None)]
    assert len(outcome.of_kind("commit")) == 4
    assert (last["kind"], last["start"], last["end"], last["ts"]) == ("checkpoint", "user:", "user;", now(redis))


def test_expiries_as_json_and_on_a_terminal(server: ServerProcess, redis: Any) -> None:
    since = str(now(redis))
    redis.set("brief:1", "x", pxat=4_000_000_000_000)
    redis.persist("brief:1")
    words = ("feed", "--url", url_of(server), "--prefix", "brief:", "--since", since, "--until-now", "--expiry")
    told = [line for line in run(*words, "--no-checkpoints").objects if line["kind"] == "expire"]
    assert [(line["key"], line["expire_ms"]) for line in told] == [("brief:1", 4_000_000_000_000), ("brief:1", None)]
    shown = run_on_terminal(*words).stdout
    assert "2096-10-02" in shown
    assert "never" in shown


def test_keys_spans_and_databases(server: ServerProcess, redis: Any) -> None:
    redis.mset(dict.fromkeys(("a", "b1", "b2", "c", "x", "y"), 1))
    place = ("--url", url_of(server), "--initial", "--until-now", "--no-checkpoints")
    outcome = run("feed", *place, "--key", "a", "--key", "nothing", "--span", "b2", "d", "--span", "y", "")
    assert sorted(pairs(outcome)) == [("a", "1"), ("b2", "1"), ("c", "1"), ("y", "1")]
    assert outcome.of_kind("checkpoint") == []
    assert len(pairs(run("feed", *place))) == 6
    assert pairs(run("feed", *place, "--db", "5")) == []


def test_in_order(server: ServerProcess, redis: Any) -> None:
    since = str(now(redis))
    for number in range(300):
        redis.set(f"k{number % 7}", number)
    outcome = run("feed", "--url", url_of(server), "--since", since, "--until-now", "--ordered")
    assert [int(each) for _, each in pairs(outcome)] == list(range(300))
    times = [each["ts"] for each in outcome.objects]
    assert times == sorted(times)


def test_until_a_moment(server: ServerProcess, redis: Any) -> None:
    since = str(now(redis))
    redis.set("a", 1)
    until = str(now(redis))
    redis.set("b", 1)
    assert pairs(run("feed", "--url", url_of(server), "--since", since, "--until", until)) == [("a", "1")]


def test_on_a_terminal(server: ServerProcess, redis: Any) -> None:
    since = str(now(redis))
    redis.set("greeting\x1b", "hello")
    redis.delete("greeting\x1b")
    outcome = run_on_terminal("feed", "--url", url_of(server), "--since", since, "--until-now")
    assert outcome.status == 0
    assert '"greeting\\x1b"' in outcome.stdout
    assert "hello" in outcome.stdout
    assert "deleted" in outcome.stdout
    assert "checkpoint" not in outcome.stdout
    assert "\x1b[" in outcome.stdout
    as_json = run_on_terminal("feed", "--url", url_of(server), "--since", since, "--until-now", "--json")
    assert as_json.of_kind("checkpoint")


# --- as it happens, and how it ends -----------------------------------------------------------------------------


def test_changes_are_printed_at_once(server: ServerProcess, redis: Any) -> None:
    with Running("--url", url_of(server)) as running:
        running.next("steady")
        redis.set("a", 1)
        assert running.next("value")["key"] == "a"
        assert running.end(signal.SIGTERM) == (0, "")


def test_ctrl_c(server: ServerProcess, redis: Any) -> None:
    with Running("--url", url_of(server)) as running:
        running.next("steady")
        assert running.end(signal.SIGINT) == (130, "")


def test_it_can_be_stopped_while_nobody_reads(server: ServerProcess, redis: Any) -> None:
    redis.mset({f"k{number}": "v" * 1000 for number in range(2000)})
    with Running("--url", url_of(server), "--initial") as running:
        running.line()
        time.sleep(0.5)  # until the pipe is full
        assert running.end(signal.SIGTERM) == (0, "")


def test_a_closed_pipe_ends_it_also_when_nothing_happens(server: ServerProcess, redis: Any) -> None:
    with Running("--url", url_of(server), "--no-checkpoints") as running:
        running.next("steady")
        assert running.process.stdout is not None
        running.process.stdout.close()
        assert running.end() == (0, "")


def test_it_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--unix-socket", str(tmp_path / "socket")) as server:
        with Running("--url", f"unix://{tmp_path}/socket") as running:
            running.next("steady")
            server.client().set("a", 1)
            assert running.next("value")["key"] == "a"
            server.terminate()
            with ServerProcess(tmp_path / "data", "--unix-socket", str(tmp_path / "socket")) as again:
                again.client().set("b", 2)
                assert running.next("value")["key"] == "b"
                status, errors = running.end(signal.SIGTERM)
        assert status == 0
        assert "connection lost" in errors
        assert "connected again" in errors


def test_a_name_is_acknowledged(server: ServerProcess, redis: Any) -> None:
    with Running("--url", url_of(server), "--name", "printer", "--since", str(now(redis))) as running:
        running.next("steady")
        redis.set("a", 1)
        running.next("value")
        running.next("checkpoint")
        running.next("checkpoint")  # the one before is acknowledged
        assert running.end(signal.SIGTERM)[0] == 0
    redis.set("b", 2)
    assert pairs(run("feed", "--url", url_of(server), "--name", "printer", "--until-now")) == [("b", "2")]


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "redis://127.0.0.1:1"), "127.0.0.1:1"),
        (("--url", "http://127.0.0.1"), "is not the URL of a server"),
        (("--since", "yesterday"), "--since: 'yesterday' is neither"),
        (("--since", "1", "--initial"), "cannot be used together"),
        (("--until", "1", "--until-now"), "cannot be used together"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_2(arguments: tuple[str, ...], message: str) -> None:
    outcome = run("feed", *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("tidelog: ")
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_feed_that_the_server_refuses(server: ServerProcess) -> None:
    outcome = run("feed", "--url", url_of(server), "--span", "b", "a")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "ends before it begins" in outcome.stderr


def test_history_that_is_gone(tmp_path: Path) -> None:
    """A restored directory has the values of a moment, and no history before it."""
    with ServerProcess(tmp_path / "data") as server:
        server.client().set("a", 1)
    assert run("snapshot", "--data", tmp_path / "data", "--to", tmp_path / "backup").status == 0
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "restored").status == 0
    with ServerProcess(tmp_path / "restored") as server:
        outcome = run("feed", "--url", url_of(server), "--since", "1")
        assert (outcome.status, outcome.stdout) == (2, "")
        oldest = now(server.client())
        assert f"start with --since {oldest}" in outcome.stderr
        assert run("feed", "--url", url_of(server), "--since", str(oldest), "--until-now").status == 0


def test_passwords(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(file)) as server:
        place = f"127.0.0.1:{server.port}"
        for arguments, environment in (
            (("--url", f"redis://:s3cret@{place}"), {}),
            (("--url", f"redis://{place}", "--password-file", str(file)), {}),
            (("--url", f"redis://{place}"), {"TIDELOG_REQUIREPASS_FILE": str(file)}),
        ):
            with Running(*arguments, **environment) as running:
                running.next("steady")
                assert running.end(signal.SIGTERM)[0] == 0
        outcome = run("feed", "--url", f"redis://{place}")
        assert outcome.status == 2
        assert "does not let us in" in outcome.stderr
