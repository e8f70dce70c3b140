"""Time-outs as clients write them; their texts are compared with a real Redis in `conformance/`."""

from __future__ import annotations

import pytest

from tidelog.commands.timeouts import ms_to_wait, seconds_to_wait
from tidelog.errors import CommandError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("word", "ms"),
    [
        ("0", 0),
        ("1", 1000),
        ("007", 7000),
        ("0.001", 1),
        ("0.0010000001", 2),
        ("0.3", 300),
        (".5", 500),
        ("1e3", 1_000_000),
        ("-0.0009", 0),
        ("0x10", 16_000),
        ("1000000000", 10**12),
        ("9.2e15", 92 * 10**17),
    ],
)
def test_seconds_are_rounded_up_to_a_millisecond(word: str, ms: int) -> None:
    assert seconds_to_wait(word.encode(), NOW_MS) == ms


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("", "ERR timeout is not a float or out of range"),
        ("x", "ERR timeout is not a float or out of range"),
        (" 1", "ERR timeout is not a float or out of range"),
        ("nan", "ERR timeout is not a float or out of range"),
        ("1e5000", "ERR timeout is not a float or out of range"),
        ("-1", "ERR timeout is negative"),
        ("-0.0010001", "ERR timeout is negative"),
        ("-inf", "ERR timeout is negative"),
        ("inf", "ERR timeout is out of range"),
        ("9223372036854775", "ERR timeout is out of range"),
        ("1e4900", "ERR timeout is out of range"),
    ],
)
def test_what_is_no_time(word: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{error}$"):
        seconds_to_wait(word.encode(), NOW_MS)


def test_milliseconds_are_whole() -> None:
    assert ms_to_wait(b"15", NOW_MS) == 15
    for word, error in ((b"1.5", "not an integer"), (b"-1", "negative"), (b"%d" % (2**63 - 1), "out of range")):
        with pytest.raises(CommandError, match=error):
            ms_to_wait(word, NOW_MS)
