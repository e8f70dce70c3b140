"""What a test leaves open is told to that test.

A connection that was not closed is noticed when its memory is collected, at some time: Python warns then, which is an
error here, but it would be an error of whatever test runs just then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    """Collect what the test has made. All that was there before is put aside meanwhile, so it takes a moment only."""
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()
