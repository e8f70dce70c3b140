"""Sizes for people."""

from __future__ import annotations

import pytest

from tidelog.server.facts import human


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (990520, "967.30K"), (25274793984, "23.54G"), (1 << 50, "1.00P")],
)
def test_human(size: int, text: str) -> None:
    assert human(size) == text
