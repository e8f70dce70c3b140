"""A progress bar is for the terminal: what goes to stdout is left alone."""

from __future__ import annotations

from tests.cli.command_line import run_program_on_terminal

PROGRAM = """
from tidelog.cli.output.progress_bar import progress_bar

with progress_bar(is_wanted=True) as moved:
    moved("reading", 1, 2)
    print('{"kind": "stream"}')
"""


def test_output_to_a_file_stays_there_while_stderr_is_a_terminal() -> None:
    status, output, seen = run_program_on_terminal(PROGRAM)
    assert "reading" in seen
    assert (status, output) == (0, '{"kind": "stream"}\n')
