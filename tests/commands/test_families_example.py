"""The command that CONTRIBUTING.md shows is still the one in the files."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tidelog.commands.families import command_table

CHECKOUT = Path(__file__).resolve().parents[2]
QUOTED = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def quotes() -> list[tuple[str, str]]:
    """File and lines of each piece of code in the section, without the indentation that they share there."""
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    section = text.partition("## Add a command\n")[2].partition("\n## ")[0]
    found = []
    for block in QUOTED.findall(section):
        first, _, code = textwrap.dedent(block).partition("\n")
        found.append((first.removeprefix("# "), code))
    return found


def test_what_is_quoted_stands_in_the_files() -> None:
    files = [file for file, _ in quotes()]
    assert files == ["src/tidelog/commands/strings.py"] * 2 + ["tests/conformance/test_strings.py"]
    for file, code in quotes():
        assert code in (CHECKOUT / file).read_text(), f"{file} no longer has\n{code}"


def test_the_row_is_all_that_the_table_needs() -> None:
    row = command_table().find(b"GETDEL")
    assert row is not None
    assert row.handler.__name__ == "getdel"
    assert f'"{row.summary}"' in quotes()[1][1]
