"""Fetching side by side."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tidelog.system.ship_store import fetch_all, open_read_store, open_ship_store


def test_the_rest_is_not_fetched_after_a_failure() -> None:
    """A restore of terabytes would say only at its end that the first object is missing."""
    ran = []

    def missing() -> None:
        raise FileNotFoundError("missing")

    def fetch() -> None:
        time.sleep(0.01)
        ran.append(1)

    with pytest.raises(FileNotFoundError):
        fetch_all([missing, *[fetch] * 400])
    assert len(ran) < 100


def test_everything_is_fetched() -> None:
    ran: list[int] = []
    fetch_all([lambda: ran.append(1)] * 50)
    assert len(ran) == 50


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    """A disk that is not mounted looked like an empty copy."""
    missing = tmp_path / "copies" / "one"
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_read_store(str(missing))
    assert list(tmp_path.iterdir()) == []
    open_ship_store(str(missing)).put("a", [b"1"])
    assert open_read_store(f"file://{missing}").get("a") == b"1"
