"""The file with the rules: it is read again when asked or on a signal, and a mistake keeps what was."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from tests.channels.servers import in_loop
from tidelog.channels.rules_file import ChannelRulesFile
from tidelog.errors import BadChannelRules, InvalidChannel

ONE = "[[channels]]\nregex = 'one'\nexpire = '1m'\n"
TWO = "[[channels]]\nregex = 'one|two'\nexpire = '2m'\n"


def test_a_file_is_read_again_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(ONE)
    file = ChannelRulesFile(str(path))
    before = file.rules
    with pytest.raises(InvalidChannel):
        file.rules.match("two")
    path.write_text(TWO)
    assert file.rules is before
    file.reload()
    assert file.rules.match("two").expire_ms == 120_000


@pytest.mark.parametrize(
    "mistake", ["[[channels]", TWO + "x = 1", "", "other = 1\n" + TWO, None, "#" * 2_000_000, "\0"]
)
def test_a_mistake_keeps_the_rules_from_before(mistake: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(ONE)
    file = ChannelRulesFile(str(path))
    if mistake is None:
        path.unlink()
    else:
        path.write_text(mistake)
    before = file.rules
    with pytest.raises(BadChannelRules, match=r"rules\.toml: .*; the rules from before stay in force"):
        file.reload()
    assert file.rules is before
    with pytest.raises(BadChannelRules, match=r"rules\.toml: "):
        ChannelRulesFile(str(path))


def test_other_settings_may_be_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text("port = 1\n" + ONE)
    assert ChannelRulesFile(str(path), beside={"port"}).rules.match("one").expire_ms == 60_000


@in_loop
async def test_a_signal_has_it_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(ONE)
    file = ChannelRulesFile(str(path))
    before = file.rules
    file.reload_on_signal(signal.SIGUSR2)
    try:
        with caplog.at_level(logging.INFO, "tidelog.channels"):
            path.write_text("[[channels]]\nregex = 3")
            os.kill(os.getpid(), signal.SIGUSR2)
            while not caplog.records:
                await asyncio.sleep(0.01)
            assert "channels[1].regex: must be a text" in caplog.text
            assert file.rules is before
            path.write_text(TWO)
            os.kill(os.getpid(), signal.SIGUSR2)
            while file.rules is before:
                await asyncio.sleep(0.01)
        assert file.rules.match("two").expire_ms == 120_000
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)
