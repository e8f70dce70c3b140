"""`tidelog channel pub`: one message, many lines, and what is said when something is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.channels.servers import ChannelServer, ChannelServers, emptied
from tests.cli.channel.running import Running, at, fill, left, printed, until
from tests.cli.command_line import invoke, run, run_program_on_terminal
from tests.integration.server_process import ServerProcess


def lines(*values: Any) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


# --- one message ------------------------------------------------------------------------------------------------------


def test_one_message_and_the_same_again(any_server: ChannelServer) -> None:
    fill(any_server, 0)
    assert run("channel", "pub", "orders", '{"total": 1.50}', "--id", "order-17", *at(any_server)) == (
        0,
        "order-17 is published\n",
        "",
    )
    again = run("channel", "pub", "orders", "2", "--id", "order-17", *at(any_server))
    assert again == (0, "order-17 was published before\n", "")
    as_json = run("channel", "pub", "orders", "2", "--id", "order-18", "--json", *at(any_server))
    assert as_json.objects == [{"kind": "published", "id": "order-18", "clock": 2, "is_new": True}]
    assert left(any_server) == [{"total": 1.5}, 2]


def test_an_id_is_made_or_taken_from_the_content(one_server: ChannelServer) -> None:
    made = run("channel", "pub", "orders", "1", *at(one_server))
    assert re.fullmatch("[0-9a-f]{32} is published\n", made.stdout)
    taken = run("channel", "pub", "orders", '{"number": 17}', "--id-from", "number", *at(one_server))
    assert taken.stdout == "17 is published\n"


def test_the_expiry_and_replicas_are_options(channel_servers: ChannelServers) -> None:
    server = emptied(channel_servers.get("cluster"))
    assert run("channel", "pub", "orders", "1", "--expire", "5s", "--confirm-replicas", "1", *at(server)).status == 0
    assert 0 < server.client.pttl("c.{orders}.m.1") <= 5000
    outcome = run("channel", "pub", "orders", "1", "--confirm-replicas", "9", *at(server))
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "1 of 9 replicas have what was written" in outcome.stderr


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_message_for_each_line(any_server: ChannelServer) -> None:
    fill(any_server, 0)
    text = lines(1, "zwei", {"three": 3}) + "\n" + '{"four": 4}'  # an empty line, and one without an end
    outcome = run("channel", "pub", "orders", *at(any_server), stdin=text)
    assert outcome == (0, "4 published, 0 known\n", "")
    assert left(any_server) == [1, "zwei", {"three": 3}, {"four": 4}]


def test_lines_with_ids_may_be_published_again(one_server: ChannelServer) -> None:
    fill(one_server, 0)
    values = [{"id": f"m{number}", "number": number} for number in range(1000)]
    first = run("channel", "pub", "orders", "--id-from", "id", "--json", *at(one_server), stdin=lines(*values[:700]))
    assert first.objects == [{"kind": "summary", "published": 700, "known": 0}]
    again = run("channel", "pub", "orders", "--id-from", "id", "--json", *at(one_server), stdin=lines(*values))
    assert again.objects == [{"kind": "summary", "published": 300, "known": 700}]
    assert printed(one_server) == values


def test_content_stays_the_text_that_it_is(one_server: ChannelServer) -> None:
    fill(one_server, 0)
    text = '{"id": "a", "n": 1.50, "n": 9007199254740993, "big": ' + "9" * 5000 + "}"
    run("channel", "pub", "orders", "--id-from", "id", *at(one_server), stdin=text)
    outcome = run("channel", "sub", "orders", "me", "--no-follow", "--output", "content", *at(one_server))
    assert outcome.stdout == f"{text}\n"


def test_lines_are_published_as_they_come(one_server: ChannelServer) -> None:
    fill(one_server, 0)
    with (
        Running("pub", "orders", *at(one_server), stdin=subprocess.PIPE) as publisher,
        Running("sub", "orders", "me", *at(one_server)) as subscriber,
    ):
        for number in range(3):
            publisher.write(f"{number}\n")
            assert subscriber.line()["content"] == number
        assert publisher.process.stdin is not None
        publisher.process.stdin.close()
        assert publisher.process.stdout is not None
        assert publisher.process.stdout.read() == b"3 published, 0 known\n"
        assert publisher.end() == (0, "")


def test_a_pipe_from_one_channel_to_another(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    out = run("channel", "sub", "orders", "me", "--no-follow", "--output", "content", *at(one_server)).stdout
    run("channel", "sub", "copies", "me", "--no-follow", *at(one_server))
    assert run("channel", "pub", "copies", *at(one_server), stdin=out).stdout == "5 published, 0 known\n"


PROGRAM = """
import io, sys
from tidelog.cli.app import app

