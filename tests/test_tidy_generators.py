"""A mechanical rule about generators: none holds a file, or anything else that must be closed, while its caller works.

A generator that its caller leaves in the middle is closed when it is collected, and a compiled one is not closed at
all: what stands behind its `yield` in a `finally`, or at the end of a `with`, never happens. So a function takes what
is to be done with the open thing, and closes it itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.test_tidy import CHECKOUT, layer_of, modules_in

COMPILED: Final = frozenset(
    {
        "commands",
        "engine",
        "feeds",
        "journal",
        "replication",
        "resp",
        "scripting",
        "server",
        "store",
        "streams",
        "types",
    }
)
"""Packages of which `setup.py` compiles at least some modules."""


def check_generators(text: str) -> Iterator[str]:
    """A function with a decorator is none of those: `contextmanager` closes what it has made."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            for line in _yields_in_hold(node, is_held=False):
                yield f"line {line}: {node.name} yields while it holds something"


def _yields_in_hold(node: ast.AST, *, is_held: bool) -> Iterator[int]:
    """Lines with a `yield` of this function inside of `with` or `try ... finally`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if is_held and isinstance(child, ast.Yield | ast.YieldFrom):
            yield child.lineno
        holds = isinstance(child, ast.With) or (isinstance(child, ast.Try) and bool(child.finalbody))
        yield from _yields_in_hold(child, is_held=is_held or holds)


def test_no_generator_that_may_be_compiled_holds_something() -> None:
    modules = modules_in(CHECKOUT / "src" / "tidelog")
    found = {module: list(check_generators(text)) for module, text in modules.items() if layer_of(module) in COMPILED}
    assert {module: complaints for module, complaints in found.items() if complaints} == {}


# --- the rule can fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    with g() as h:\n        yield h",
        "def f():\n    try:\n        yield 1\n    finally: g()",
        "def f():\n    with g() as h:\n        yield from h",
        "class A:\n  def f(self):\n   with g(): yield 1",
    ],
)
def test_a_generator_that_holds_something_is_seen(text: str) -> None:
    assert [complaint.endswith("f yields while it holds something") for complaint in check_generators(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "@contextmanager\ndef f():\n    with g() as h:\n        yield h",
        "def f():\n    try: yield 1\n    except OSError: g()",
        "def f():\n    with g() as h:\n        k = list(h)\n    yield from k",
        "def f():\n    with g():\n        def k():\n            yield 1\n        return list(k())",
    ],
)
def test_other_generators_are_harmless(text: str) -> None:
    assert list(check_generators(text)) == []
