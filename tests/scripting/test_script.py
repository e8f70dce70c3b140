"""The text of a script: its name and the flags of its first line."""

from __future__ import annotations

import pytest

from tidelog.errors import CommandError
from tidelog.scripting.script import Script, read_flags, sha_of


def test_its_name_is_its_sha1() -> None:
    assert sha_of(b"return 1") == b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def test_a_script_without_flags() -> None:
    script = Script(b"return 1", b"sha")
    assert not script.has_flags
    assert not script.is_read_only
    assert script.code == b"return 1"


def test_flags_and_lines() -> None:
    script = Script(b"#!lua flags=no-writes\nreturn 1", b"sha")
    assert script.has_flags
    assert script.is_read_only
    assert script.allows_oom
    assert script.code == b"\nreturn 1"
    assert Script(b"#!lua flags=allow-oom\n", b"sha").allows_oom
    assert not Script(b"#!lua\nreturn 1", b"sha").allows_oom


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"#!lua", "Invalid script shebang"),
        (b"#!py\n", "Unexpected engine in script shebang: #!py"),
        (b"#!lua x=1\n", "Unknown lua shebang option: x=1"),
        (b"#!lua flags=a,b\n", "Unexpected flag in script shebang: a"),
    ],
)
def test_a_bad_first_line(text: bytes, error: str) -> None:
    with pytest.raises(CommandError, match=error):
        read_flags(text)
