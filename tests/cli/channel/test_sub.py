"""`tidelog channel sub`: what it prints, when it acknowledges, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.channels.servers import ChannelServer
from tests.cli.channel.running import Running, at, fill, left, printed, until
from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run, run_on_terminal
from tests.integration.server_process import ServerProcess
from tidelog.channels import ChannelPlace
from tidelog.cli.channel.sub import MessageForm, line_of
from tidelog.client.listening import Listener
from tidelog.client.received_message import MessagePlace, ReceivedMessage

# --- what it prints ---------------------------------------------------------------------------------------------------


def test_a_new_subscriber_is_told_of_and_gets_what_follows(any_server: ChannelServer) -> None:
    first = run("channel", "sub", "orders", "me", "--no-follow", *at(any_server))
    assert first == (0, "", "tidelog: me is a new subscriber of orders: it gets messages from now on\n")
    run("channel", "pub", "orders", '{"total": 3}', "--id", "order-17", *at(any_server))
    again = run("channel", "sub", "orders", "me", "--no-follow", *at(any_server))
    assert again == (0, '{"kind":"message","id":"order-17","content":{"total": 3}}\n', "")
    assert run("channel", "sub", "orders", "me", "--no-follow", *at(any_server)) == (0, "", "")


def test_everything_that_there_is_in_order(one_server: ChannelServer) -> None:
    fill(one_server, 500)
    assert printed(one_server) == list(range(500))
    assert left(one_server) == []


def test_only_the_content(one_server: ChannelServer) -> None:
    fill(one_server, 2)
    outcome = run("channel", "sub", "orders", "me", "--no-follow", "--output", "content", *at(one_server))
    assert outcome == (0, "0\n1\n", "")


def test_so_many_and_no_more(one_server: ChannelServer) -> None:
    fill(one_server, 100)
    outcome = run("channel", "sub", "orders", "me", "--max", "3", *at(one_server))
    assert (outcome.status, [each["content"] for each in outcome.objects]) == (0, [0, 1, 2])
    assert printed(one_server, "--max", "70") == list(range(3, 73))
    assert left(one_server) == list(range(73, 100))


def test_it_follows_and_prints_at_once(any_server: ChannelServer) -> None:
    with Running("sub", "orders", "me", *at(any_server)) as running:
        assert "new subscriber" in running.told()
        for number in range(3):
            fill(any_server, 1, begin=number)
            assert running.line()["content"] == number
        until(lambda: any_server.cursor("orders", "me") == 3)
        assert running.end(signal.SIGTERM) == (0, "")


def test_a_terminal_gets_lines_too(one_server: ChannelServer) -> None:
    fill(one_server, 2)
    outcome = run_on_terminal("channel", "sub", "orders", "me", "--no-follow", *at(one_server))
    assert outcome.status == 0
    assert [json.loads(line)["content"] for line in outcome.stdout.splitlines()] == [0, 1]
    assert left(one_server) == []


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"price": 1.50, "of": 9007199254740993}', '{"price": 1.50, "of": 9007199254740993}'),
        (b'{\n\t"a": 1\r\n}', '{  "a": 1  }'),
        ('"ä\u2028\x7f\x9b😀"'.encode(), '"\\u00e4\\u2028\\u007f\\u009b\\ud83d\\ude00"'),
    ],
)
def test_content_is_printed_as_one_line_of_ascii(content: bytes, line: str) -> None:
    message = ReceivedMessage("m1", content, MessagePlace(ChannelPlace(1), 0))
    assert line_of(message, MessageForm.CONTENT) == f"{line}\n"
    whole = json.loads(line_of(message, MessageForm.MESSAGE))
    assert whole == {"kind": "message", "id": "m1", "content": json.loads(content)}


def test_what_another_program_wrote_and_is_not_json_is_passed_over(one_server: ChannelServer) -> None:
    fill(one_server, 3)
    one_server.client.set("c.{orders}.m.2", b'{"id":"odd","content":not JSON}')
    outcome = run("channel", "sub", "orders", "me", "--max", "2", *at(one_server))
    assert (outcome.status, [each["content"] for each in outcome.objects]) == (0, [0, 2])
    assert outcome.stderr.startswith(
        "tidelog: passed over a message that another program wrote: the message odd is not"
    )
    assert left(one_server) == []


# --- when it acknowledges ---------------------------------------------------------------------------------------------


def test_what_stands_in_the_pipe_when_its_reader_dies_comes_again(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    with Running("sub", "orders", "me", *at(one_server)) as running:
        assert running.process.stdout is not None
        time.sleep(1.5)  # it has printed all, and looked at the pipe several times
        running.process.stdout.close()
        assert running.end() == (0, "")
    assert left(one_server) == [0, 1, 2, 3, 4]


def test_what_was_taken_out_of_the_pipe_does_not(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    with Running("sub", "orders", "me", *at(one_server)) as running:
        assert [running.line()["content"] for _ in range(5)] == [0, 1, 2, 3, 4]
        until(lambda: one_server.cursor("orders", "me") == 5)
        assert running.end(signal.SIGTERM) == (0, "")


def test_a_consumer_that_takes_one_at_a_time_has_the_rest_left(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    script = f'{" ".join(COMMAND)} channel sub orders me --url {one_server.url} | (read -r line; echo "$line")'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["content"] == 0
    assert left(one_server) in ([0, 1, 2, 3, 4], [1, 2, 3, 4])  # whether it was seen that the line was taken


def test_head_gets_its_line_and_the_command_ends(any_server: ChannelServer) -> None:
    fill(any_server, 200)
    script = f"set -o pipefail; {' '.join(COMMAND)} channel sub orders me --url {any_server.url} | head -1"
    done = subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["content"] == 0
    rest = left(any_server)  # what `head` had not taken
    assert rest == list(range(200))[-len(rest) :]


def test_a_killed_consumer_gets_again_what_was_not_acknowledged(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    with Running("sub", "orders", "me", *at(one_server)) as running:
        assert [running.line()["content"] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert running.end(signal.SIGKILL)[0] == -signal.SIGKILL
    rest = left(one_server)
    assert rest == [0, 1, 2, 3, 4][5 - len(rest) :]
    fill(one_server, 1, begin=5)
    assert printed(one_server) == [*rest, 5]


def test_a_file_has_taken_what_was_flushed(one_server: ChannelServer, tmp_path: Path) -> None:
    fill(one_server, 5)
    with (
        (tmp_path / "out").open("wb") as file,
        Running("sub", "orders", "me", *at(one_server), stdout=file.fileno()) as it,
    ):
        until(lambda: one_server.cursor("orders", "me") == 5)
        assert (tmp_path / "out").read_text().count("\n") == 5
        assert it.end(signal.SIGTERM) == (0, "")


def test_a_disk_that_is_full_acknowledges_nothing(one_server: ChannelServer) -> None:
    fill(one_server, 5)
    with (
        open("/dev/full", "wb") as full,
        Running("sub", "orders", "me", *at(one_server), stdout=full.fileno()) as running,
    ):
        status, told = running.end()
    assert status == 2
    assert told.startswith("tidelog: ")
    assert "No space left on device" in told
    assert left(one_server) == [0, 1, 2, 3, 4]


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_a_closed_pipe_ends_it_also_when_nothing_comes(one_server: ChannelServer) -> None:
    fill(one_server, 1)
    with Running("sub", "orders", "me", *at(one_server)) as running:
        running.line()
        assert running.process.stdout is not None
        running.process.stdout.close()
        assert running.end() == (0, "")


def test_ctrl_c_acknowledges_what_was_taken(one_server: ChannelServer) -> None:
    fill(one_server, 3)
    with Running("sub", "orders", "me", *at(one_server)) as running:
        assert [running.line()["content"] for _ in range(3)] == [0, 1, 2]
        time.sleep(0.1)  # it waits again, and has not looked at the pipe
        assert running.end(signal.SIGINT) == (130, "")
    assert left(one_server) == []


def test_it_can_be_stopped_while_nobody_reads(one_server: ChannelServer) -> None:
    with Listener(one_server.url) as listener:
        fill(one_server, 0)
        listener.run(listener.client.channel("orders").publish_many(["x" * 1000] * 300))
    with Running("sub", "orders", "me", *at(one_server)) as running:
        running.line()
        time.sleep(0.5)  # until the pipe is full
        assert running.end(signal.SIGTERM) == (0, "")
    assert len(left(one_server)) > 100


def test_it_goes_on_after_a_kill_of_the_server(tmp_path: Path) -> None:
    place = tmp_path / "data", "--fsync", "always", "--unix-socket", str(tmp_path / "socket")
    url = f"unix://{tmp_path}/socket"
    with ServerProcess(*place) as server, Running("sub", "orders", "me", "--url", url) as running:
        assert "new subscriber" in running.told()
        assert run("channel", "pub", "orders", "1", "--url", url).status == 0
        assert running.line()["content"] == 1
        server.kill()
        assert running.told().startswith("tidelog: connection lost (")
        with ServerProcess(*place):
            assert run("channel", "pub", "orders", "2", "--url", url).status == 0
            assert running.line()["content"] == 2
            assert running.end(signal.SIGTERM) == (0, "tidelog: connected again\n")


def test_a_subscriber_that_is_removed_ends_it(one_server: ChannelServer) -> None:
    with Running("sub", "orders", "me", *at(one_server)) as running:
        running.told()
        run("channel", "rm", "orders", "me", *at(one_server))
        run("channel", "pub", "orders", "1", *at(one_server))
        status, told = running.end()
    assert status == 2
    assert told.startswith("tidelog: the channel orders has no subscriber me: ")
    assert told.endswith("; with --anew, the command does so by itself\n")


def test_with_anew_it_goes_on_as_a_new_one(one_server: ChannelServer) -> None:
    with Running("sub", "orders", "me", "--anew", *at(one_server)) as running:
        running.told()
        run("channel", "rm", "orders", "me", *at(one_server))
        run("channel", "pub", "orders", "1", *at(one_server))
        assert running.told().startswith("tidelog: me of orders begins anew, and may have missed messages: ")
        fill(one_server, 1, begin=2)
        first = running.line()["content"]
        if first == 1:  # it has begun anew before that was published
            first = running.line()["content"]
        assert first == 2
        assert running.end(signal.SIGTERM) == (0, "")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b", "me"), "'a b' is not the name of a channel"),
        (("orders", "a b"), "'a b' is not the name of a subscriber"),
        (("orders", "webhook-x"), "belong to webhooks"),
        (("orders", "me", "--expire", "soon"), "--expire must be a number of seconds, or an age such as 30m"),
        (("orders", "me", "--url", "http://:secret@h"), "is not the URL of a server"),
        (("orders", "me", "--url", "redis://:secret@127.0.0.1:1"), "no server answers at redis://127.0.0.1:1"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    outcome = invoke("channel", "sub", *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert says in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert "secret" not in outcome.stderr


def test_help_points_at_the_other_group() -> None:
    assert "`tidelog channels serve` serves" in " ".join(invoke("channel", "sub", "--help").stdout.split())
    assert "`tidelog channels` serves them" in " ".join(invoke("channel", "--help").stdout.split())
    assert "use `tidelog channel`" in " ".join(invoke("channels", "serve", "--help").stdout.split())
    assert "`tidelog channel` publishes" in " ".join(invoke("channels", "--help").stdout.split())
