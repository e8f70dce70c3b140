"""Prints the output of a command in the form that its reader wants.

    a terminal   tables and colours, by rich
    a pipe       the same columns as plain text; numbers without separators
    --json       one object a line, each with its `kind`; numbers as numbers

Rich is imported only for a terminal: it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.cli.output.values import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_MAX: Final = 1000


class Styled(NamedTuple):
    """A text that is to be seen."""

    text: str
    style: str


Cell = str | int | Styled | None
"""None: there is nothing to say."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    width: int = 0
    """At least; needed only by `Output.row`, which cannot look ahead."""
    right: bool = False
    """Set to the right, as numbers are."""
    style: str = ""


class Output:
    """Stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = not as_json and sys.stdout.isatty()
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """Rich's, for a terminal."""
        if self._console is None:
            from rich.console import Console

            # Tables are as wide as they need to be: a row that a narrow terminal wraps is easier to read than cells
            # that are folded or cut.
            self._console = Console(highlight=False, width=_WIDTH_MAX)
        return self._console

    def object(self, kind: str, members: dict[str, Any]) -> None:
        """One line of JSON."""
        sys.stdout.write(json_line(kind, members))

    def line(self, text: str = "", style: str = "") -> None:
        """One line of text."""
        if self.is_terminal:
            from rich.text import Text

            self.console.print(Text(printable(text), style), soft_wrap=True)
        else:
            sys.stdout.write(printable(text) + "\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, total: bool = False) -> None:
        """A whole table; `total`: its last row sums up the others."""
        if self.is_terminal:
            self.console.print(rich_table(columns, rows, total=total))
            return
        cells = [[column.title for column in columns], *([_text(cell) for cell in row] for row in rows)]
        widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
        for row in cells:
            sys.stdout.write(_joined(columns, widths, row) + "\n")

    def header(self, columns: Sequence[Column]) -> None:
        """The head of a table whose rows are printed as they come."""
        text = _joined(columns, [column.width for column in columns], [column.title for column in columns])
        self.line(text, "bold")

    def row(self, columns: Sequence[Column], cells: Sequence[Cell]) -> None:
        """One row of such a table."""
        texts = [_text(cell, has_separators=self.is_terminal) for cell in cells]
        widths = [column.width for column in columns]
        if not self.is_terminal:
            sys.stdout.write(_joined(columns, widths, texts) + "\n")
            return
        from rich.text import Text

        parts = [
            (_padded(column, width, text) + "  ", cell.style if isinstance(cell, Styled) else column.style)
            for column, width, text, cell in zip(columns, widths, texts, cells, strict=True)
        ]
        self.console.print(Text.assemble(*parts), soft_wrap=True)


def json_line(kind: str, members: dict[str, Any]) -> str:
    """A line of JSON, in ASCII."""
    return json.dumps({"kind": kind, **members}, separators=(",", ":")) + "\n"


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, total: bool = False) -> Table:
    """A table as a terminal shows it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        justify = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, style=column.style, no_wrap=True)  # type: ignore[arg-type]
    for index, row in enumerate(rows):
        is_total = total and index == len(rows) - 1
        if is_total:
            table.add_section()
        texts = [Text(_text(cell, has_separators=True), cell.style if isinstance(cell, Styled) else "") for cell in row]
        table.add_row(*texts, style="bold" if is_total else "")
    return table


def _text(cell: Cell, *, has_separators: bool = False) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}" if has_separators else str(cell)
    return printable(cell.text if isinstance(cell, Styled) else cell)


def _padded(column: Column, width: int, text: str) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def _joined(columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str]) -> str:
    parts = (_padded(column, width, text) for column, width, text in zip(columns, widths, texts, strict=True))
    return "  ".join(parts).rstrip()
