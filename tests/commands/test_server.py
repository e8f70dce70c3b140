"""Arguments of commands about the whole server."""

from __future__ import annotations

import pytest

from tidelog.commands.server import _leading_float


@pytest.mark.parametrize(("text", "seconds"), [(b"1.5", 1.5), (b"2x", 2.0), (b"x", 0.0), (b"-1", 0.0), (b".5", 0.5)])
def test_numbers_as_strtod_reads_them(text: bytes, seconds: float) -> None:
    assert _leading_float(text) == seconds
