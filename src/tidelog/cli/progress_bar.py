"""Progress bars on stderr, by rich; none where nobody would see them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Moved = Callable[[str, int, int], None]
"""To be called with what is being done, how much of it is, and how much there is."""


@contextmanager
def progress_bar(*, is_wanted: bool) -> Iterator[Moved | None]:
    """What to call; None: nobody would see it."""
    if not (is_wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<9}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    # Rich would print on the terminal what we write to stdout, also where that is a file.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect) as bar:
        task = bar.add_task("", total=None)

        def moved(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield moved
