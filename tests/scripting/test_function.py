"""The first line of a library, and the flags of a function."""

from __future__ import annotations

import pytest

from tidelog.errors import CommandError
from tidelog.scripting.function import Function, library_code, library_name


def test_the_first_line_names_the_library() -> None:
    code = b"#!lua name=my_lib2\nreturn 1"
    assert library_name(code) == b"my_lib2"
    assert library_code(code) == b"\nreturn 1"


@pytest.mark.parametrize(
    "line", [b"", b"#!", b"#!lua", b"#!lua\n", b"#!lua name=\n", b"#!lua name=a b\n", b"#!py name=a\n"]
)
def test_other_first_lines_are_refused(line: bytes) -> None:
    with pytest.raises(CommandError):
        library_name(line)


def test_flags() -> None:
    assert Function(b"l", b"f", b"", None).is_read_only is False
    reader = Function(b"l", b"f", b"no-writes allow-stale", b"text")
    assert (reader.is_read_only, reader.allows_oom, reader.flags) == (True, True, [b"no-writes", b"allow-stale"])
