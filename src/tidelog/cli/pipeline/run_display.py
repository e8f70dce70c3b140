"""A few lines on stderr that show how far several jobs are, redrawn twice a second; none if stderr is no terminal.

lake      running  lag 0.41 s, 8,123 records  1,204,000 rows, 20,310/s  batch 0.38 s
compress  waiting  next in 42:10
expire    failed   next in 4.00 s  last error: no server answers
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.output.job_figures import STATE_STYLES, JobFigures, shown_seconds
from tidelog.cli.output.live_line import line_parts
from tidelog.cli.output.values import printable

if TYPE_CHECKING:
    from rich.text import Text

    from tidelog.spark.jobs.several import JobState

_TIMES_A_SECOND: Final = 2

FiguresOf = Callable[[str], Mapping[str, Any]]
"""What a job has reported; it must not wait."""


@contextmanager
def run_display(states: Sequence[JobState], figures: FiguresOf, *, is_wanted: bool) -> Iterator[None]:
    """Shows the lines while the block runs."""
    if not (is_wanted and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.live import Live

    with Live(
        get_renderable=lambda: _rich_lines(states, figures),
        console=Console(stderr=True),
        refresh_per_second=_TIMES_A_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield


def shown_state(state: JobState, figures: Mapping[str, Any], now_s: float) -> list[tuple[str, str]]:
    """The line of a job, in parts with their styles: name, state, and what is known."""
    parts = [(state.name, "bold"), (state.state, STATE_STYLES.get(state.state, ""))]
    if state.state == "running":
        rest = line_parts(JobFigures(state.name, {**figures, "last_error": None}), int(now_s * 1000))[2:]
        parts += rest or [(f"for {shown_seconds(now_s - (state.begun_s or now_s))}", "")]
    elif state.due_s is not None:
        parts.append((f"next in {shown_seconds(max(0.0, state.due_s - now_s))}", ""))
    if state.last_error is not None:
        parts.append((printable(f"last error: {state.last_error}"), "red"))
    return parts


def _rich_lines(states: Sequence[JobState], figures: FiguresOf) -> Text:
    from rich.text import Text

    now_s = time.time()
    width = max(len(state.name) for state in states)
    lines = Text(no_wrap=True, overflow="ellipsis")
    for number, state in enumerate(states):
        (name, style), (word, word_style), *rest = shown_state(state, figures(state.name), now_s)
        lines.append("\n" if number else "")
        lines.append(name.ljust(width), style)
        lines.append(f"  {word.ljust(7)}", word_style)
        for text, part_style in rest:
            lines.append(f"  {text}", part_style)
    return lines
