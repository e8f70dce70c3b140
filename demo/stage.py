"""How the demo is told: acts, figures, tables, and claims that are checked as they are made.

In colours on a terminal, plain in a pipe, and as JSON lines for machines:

    act {number, title}    say {text}    figure {name, value}    claim {text, holds}    table {title, rows}
    summary {claims, broken, seconds, steps, folder}
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from tidelog.cli.output.stdout import Cell, Column, Output


class Stage:
    """Prints, and remembers what did not hold."""

    def __init__(self, *, as_json: bool) -> None:
        self._output = Output(as_json=as_json)
        self._begun_s = time.monotonic()
        self._acts: list[tuple[str, float]] = []
        """Titles, and when they began."""
        self.claims = 0
        self.broken: list[str] = []
        """Claims that did not hold."""

    def title(self, text: str) -> None:
        if not self._output.as_json:
            self._line(text, "bold")

    def act(self, title: str) -> None:
        self._acts.append((title, time.monotonic()))
        if self._output.as_json:
            self._object("act", number=len(self._acts), title=title)
        else:
            self._line()
            self._line(f"{len(self._acts)}. {title}", "bold cyan")

    def say(self, text: str) -> None:
        if self._output.as_json:
            self._object("say", text=text)
        else:
            self._line(f"   {text}", "dim")

    def figure(self, name: str, shown: str, value: Any = None) -> None:
        """`value`: for machines, if it is not what is shown."""
        if self._output.as_json:
            self._object("figure", name=name, value=shown if value is None else value)
        else:
            self._line(f"   {name:<34} {shown}")

    def claim(self, text: str, holds: bool) -> None:
        """Something that has just been checked."""
        self.claims += 1
        if not holds:
            self.broken.append(text)
        if self._output.as_json:
            self._object("claim", text=text, holds=holds)
        else:
            self._line(f"   {'✓' if holds else '✗'} {text}", "green" if holds else "bold red")

    def table(self, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, total: bool) -> None:
        if self._output.as_json:
            names = [column.title for column in columns]
            self._object("table", title=title, rows=[dict(zip(names, row, strict=True)) for row in rows])
            return
        self._line()
        self._line(title, "bold")
        self._output.table(columns, rows, total=total)
        sys.stdout.flush()

    def end(self, kept: str | None) -> None:
        """How long each act took, whether everything held, and where its folder was left."""
        now_s = time.monotonic()
        ends = [begun for _, begun in self._acts[1:]] + [now_s]
        steps = [(title, end - begun) for (title, begun), end in zip(self._acts, ends, strict=True)]
        took_s = now_s - self._begun_s
        if self._output.as_json:
            seconds = {title: round(each, 2) for title, each in steps}
            took = {"seconds": round(took_s, 2), "steps": seconds}
            self._object("summary", claims=self.claims, broken=self.broken, **took, folder=kept)
            return
        rows: list[Sequence[Cell]] = [(title, f"{each:.1f}") for title, each in steps]
        columns = Column("step"), Column("seconds", right=True)
        self.table("Time", columns, [*rows, ("all", f"{took_s:.1f}")], total=True)
        self._line()
        if self.broken:
            self._line(f"{len(self.broken)} of {self.claims} claims did not hold:", "bold red")
            for text in self.broken:
                self._line(f"   ✗ {text}", "bold red")
        else:
            self._line(f"All {self.claims} claims were checked and held, in {took_s:.1f} s.", "bold green")
        if kept is not None:
            self._line(f"To look at: bin/tidelog journal ls {kept}/data")
            self._line(f"To go on:   bin/tidelog serve --data {kept}/data")

    def _line(self, text: str = "", style: str = "") -> None:
        self._output.line(text, style)
        sys.stdout.flush()

    def _object(self, kind: str, **members: Any) -> None:
        self._output.object(kind, members)
        sys.stdout.flush()
