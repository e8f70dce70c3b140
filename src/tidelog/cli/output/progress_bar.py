"""Progress bars on stderr, drawn by rich; none if stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

ReportProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@contextmanager
def rich_progress(columns: Callable[[], Iterable[Any]], *, is_wanted: bool) -> Iterator[Any]:
    """A `rich.progress.Progress` with these columns; None if nobody would see it. Rich is imported only if needed."""
    if not (is_wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Otherwise rich would print on the terminal what we write to stdout, even if stdout is a file.
    redirect = sys.stdout.isatty()
    with Progress(*columns(), console=Console(stderr=True), transient=True, redirect_stdout=redirect) as bar:
        yield bar


@contextmanager
def progress_bar(*, is_wanted: bool) -> Iterator[ReportProgress | None]:
    """A bar with a description and a percentage; None if nobody would see it."""

    def columns() -> list[Any]:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        return [TextColumn("{task.description:<9}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()]

    with rich_progress(columns, is_wanted=is_wanted) as bar:
        if bar is None:
            yield None
            return
        task = bar.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield report
