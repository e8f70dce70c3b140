"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from tidelog.channels.http.durations import read_duration_s
from tidelog.errors import BadChannelInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("30s", 30),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("+2s", 2),
        ("1h1m1s1ms", 3661.001),
        ("1000000ns", 0.001),
        ("1000us", 0.001),
        ("1000\u00b5s", 0.001),
        ("1000\u03bcs", 0.001),
    ],
)
def test_what_go_reads(text: str, seconds: float) -> None:
    assert read_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "+", "30", "s", "-1s", "1 s", "1x", "1s ", "1d", ".s", "1e3s", "\u0661s", "nan", "1s" * 40],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(BadChannelInput, match="is not a duration"):
        read_duration_s(text)
