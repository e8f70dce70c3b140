"""More mechanical rules, about the package as a whole: a class name stands for one thing, and front pages are true."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from tests.test_tidy import CHECKOUT, modules_in

LISTED: Final = re.compile(r"^ *([a-z_]+)/?  +\S", re.MULTILINE)
"""A line of a front page that says what a module is for: its name, a gap of at least two spaces, then the words."""

TYPE_VARIABLES: Final = ("TypeVar", "ParamSpec")
"""Their names mean nothing outside of their module."""


def check_class_names(modules: dict[str, str]) -> Iterator[str]:
    """No public class has a name that another one, or an alias of a type, has."""
    classes: defaultdict[str, list[str]] = defaultdict(list)
    aliases: defaultdict[str, list[str]] = defaultdict(list)
    for module, text in modules.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module)
            elif isinstance(node, ast.Assign) and not _is_type_variable(node.value):
                for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
                    aliases[name].append(module)
    for name, defined in sorted(classes.items()):
        found = defined + aliases[name]
        if len(found) > 1:
            yield f"{name} stands for several things: {', '.join(found)}"


def _is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in TYPE_VARIABLES


def check_front_pages(modules: dict[str, str]) -> Iterator[str]:
    """The docstring of a package lists each module and package in it, and nothing that is not there."""
    for package, text in modules.items():
        if package.endswith(".__init__") and package.count(".") > 1:
            inside = package.removesuffix("__init__")
            rest = {name.removeprefix(inside) for name in modules if name.startswith(inside) and name != package}
            there = {name.partition(".")[0] for name in rest}
            listed = set(LISTED.findall(ast.get_docstring(ast.parse(text), clean=False) or ""))
            yield from (f"{inside[:-1]} does not list {name}" for name in sorted(there - listed))
            yield from (f"{inside[:-1]} lists {name}, which is not there" for name in sorted(listed - there))


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return modules_in(CHECKOUT / "src" / "tidelog")


def test_a_class_name_stands_for_one_thing(sources: dict[str, str]) -> None:
    assert list(check_class_names(sources)) == []


def test_front_pages_are_true(sources: dict[str, str]) -> None:
    assert list(check_front_pages(sources)) == []


# --- the rules can fail -----------------------------------------------------------------------------------------


def test_a_name_for_two_things_is_seen() -> None:
    modules = {"tidelog.a": "class Place: ...\nclass _Own: ...", "tidelog.b": "class Place: ...\nclass _Own: ..."}
    assert list(check_class_names(modules)) == ["Place stands for several things: tidelog.a, tidelog.b"]


def test_a_class_and_an_alias_of_one_name_are_seen() -> None:
    modules = {
        "tidelog.a": "class Line: ...",
        "tidelog.b": "Line = tuple[int, int]",
        "tidelog.c": "Line = TypeVar('L')",
    }
    assert list(check_class_names(modules)) == ["Line stands for several things: tidelog.a, tidelog.b"]


def test_a_front_page_that_is_not_true_is_seen() -> None:
    page = '"""A package.\n\n    frame      frames\n    parts/     more of it\n    segment    segments\n"""'
    modules = {
        "tidelog.journal.__init__": page,
        "tidelog.journal.frame": "",
        "tidelog.journal.record": "",
        "tidelog.journal.parts.__init__": '"""Parts.\n\n    piece    a part\n"""',
        "tidelog.journal.parts.piece": "",
    }
    assert list(check_front_pages(modules)) == [
        "tidelog.journal does not list record",
        "tidelog.journal lists segment, which is not there",
    ]
