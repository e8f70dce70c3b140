"""One line on stderr that shows how far a job is, redrawn twice a second; none if stderr is not a terminal.

    with (
        Holding.take(server, "lake", stop, figures, lease=name) as holding,
        live_line("lake", lambda: holding.told.get("lake", {}), is_wanted=progress),
    ):
        ...

    lake  running  lag 0.41 s, 8,123 records  1,204,000 rows, 20,310/s  batch 0.38 s

The callable runs on another thread and must not wait: it returns figures that are already known.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.output.job_figures import STATE_STYLES, JobFigures, shown_count, shown_seconds
from tidelog.cli.output.values import printable

if TYPE_CHECKING:
    from rich.text import Text

_TIMES_A_SECOND: Final = 2


@contextmanager
def live_line(job: str, figures: Callable[[], Mapping[str, Any]], *, is_wanted: bool = True) -> Iterator[None]:
    """Shows the line while the block runs."""
    if not (is_wanted and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.live import Live

    def render() -> Text:
        return _rich_line(JobFigures(job, figures()), time.time_ns() // 1_000_000)

    with Live(
        get_renderable=render,
        console=Console(stderr=True),
        refresh_per_second=_TIMES_A_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # otherwise what goes to a file would end up on the terminal
    ):
        yield


def line_parts(told: JobFigures, now_ms: int) -> list[tuple[str, str]]:
    """The line, in parts with their styles. What is not known is left out."""
    state = told.state(now_ms)
    parts = [(told.job, "bold"), (state, STATE_STYLES.get(state, ""))]
    lag = [shown_seconds(told.number("lag_seconds")), _counted(told, "lag_records", "records")]
    rows = [_counted(told, "rows", "rows"), shown_count(told.number("rows_per_second"))]
    if lag[0] is not None:
        parts.append((f"lag {', '.join(part for part in lag if part is not None)}", ""))
    if rows[0] is not None:
        parts.append((rows[0] if rows[1] is None else f"{rows[0]}, {rows[1]}/s", ""))
    batch = shown_seconds(told.number("batch_seconds"))
    if batch is not None:
        parts.append((f"batch {batch}", ""))
    error = told.text("last_error")
    if error is not None:
        parts.append((f"last error: {error}", "red"))
    return [(printable(text), style) for text, style in parts]


def _counted(told: JobFigures, name: str, what: str) -> str | None:
    number = shown_count(told.number(name))
    return None if number is None else f"{number} {what}"


def _rich_line(told: JobFigures, now_ms: int) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    for index, (text, style) in enumerate(line_parts(told, now_ms)):
        line.append(f"{'  ' if index else ''}{text}", style)
    return line
