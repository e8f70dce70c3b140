"""`tidelog channels serve` as a command; what it does is tested in tests/integration/test_channels.py."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.command_line import invoke


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "many"], "--port must be a port, 0 to 65535, or auto"),
        (["--expire", "soon"], "--expire must be a number of seconds, or an age such as 30m"),
        (["--expire", "0"], "--expire must be"),
        (["--origins", "shop.example"], "--origins must be origins such as https://shop.example"),
        (["--backend", "http://:secret@h"], "is not the URL of a server"),
        (["--tls-cert", "cert.pem"], "--tls-cert and --tls-key need each other"),
        (["--password-file", "nowhere"], "--password-file names nowhere, which cannot be read"),
        (["--handle-key-file", "nowhere"], "nowhere: No such file or directory"),
    ],
)
def test_a_bad_option_is_one_line(options: list[str], says: str) -> None:
    outcome = invoke("channels", "serve", *options)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert says in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert "secret" not in outcome.stderr


def test_a_handle_key_that_is_short(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("short\n")
    file.chmod(0o600)
    handler = signal.getsignal(signal.SIGINT)
    outcome = invoke("channels", "serve", "--port", "auto", "--handle-key-file", str(file))
    assert signal.getsignal(signal.SIGINT) is handler
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr == "tidelog: a key for receipt handles has at least 16 bytes\n"
