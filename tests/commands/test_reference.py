"""`docs/commands.md` says what the command table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cli.command_line import ENVIRONMENT
from tests.conformance.redis_oracle import command_rows
from tidelog.commands.families import command_table
from tidelog.commands.reference import command_reference

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_page_is_current() -> None:
    made = command_reference(command_table())
    assert PAGE.read_text() == made, "run: python -m tidelog.commands.reference > docs/commands.md"


def test_every_command_has_one_line() -> None:
    lines = command_reference(command_table()).splitlines()
    for row in command_rows():
        name = row.name.replace("|", " ")
        assert len([line for line in lines if line.startswith(f"| `{name}` |")]) == 1, name


def test_arguments_are_counted_without_the_name() -> None:
    page = command_reference(command_table())
    assert "| `GET` | 1 |" in page
    assert "| `MSET` | 2+ |" in page
    assert "| `CONFIG GET` | 1+ |" in page
    assert "| `PING` | 0+ |" in page


def test_it_is_printed() -> None:
    command = [sys.executable, "-P", "-m", "tidelog.commands.reference"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == command_reference(command_table())
