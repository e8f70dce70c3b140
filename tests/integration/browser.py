"""A real browser for tests: Debian's Chromium, driven by Playwright, with a page that is new for each test.

Playwright is imported by the tests that use it: it would cost every worker half a second.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM: Final = shutil.which("chromium")
ARGUMENTS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MS_MAX: Final = 60_000

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: `apt-get install chromium`, or run bin/test")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, args=ARGUMENTS, headless=True
        )
        context.set_default_timeout(MS_MAX)
        yield context.pages[0] if context.pages else context.new_page()
        context.close()
