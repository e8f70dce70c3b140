"""`tidelog serve` as a command; what it does is tested in tests/integration/test_server*.py."""

from __future__ import annotations

import inspect

import pytest

from tests.cli.command_line import invoke, run
from tidelog.cli import serve
from tidelog.server.configuration import SETTINGS


def test_help_names_every_setting() -> None:
    text = run("serve", "--help").stdout
    for name in SETTINGS:
        assert f"--{name}" in text


def test_every_setting_is_a_flag() -> None:
    parameters = set(inspect.signature(serve.serve).parameters)
    assert parameters == {name.replace("-", "_") for name in SETTINGS} | {"config"}


def test_a_bad_flag_is_one_line() -> None:
    outcome = invoke("serve", "--port", "many")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr == "tidelog: --port must be a port, 0 to 65535, or auto (it is 'many')\n"


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--replicaof", "leader", "6399", "--port", "1"], ["--replicaof", "leader 6399", "--port", "1"]),
        (["--port", "1", "--replicaof", "::1", "6399"], ["--port", "1", "--replicaof", "::1 6399"]),
        (["--replicaof", "leader:6399", "--port", "1"], ["--replicaof", "leader:6399", "--port", "1"]),
        (["--replicaof", "leader 6399"], ["--replicaof", "leader 6399"]),
        (["--replicaof", "leader"], ["--replicaof", "leader"]),
        (["--replicaof"], ["--replicaof"]),
        (["--port", "1"], ["--port", "1"]),
    ],
)
def test_a_leader_is_two_words_or_one(words: list[str], joined: list[str]) -> None:
    assert serve.join_leader(words) == joined


def test_a_leader_that_is_two_words_is_read_as_one() -> None:
    outcome = invoke("serve", "--replicaof", "leader", "65536")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "--replicaof must be a host and a port, such as 10.0.0.1:6399 (it is 'leader 65536')" in outcome.stderr
