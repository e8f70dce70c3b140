"""`docs/libraries.md` lists every library that has a test, with versions that the extra `libraries` allows."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.libraries.page import CHECKOUT, PAGE, Refused, libraries_with_tests, rows_of, tables, with_tables

ROW: Final = re.compile(
    r"^\| \[([\w-]+)\]\(https://pypi\.org/project/[\w-]+/\) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
LINE: Final = {"against": "tidelog", "promise": "At least once.", "outcome": "passed", "versions": {"a": "1.2"}}


def requirements() -> dict[str, Requirement]:
    """What the base and the extra `libraries` ask for, by package."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    rows = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["libraries"]])
    return {canonicalize_name(row.name): row for row in rows}


def test_the_page_lists_every_library() -> None:
    listed = [library for library, _, _ in ROW.findall(PAGE.read_text())]
    assert listed == sorted(libraries_with_tests()), "run the tests of libraries, then: python -m tests.libraries.page"


def test_every_version_is_allowed() -> None:
    allowed = requirements()
    for library, versions, tried in ROW.findall(PAGE.read_text()):
        named = dict(each.split() for each in versions.split(", "))
        assert library in named
        assert library in allowed, f"{library} is not in the extra"
        assert "redis" in named
        for name, version in named.items():
            if name in allowed:
                assert allowed[name].specifier.contains(version), f"{name} {version}: run the tests again"
        assert tried.count(".") >= 1


def test_every_library_of_the_extra_is_tested() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extra = {canonicalize_name(Requirement(row).name) for row in project["optional-dependencies"]["libraries"]}
    assert extra - CLIENTS == libraries_with_tests() - {"redis"}


CLIENTS: Final = {"coredis"}
"""Packages that a library of the extra needs and that are no libraries of their own here."""


def lines(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**LINE, "library": "a", "test": "x", "tried": "One."},
        {**LINE, "library": "a", "test": "y[1]", "tried": "Two."},
        {**LINE, "library": "a", "test": "y[2]", "tried": "Two."},
        *more,
    ]


def test_a_library_is_one_row() -> None:
    made = tables(rows_of(lines(), {"a"}))
    assert "| [a](https://pypi.org/project/a/) | a 1.2 | One. Two. |\n" in made
    assert "- **a**: At least once.\n" in made
    before = "# Title\n<!-- Made by python -m tests.libraries.page results -->\nold\n<!-- End -->\nrest\n"
    assert with_tables(with_tables(before, made), "new\n") == before.replace("old", "new")


def test_only_the_last_run_on_tidelog_counts() -> None:
    failed = {**LINE, "library": "a", "test": "x", "tried": "One.", "outcome": "failed"}
    with pytest.raises(Refused, match="failed: x"):
        rows_of(lines(failed), {"a"})
    rows_of([failed, *lines({**failed, "against": "redis"})], {"a"})


def test_what_was_not_tried_is_not_claimed() -> None:
    with pytest.raises(Refused, match="no results: b"):
        rows_of(lines({**LINE, "library": "b", "test": "z", "tried": "Z.", "outcome": "skipped"}), {"a", "b"})
    with pytest.raises(Refused, match="no place"):
        with_tables("# Title\n", "new")
