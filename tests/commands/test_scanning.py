"""Arguments of SCAN and its relatives. `tests/conformance/` asks a real Redis about HSCAN and SSCAN."""

from __future__ import annotations

import pytest

from tidelog.commands.scanning import ScanOptions, scan_cursor, scan_options
from tidelog.errors import CommandError


@pytest.mark.parametrize(
    ("argument", "cursor"),
    [(b"0", 0), (b"17", 17), (b"", 0), (b"+5", 5), (b"-1", 2**64 - 1), (b"-0", 0), (b"0007", 7), (b"3\x00x", 3),
     (b"18446744073709551615", 2**64 - 1)],
)  # fmt: skip
def test_cursor(argument: bytes, cursor: int) -> None:
    assert scan_cursor(argument) == cursor


@pytest.mark.parametrize("argument", [b"x", b" 1", b"1 ", b"1x", b"--1", b"-", b"18446744073709551616", b"9" * 30])
def test_invalid_cursor(argument: bytes) -> None:
    with pytest.raises(CommandError, match=r"^ERR invalid cursor$"):
        scan_cursor(argument)


def test_options() -> None:
    words = b"SCAN 7 match a* Count 5 TYPE Hash".split()
    assert scan_options(words, 1, takes_type=True) == ScanOptions(7, b"a*", 5, b"hash")
    assert scan_options([b"SCAN", b"0", b"MATCH", b"*"], 1) == ScanOptions(0, None, 10, None)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (b"HSCAN k 0 TYPE hash", "syntax error"),
        (b"HSCAN k 0 COUNT", "syntax error"),
        (b"HSCAN k 0 COUNT 0", "syntax error"),
        (b"HSCAN k 0 COUNT x", "value is not an integer or out of range"),
        (b"HSCAN k 0 FOO 1", "syntax error"),
        (b"HSCAN k x", "invalid cursor"),
    ],
)
def test_refused(words: bytes, error: str) -> None:
    with pytest.raises(CommandError, match=f"^ERR {error}$"):
        scan_options(words.split(), 2)