sys.stdin = io.TextIOWrapper(io.BytesIO(b"1\\n2\\n3\\n"))
app(["channel", "pub", "orders", "--url", sys.argv[1], *sys.argv[2:]], prog_name="tidelog")
"""


def test_progress_on_a_terminal(one_server: ChannelServer) -> None:
    shown = run_program_on_terminal(PROGRAM, one_server.url)
    assert "3 published, 0 known" in shown.stderr
    assert shown.stdout == "3 published, 0 known\n"
    assert run_program_on_terminal(PROGRAM, one_server.url, "--no-progress").stderr == ""


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no", "line 3: not JSON: Expecting value at column 1"),
        ('{"id": "x", "n": NaN}', "line 3: not JSON: NaN"),
        ('{"id": "x"} 5', "line 3: not JSON: Extra data at column 13"),
        ('"no object"', "line 3: it has no text or number 'id' for the id"),
        ('{"id": null}', "line 3: it has no text or number 'id' for the id"),
        ('{"id": "a b"}', "line 3: 'a b' is not the name of a message"),
        ("[" * 100_000, "line 3: nested too deeply"),
        (f'{{"id": "x", "of": "{"y" * 1_100_000}"}}', "line 3: a message has at most 1048576 bytes"),
    ],
)
def test_a_bad_line_is_named_and_what_was_before_is_published(one_server: ChannelServer, line: str, says: str) -> None:
    fill(one_server, 0)
    text = lines({"id": "a"}, {"id": "b"}) + f"{line}\n" + lines({"id": "c"})
    outcome = invoke("channel", "pub", "orders", "--id-from", "id", *at(one_server), stdin=text)
    assert (outcome.status, outcome.stdout) == (2, "2 published, 0 known\n")
    assert outcome.stderr.startswith(f"tidelog: {says}")
    assert outcome.stderr.endswith("; the 2 messages before are published\n")
    assert outcome.stderr.count("\n") == 1
    assert left(one_server) == [{"id": "a"}, {"id": "b"}]


def test_a_line_without_an_end_is_not_waited_for(one_server: ChannelServer) -> None:
    """It comes through a pipe, piece by piece."""
    text = lines(1, 2) + '"' + "y" * 3_000_000
    outcome = run("channel", "pub", "orders", *at(one_server), stdin=text)
    assert (outcome.status, outcome.stdout) == (2, "2 published, 0 known\n")
    assert outcome.stderr.startswith("tidelog: line 3 has more than 1048576 bytes")
    assert outcome.stderr.endswith("; the 2 messages before are published\n")


def test_a_bad_first_line_publishes_nothing(one_server: ChannelServer) -> None:
    outcome = run("channel", "pub", "orders", *at(one_server), stdin="no\n1\n")
    assert (outcome.status, outcome.stdout) == (2, "0 published, 0 known\n")
    assert outcome.stderr == "tidelog: line 1: not JSON: Expecting value at column 1; nothing is published\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("orders", "hello"),
            "CONTENT: not JSON: Expecting value at column 1; a text needs quotes of its own: '\"hello\"'",
        ),
        (("orders", b"\xff".decode(errors="surrogateescape")), "CONTENT: not JSON: not UTF-8"),
        (("orders", "1", "--id", "a b"), "CONTENT: 'a b' is not the name of a message"),
        (("orders", "1", "--id-from", "id"), "CONTENT: it has no text or number 'id' for the id"),
        (("orders", "1", "--id", "a", "--id-from", "id"), "--id and --id-from cannot be used together"),
        (("orders", "--id", "a"), "--id is for one message: it needs CONTENT; for lines there is --id-from"),
        (("a.b", "1"), "'a.b' is not the name of a channel"),
        (("orders", "1", "--expire", "0"), "--expire must be a number of seconds, or an age such as 30m"),
        (("orders", "1", "--url", "redis://:secret@127.0.0.1:1"), "no server answers at redis://127.0.0.1:1"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    outcome = invoke("channel", "pub", *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert says in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert "secret" not in outcome.stderr


# --- servers and signals ----------------------------------------------------------------------------------------------


def test_it_waits_for_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    place = tmp_path / "data", "--fsync", "always", "--unix-socket", str(tmp_path / "socket")
    url = f"unix://{tmp_path}/socket"
    with ServerProcess(*place) as server, Running("pub", "orders", "--url", url, stdin=subprocess.PIPE) as running:
        run("channel", "sub", "orders", "me", "--no-follow", "--url", url)
        running.write("1\n")
        with Running("sub", "orders", "me", "--max", "1", "--url", url) as subscriber:
            assert subscriber.line()["content"] == 1
            assert subscriber.end()[0] == 0
        server.kill()
        running.write("2\n")
        assert running.told().endswith(": trying again\n")
        with ServerProcess(*place):
            assert running.told() == "tidelog: connected again\n"
            assert running.process.stdin is not None
            running.process.stdin.close()
            assert running.end() == (0, "")
            outcome = run("channel", "sub", "orders", "me", "--no-follow", "--url", url)
            assert [each["content"] for each in outcome.objects] == [2]


def test_no_server_at_the_beginning_is_an_error_at_once() -> None:
    outcome = run("channel", "pub", "orders", "--url", "redis://127.0.0.1:1", stdin="1\n2\n")
    assert (outcome.status, outcome.stdout) == (2, "0 published, 0 known\n")
    assert outcome.stderr.startswith("tidelog: no server answers at redis://127.0.0.1:1: ")
    assert outcome.stderr.endswith("; nothing is published, and perhaps some of the next 2\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_was_done(one_server: ChannelServer, number: int, status: int) -> None:
    fill(one_server, 0)
    with Running("pub", "orders", *at(one_server), stdin=subprocess.PIPE) as running:
        running.write("1\n2\n3")
        with Running("sub", "orders", "me", "--max", "2", *at(one_server)) as subscriber:
            assert subscriber.end()[0] == 0
        assert running.end(number) == (status, "")
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b"2 published, 0 known\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_publish_that_is_under_way_is_finished_and_counted(
    channel_servers: ChannelServers, number: int, status: int
) -> None:
    server = emptied(channel_servers.get("redis"))
    fill(server, 0)
    with Running("pub", "orders", *at(server), stdin=subprocess.PIPE) as running:
        running.write("1\n")
        until(lambda: server.clock("orders") == 1)
        with subprocess.Popen(
            ["redis-cli", "-p", server.url.rpartition(":")[2], "DEBUG", "SLEEP", "2"], stdout=subprocess.DEVNULL
        ) as sleeping:
            time.sleep(0.5)
            running.write("2\n")
            time.sleep(0.5)
            assert running.end(number) == (status, "")
            assert sleeping.wait() == 0
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b"2 published, 0 known\n"
    assert left(server) == [1, 2]


def test_help_says_what_an_id_is_for() -> None:
    text = " ".join(invoke("channel", "pub", "--help").stdout.split())
    assert "Publishing an id again changes nothing" in text
    assert "Exit status:" in text
    assert "JSON: with CONTENT, kind" in text
    assert "`tidelog channels serve` serves channels over HTTP" in text
