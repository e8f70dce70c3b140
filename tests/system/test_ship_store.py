"""Fetching side by side."""

from __future__ import annotations

import errno
import time
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Lock

import pytest

from tidelog import limits
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


def test_what_cannot_be_fetched_is_tried_again() -> None:
    lock, calls, sleeps = Lock(), Counter[int](), list[float]()

    def job(number: int) -> None:
        with lock:
            calls[number] += 1
            if calls[number] <= number:
                raise TimeoutError(errno.ETIMEDOUT, "the store does not answer")

    fetch_all((partial(job, number) for number in range(4)), sleeps.append)
    assert calls == {0: 1, 1: 2, 2: 3, 3: 4}
    assert sorted(sleeps) == [0.5, 0.5, 0.5, 1.0, 1.0, 2.0]


@pytest.mark.parametrize(("number", "wanted"), [(errno.ETIMEDOUT, limits.FETCH_ATTEMPTS), (errno.ENOSPC, 1)])
def test_a_fetch_that_never_works_ends(number: int, wanted: int) -> None:
    calls = 0

    def job() -> None:
        nonlocal calls
        calls += 1
        raise OSError(number, "it does not work")

    with pytest.raises(OSError, match="does not work"):
        fetch_all([job], lambda _: None)
    assert calls == wanted
