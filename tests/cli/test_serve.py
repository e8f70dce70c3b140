"""`tidelog serve` as a command; what it does is tested in tests/integration/test_server*.py."""

from __future__ import annotations

import inspect

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
