"""`tidelog stream ls`, `tail` and `info` beside a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command_line import ENVIRONMENT, run
from tests.integration.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("stream") / "data") as running:
        client: Any = running.client()
        for number in range(25):
            client.execute_command("TWRITE", "orders", f"t{number % 3}", f"entry {number}")
        client.execute_command("TREAD", "orders", 0, 5, "GROUP", "workers", "RETRY", 60000, 0)
        client.execute_command("TWRITE", "other:1", "", b"\xff\x1b[31m")
        client.set("string", "v")
        client.select(2)
        yield running


def call(server: ServerProcess, *words: str) -> Any:
    return run("stream", *words, "--url", f"redis://127.0.0.1:{server.port}")


def test_ls(server: ServerProcess) -> None:
    lines = [json.loads(line) for line in call(server, "ls", "--json").stdout.splitlines()]
    assert [(line["kind"], line["key"], line["length"]) for line in lines] == [
        ("stream", "orders", 25),
        ("stream", "other:1", 1),
    ]
    assert (lines[0]["groups"], lines[0]["pending"], lines[0]["last_offset"]) == (1, 5, 25)
    text = call(server, "ls", "other*").stdout
    assert '"other:1"' in text
    assert "orders" not in text


def test_tail(server: ServerProcess) -> None:
    entries = [json.loads(line) for line in call(server, "tail", "orders", "--json").stdout.splitlines()]
    assert [entry["offset"] for entry in entries] == list(range(16, 26))
    assert entries[-1] == {"kind": "entry", "offset": 25, "tag": "t0", "entry": "entry 24"}
    everything = call(server, "tail", "orders", "--from", "0", "--json").stdout.splitlines()
    assert len(everything) == 25
    assert len(call(server, "tail", "orders", "--count", "3").stdout.splitlines()) == 4


def test_what_is_printed_is_printable(server: ServerProcess) -> None:
    assert "\x1b" not in call(server, "tail", "other:1").stdout
    (line,) = call(server, "tail", "other:1", "--json").stdout.splitlines()
    assert json.loads(line)["entry"] == {"base64": "/xtbMzFt"}


def test_info(server: ServerProcess) -> None:
    stream, group = [json.loads(line) for line in call(server, "info", "orders", "--json").stdout.splitlines()]
    assert (stream["kind"], stream["key"], stream["length"]) == ("stream", "orders", 25)
    assert (group["kind"], group["name"], group["pending"], group["last_offset"]) == ("group", "workers", 5, 5)
    assert "workers" in call(server, "info", "orders").stdout


def test_follow_goes_on_until_it_is_stopped(server: ServerProcess) -> None:
    words = [sys.executable, "-m", "tidelog.cli", "stream", "tail", "live", "--follow", "--json"]
    words += ["--url", f"redis://127.0.0.1:{server.port}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        client: Any = server.client()
        assert process.stdout is not None
        for number in range(3):
            client.execute_command("TWRITE", "live", "t", f"e{number}")
            assert json.loads(process.stdout.readline())["entry"] == f"e{number}"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["info", "missing"], "no such key"),
        (["tail", "string"], "WRONGTYPE"),
        (["tail", "orders", "--database", "16"], "less than or equal to 15"),
    ],
)
def test_mistakes(server: ServerProcess, words: list[str], says: str) -> None:
    done = call(server, *words)
    assert done.status == 2
    assert says in done.stderr


def test_no_server() -> None:
    done = run("stream", "ls", "--url", "redis://127.0.0.1:1")
    assert done.status == 2
    assert "no server answers" in done.stderr
