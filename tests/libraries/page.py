"""The tables of `docs/libraries.md`, made from the results of a run of the tests of libraries.

    bin/test tests/libraries --long --library-results results.jsonl
    python -m tests.libraries.page results.jsonl

Only tests that passed on Tidelog count. Of a test that was run several times, the last run does. A failed test, or a
library without results, is an error and the page stays as it is: it must not claim what was not tried.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
PAGE: Final = CHECKOUT / "docs" / "libraries.md"
TABLES: Final = re.compile(r"(<!-- Made by python -m tests\.libraries\.page .*?-->\n).*?(<!-- End -->)", re.DOTALL)


class Row(NamedTuple):
    """What is known of a library."""

    library: str
    versions: dict[str, str]
    """Of its packages, its own first, redis-py's last."""
    tried: list[str]
    promise: str


class Refused(Exception):
    """Why no page is made."""


def libraries_with_tests() -> set[str]:
    """The libraries that test files name with `pytest.mark.library`."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.library":
                found.add(ast.literal_eval(node.args[0]))
    return found


def place_of(test: str) -> tuple[str, int, str]:
    """Where a test stands: a page tells what was tried in the order of the files, not in that of a parallel run."""
    path, _, name = test.partition("::")
    file = CHECKOUT / path
    text = file.read_text() if file.is_file() else ""
    return path, text.find(f"def {name.partition('[')[0]}("), name


def rows_of(lines: Iterable[dict[str, Any]], libraries: set[str]) -> list[Row]:
    """One row for each library, in the order of their names."""
    newest = {line["test"]: line for line in lines if line["against"] == "tidelog"}
    failed = sorted(test for test, line in newest.items() if line["outcome"] == "failed")
    if failed:
        raise Refused("failed: " + ", ".join(failed))
    passed = [newest[test] for test in sorted(newest, key=place_of) if newest[test]["outcome"] == "passed"]
    if missing := libraries - {line["library"] for line in passed}:
        raise Refused("no results: " + ", ".join(sorted(missing)))
    rows = []
    for library in sorted(libraries):
        own = [line for line in passed if line["library"] == library]
        # Several tests, or several kinds of the same, may try the same thing.
        tried = list(dict.fromkeys(line["tried"] for line in own))
        rows.append(Row(library, own[-1]["versions"], tried, own[-1]["promise"]))
    return rows


def tables(rows: Iterable[Row]) -> str:
    """The table, and what each library promises, as Markdown."""
    lines = ["| library | versions tried | what was tried |", "|---|---|---|"]
    promises = []
    for row in rows:
        link = f"[{row.library}](https://pypi.org/project/{row.library}/)"
        versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
        lines.append(f"| {link} | {versions} | {' '.join(row.tried)} |")
        if row.promise:
            promises.append(f"- **{row.library}**: {row.promise}")
    return "\n".join(["", *lines, "", "### What they promise", "", *promises, "", ""])


def with_tables(page: str, made: str) -> str:
    """A page with its tables replaced."""
    if len(TABLES.findall(page)) != 1:
        raise Refused("the page has no place for the tables, or several")
    return TABLES.sub(lambda found: found[1] + made + found[2], page)


def main(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    PAGE.write_text(with_tables(PAGE.read_text(), tables(rows_of(lines, libraries_with_tests()))))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Refused as reason:
        sys.exit(f"{PAGE.name} is unchanged: {reason}")
