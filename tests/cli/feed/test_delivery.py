"""`tidelog feed --name`: what its consumer has not handled comes again, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, run
from tests.integration.feed_server import now, url_of
from tests.integration.server_process import ServerProcess


def words(server: ServerProcess, name: str, *more: str) -> list[str]:
    return ["--url", url_of(server), "--name", name, "--prefix", "k", *more]


def new(server: ServerProcess, redis: Any, name: str, *more: str) -> list[str]:
    """The same for a name that begins now."""
    return words(server, name, "--since", str(now(redis)), *more)


def started(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "feed", *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, **options)


def ended(process: subprocess.Popen[bytes], number: int | None = signal.SIGTERM) -> tuple[int, str]:
    if number is not None:
        process.send_signal(number)
    status = process.wait(SECONDS_MAX)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    assert process.stderr is not None
    told = process.stderr.read().decode()
    process.stderr.close()
    return status, told


def until(is_so: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := is_so()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def hold(redis: Any, name: str) -> dict[bytes, Any] | None:
    found = [each for each in redis.execute_command("FEED", "HOLDS") if each[b"name"] == name.encode()]
    return found[0] if found else None


def begun(redis: Any, name: str) -> None:
    until(lambda: (found := hold(redis, name)) and found[b"reader"])


def left(server: ServerProcess, name: str) -> list[str]:
    """What a reader of that name gets now."""
    outcome = run("feed", *words(server, name, "--until-now", "--no-checkpoints"))
    assert outcome.status == 0, outcome.stderr
    return [each["value"] for each in outcome.of_kind("value")]


def set_five(redis: Any) -> list[str]:
    for number in range(5):
        redis.set(f"k{number}", number)
    return [str(number) for number in range(5)]


# --- a pipe -----------------------------------------------------------------------------------------------------------


def test_what_stands_in_the_pipe_when_its_reader_dies_comes_again(server: ServerProcess, redis: Any) -> None:
    process = started(*new(server, redis, "piped"), stdout=subprocess.PIPE)
    begun(redis, "piped")
    values = set_five(redis)
    before = now(redis)
    until(lambda: redis.execute_command("FEED", "LIST")[0][b"checkpoint"] > before)
    time.sleep(1.5)  # so that a checkpoint after them was printed, and another came
    assert ended(process)[0] == 0
    assert left(server, "piped") == values


def test_what_was_taken_out_of_the_pipe_does_not(server: ServerProcess, redis: Any) -> None:
    process = started(*new(server, redis, "taken"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    begun(redis, "taken")
    values = set_five(redis)
    found: list[str] = []
    while len(found) < 5:
        line = json.loads(process.stdout.readline())
        found += [line["value"]] if line["kind"] == "value" else []
    assert found == values
    while json.loads(process.stdout.readline())["kind"] != "checkpoint":
        pass
    ts = now(redis)
    until(lambda: (held := hold(redis, "taken")) and held[b"ts"] >= ts)
    redis.set("k9", "later")
    assert ended(process)[0] == 0
    assert left(server, "taken") == ["later"]


# --- confirmations ----------------------------------------------------------------------------------------------------


def test_only_what_was_confirmed_does_not_come_again(server: ServerProcess, redis: Any) -> None:
    arguments = new(server, redis, "confirmed", "--ack-from", "0")
    process = started(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    begun(redis, "confirmed")
    values = set_five(redis)
    lines: list[bytes] = []
    while len([line for line in lines if b'"value"' in line]) < 5:
        lines.append(process.stdout.readline())
    changes = [line for line in lines if json.loads(line)["kind"] == "value"]
    process.stdin.write(b"%d\n" % json.loads(changes[1])["ts"])
    process.stdin.flush()
    until(lambda: (held := hold(redis, "confirmed")) and held[b"ts"] == json.loads(changes[1])["ts"])
    process.stdin.write(b"\n" + changes[2])  # the line as it was printed
    process.stdin.flush()
    until(lambda: (held := hold(redis, "confirmed")) and held[b"ts"] == json.loads(changes[2])["ts"])
    assert ended(process)[0] == 0
    assert left(server, "confirmed") == values[3:]


@pytest.mark.parametrize(
    ("line", "message"),
    [(b"soon\n", "is neither a ts nor an event with one"), (b"9999999999999999\n", "was not printed yet")],
)
def test_a_confirmation_that_makes_no_sense_ends_it(
    server: ServerProcess, redis: Any, line: bytes, message: str
) -> None:
    arguments = new(server, redis, "senseless", "--ack-from", "0")
    process = started(*arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    begun(redis, "senseless")
    process.stdin.write(line)
    process.stdin.flush()
    status, told = ended(process, None)
    assert status == 2
    assert message in told
    assert told.count("\n") == 1


def test_a_consumer_that_closes_its_end_ends_it(server: ServerProcess, redis: Any) -> None:
    process = started(
        *new(server, redis, "closed", "--ack-from", "0"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    begun(redis, "closed")
    set_five(redis)
    assert process.stdin is not None
    process.stdin.close()
    assert ended(process, None) == (0, "")
    assert len(left(server, "closed")) == 5


def test_a_consumer_in_both_directions(server: ServerProcess, redis: Any, tmp_path: Path) -> None:
    """It confirms values only, and ends when there is no more: so does the feed."""
    values = set_five(redis)
    arguments = words(server, "both", "--since", "0", "--until-now", "--ack-from", "3")
    script = f"""
        mkfifo back
        {" ".join(COMMAND)} feed {" ".join(arguments)} 3<back |
        while read -r line; do
            case $line in *'"kind":"value"'*) echo "$line" >> seen; echo "$line";; esac
        done > back
    """
    done = subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, cwd=tmp_path, timeout=2 * SECONDS_MAX, capture_output=True, check=True
    )
    assert done.stderr == b""
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [each["value"] for each in seen][-5:] == values
    held = hold(redis, "both")
    assert held is not None
    assert held[b"ts"] == seen[-1]["ts"]
    assert left(server, "both") == []


# --- a command --------------------------------------------------------------------------------------------------------


def test_a_command_gets_batches_and_the_same_again_until_it_succeeds(
    server: ServerProcess, redis: Any, tmp_path: Path
) -> None:
    values = set_five(redis)
    command = f"cd {tmp_path}; cat > seen; cat seen >> all; test -e tried || {{ touch tried; exit 7; }}"
    outcome = run("feed", *words(server, "executed", "--since", "0", "--until-now", "--txn", "--exec", command))
    assert (outcome.status, outcome.stdout) == (0, "")
    assert "ended with status 7: the same " in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    lines = (tmp_path / "all").read_text().splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    batch = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [each["value"] for each in batch if each["kind"] == "value"][-5:] == values
    assert {each["kind"] for each in batch} <= {"value", "deleterange", "commit", "steady"}
    assert left(server, "executed") == []


def test_a_command_that_never_succeeds_acknowledges_nothing(server: ServerProcess, redis: Any, tmp_path: Path) -> None:
    command = f"cat > {tmp_path}/seen; echo once >> {tmp_path}/tries; kill -9 $$"
    process = started(*new(server, redis, "failing", "--exec", command), stdout=subprocess.DEVNULL)
    begun(redis, "failing")
    values = set_five(redis)
    until(lambda: (tmp_path / "tries").exists() and (tmp_path / "tries").read_text().count("once") >= 2)
    status, told = ended(process)
    assert status == 0
    assert "was ended by signal 9" in told
    assert left(server, "failing") == values


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_second_reader_of_a_name_ends_the_first(server: ServerProcess, redis: Any) -> None:
    first = started(*new(server, redis, "twice"), stdout=subprocess.DEVNULL)
    begun(redis, "twice")
    second = started(*words(server, "twice"), stdout=subprocess.DEVNULL)
    status, told = ended(first, None)
    assert status == 2
    assert "another reader has taken over the name 'twice'" in told
    assert ended(second)[0] == 0


def test_a_name_that_nobody_has_begun_is_refused(server: ServerProcess) -> None:
    outcome = run("feed", *words(server, "mistaken"))
    assert outcome.status == 2
    assert "there is no feed named 'mistaken': the first one says with SINCE or INITIAL" in outcome.stderr


def test_names_are_those_of_a_database(server: ServerProcess, redis: Any) -> None:
    with server.client(db=2) as other:
        other.set("k", "two")
        redis.set("k", "zero")
        for database in ("0", "2"):
            arguments = words(server, "everywhere", "--since", "0", "--until-now", "--db", database)
            assert run("feed", *arguments, "--no-checkpoints").status == 0
        redis.set("k", "more")
        other.set("k", "more of two")
        assert left(server, "everywhere") == ["more"]
        outcome = run("feed", *words(server, "everywhere", "--until-now", "--no-checkpoints", "--db", "2"))
        assert [each["value"] for each in outcome.of_kind("value")] == ["more of two"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exec", "cat"], "need --name"),
        (["--ack-from", "0"], "need --name"),
        (["--name", "n", "--exec", "cat", "--ack-from", "0"], "cannot be used together"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str) -> None:
    outcome = run("feed", *arguments)
    assert outcome.status == 2
    assert message in outcome.stderr


def test_a_file_cannot_confirm(server: ServerProcess, redis: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    number = os.open(tmp_path / "file", os.O_RDONLY)
    process = started(
        *new(server, redis, "file", "--ack-from", str(number)), stdout=subprocess.DEVNULL, pass_fds=[number]
    )
    status, told = ended(process, None)
    os.close(number)
    assert status == 2
    assert f"file descriptor {number} is not a pipe or a socket" in told
