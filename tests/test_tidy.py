"""The mechanical rules of the code base, as tests.

A rule is a function from the text and the name of a module to its complaints, so that a violation can be fed to it:
`VIOLATIONS` has at least one for every rule, `HARMLESS` what comes close and is allowed, and a test holds that no
rule is left out of either. A rule that cannot fail would not be a rule.

A module is named as it is imported, except that a package keeps its `__init__`: the package of a module is then
always all but the last part of its name.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pytest

CHECKOUT: Final = Path(__file__).resolve().parent.parent

Rule = Callable[[str, str], Iterable[str]]

# --- what the rules know ----------------------------------------------------------------------------------------

FOUNDATION: Final = frozenset(
    {
        "__init__",
        "errors",
        "limits",
        "ids",
        "hlc",
        "ports",
        "address",
        "keys",
        "server_search",
        "redis_search",
        "redis_client",
    }
)

LAYERS: Final = (
    "resp",
    "journal",
    "types",
    "streams",
    "store",
    "feeds",
    "replication",
    "shipping",
    "engine",
    "scripting",
    "commands",
    "channels",
    "server",
    "flight",
    "gateway",
    "console",
    "system",
    "testing",
    "client",
    "days",
    "spark",
    "cli",
)
"""A package imports only those that stand before it."""

WIRING: Final = frozenset({"tidelog.server.runtime"})
"""Modules that may import all, like those of `cli`."""

CLIENTS: Final = frozenset({"channels", "days"})
"""Packages that run on any Redis: they import nothing of the engine ..."""
CLIENT_FOUNDATION: Final = frozenset(
    {"__init__", "errors", "limits", "ids", "address", "keys", "server_search", "redis_search", "redis_client"}
)
"""... and of the foundation only this."""

EDGES: Final = frozenset({"server", "flight", "gateway", "console", "client", "channels", "days", "spark", "cli"})
MACHINE_USERS: Final = EDGES | {"system"}
"""Where the machine may be touched; everything else is given a clock, a disk or a network."""

MACHINE_MODULES: Final = (
    "_thread",
    "concurrent",
    "fcntl",
    "glob",
    "mmap",
    "multiprocessing",
    "numpy.random",
    "os",
    "pathlib",
    "select",
    "selectors",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
)

ALLOWED_IN: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(MACHINE_MODULES, MACHINE_USERS),
    "asyncio": frozenset({"server", "gateway", "client", "channels", "days", "system"}),
    "pyspark": frozenset({"spark"}),
    "random": MACHINE_USERS | {"testing"},
    # Reading these runs what is in the bytes.
    **dict.fromkeys(("cloudpickle", "dill", "marshal", "pickle", "shelve"), frozenset()),
}
"""The packages that may import a module; what is not listed here is free for all."""

MACHINE_NAMES: Final = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "io.open",
        "numpy.random",
        "open",
    }
)
"""Names that reach the machine without an import that tells."""

VAGUE_NAMES: Final = frozenset({"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"})
CATCH_ALL: Final = frozenset({"Exception", "BaseException"})
LINES_MAX: Final = {"tidelog": 450, "tests": 600, "benchmarks": 600, "demo": 450}
LINES_MAX_OF: Final = {"tidelog.limits": 1300}
"""A table of constants, one file by intention: it grows with what it bounds."""

UNFINISHED: Final = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")

FREE_TEST_FOLDERS: Final = frozenset(
    {"conformance", "properties", "simulation", "integration", "libraries", "spark", "benchmarks", "demo", "golden"}
)
"""Folders of tests that mirror no package."""
FREE_TESTS: Final = frozenset(
    {"tests.test_docs", "tests.test_tidy", "tests.test_tidy_generators", "tests.test_tidy_names"}
)

MADE_FOLDERS: Final = frozenset({"build", "dist", "tmp"})
"""Folders of the checkout that hold nothing of ours; nor do those whose names begin with a dot."""

LINK_TARGET: Final = re.compile(r"(?:\]\(|^\s*\[[^\]]+\]:)\s*<?([^)\s>]+)", re.MULTILINE)
"""What follows `](`, or the colon of a reference such as `[name]: target`."""

# --- reading a module -------------------------------------------------------------------------------------------


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes_of(text: str) -> list[ast.AST]:
    """All of them: every rule looks at every module."""
    return list(ast.walk(parsed(text)))


def layer_of(module: str) -> str:
    """The package of Tidelog, or the file of its foundation, that a module belongs to."""
    parts = module.split(".")
    return parts[1] if parts[0] == "tidelog" and len(parts) > 1 else ""


class Import(NamedTuple):
    line: int
    name: str
    """What is imported, in full: `from a import b` is `a.b`."""
    local: str
    stands_for: str
    """What the local name means: `import a.b` binds `a`, which is `a`; `import a.b as c` binds `c`, which is `a.b`."""


def imports(text: str, module: str) -> Iterator[Import]:
    """Everything that is imported anywhere in a module, be it inside a function or for the type checker only."""
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.name if alias.asname else alias.name.partition(".")[0]
                yield Import(node.lineno, alias.name, alias.asname or bound, bound)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            source = [*package, node.module] if node.module else package
            for alias in node.names:
                name = ".".join([*source, alias.name])
                yield Import(node.lineno, name, alias.asname or alias.name, name)


def uses(text: str, module: str) -> Iterator[tuple[str, ast.expr]]:
    """Every name, attribute and call, spelled out by way of the imports: `np.random` is `numpy.random`.

    A call comes twice, as what is called and as the call.
    """
    full_names = {each.local: each.stands_for for each in imports(text, module)}

    def spelled_out(node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return full_names.get(node.id, node.id)
        return f"{spelled_out(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"

    for node in nodes_of(text):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield spelled_out(node), node
        elif isinstance(node, ast.Call):
            yield spelled_out(node.func), node


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


# --- rules for the package --------------------------------------------------------------------------------------


def check_layers(text: str, module: str) -> Iterator[str]:
    layer = layer_of(module)
    if layer not in LAYERS and layer not in FOUNDATION:
        yield f"{layer} is no layer: the module goes into a package that LAYERS names"
    elif layer != "cli" and module not in WIRING:
        for line, name, _, _ in imports(text, module):
            if is_within(name, "tidelog") and not may_import(layer, layer_of(name)):
                yield f"line {line}: {layer} must not import {name}"


def may_import(layer: str, target: str) -> bool:
    if target not in LAYERS:
        # Something of the foundation; what is no file of it, such as `__version__`, is in `__init__`.
        return layer not in CLIENTS or target not in FOUNDATION or target in CLIENT_FOUNDATION
    if layer in FOUNDATION or layer in CLIENTS:
        return target == layer
    return LAYERS.index(target) <= LAYERS.index(layer)


def check_imports(text: str, module: str) -> Iterator[str]:
    for line, name, _, _ in imports(text, module):
        for restricted, layers in ALLOWED_IN.items():
            if is_within(name, restricted) and layer_of(module) not in layers:
                yield f"line {line}: {restricted} is only for {', '.join(sorted(layers)) or 'nobody'}"


def check_machine_names(text: str, module: str) -> Iterator[str]:
    if layer_of(module) not in MACHINE_USERS:
        for name, node in uses(text, module):
            if name in MACHINE_NAMES and not isinstance(node, ast.Call):
                yield f"line {node.lineno}: {name} is only for {', '.join(sorted(MACHINE_USERS))}"


def check_seeds(text: str, module: str) -> Iterator[str]:
    if layer_of(module) != "testing":
        return
    named = [(each.line, each.name) for each in imports(text, module)]
    for name, node in uses(text, module):
        named.append((node.lineno, name))
        if name == "random.Random" and isinstance(node, ast.Call):
            seeds = [*node.args, *(keyword.value for keyword in node.keywords)]
            if not seeds or (isinstance(seeds[0], ast.Constant) and seeds[0].value is None):
                yield f"line {node.lineno}: random.Random needs a seed"
    for line, name in sorted(set(named)):
        if name.startswith("random.") and not is_within(name, "random.Random"):
            yield f"line {line}: {name} cannot be replayed: use random.Random with a seed"


def check_prints(text: str, module: str) -> Iterator[str]:
    if layer_of(module) != "cli":
        for name, node in uses(text, module):
            if name in {"print", "rich.print"} and isinstance(node, ast.Call):
                yield f"line {node.lineno}: print is only for cli"


def check_caught_errors(text: str, module: str) -> Iterator[str]:
    for node in nodes_of(text):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"line {node.lineno}: a bare except catches everything: name what is expected"
            elif is_catch_all(node.type) and all(is_nothing(statement) for statement in node.body):
                yield f"line {node.lineno}: every error is caught and forgotten"
    for name, call in uses(text, module):
        if name == "contextlib.suppress" and isinstance(call, ast.Call) and any(map(is_catch_all, call.args)):
            yield f"line {call.lineno}: every error is suppressed"


def is_catch_all(caught: ast.expr) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(is_catch_all(each) for each in caught.elts)
    return ast.unparse(caught).removeprefix("builtins.") in CATCH_ALL


def is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Continue)


# --- rules for all code -----------------------------------------------------------------------------------------


def check_name(text: str, module: str) -> Iterator[str]:
    for vague in VAGUE_NAMES.intersection(module.split(".")):
        yield f"{vague} says nothing about what is in it"


def check_docstring(text: str, module: str) -> Iterator[str]:
    if not (ast.get_docstring(parsed(text)) or "").strip():
        yield "no docstring: say what it is for and what holds in it"


def check_size(text: str, module: str) -> Iterator[str]:
    lines, lines_max = len(text.splitlines()), LINES_MAX_OF.get(module, LINES_MAX[module.partition(".")[0]])
    if lines > lines_max:
        yield f"{lines} lines are more than {lines_max}: it is two ideas"


def check_finished(text: str, module: str) -> Iterator[str]:
    for line, content in enumerate(text.splitlines(), start=1):
        if found := UNFINISHED.search(content):
            yield f"line {line}: {found[0]} belongs into the tracker or is done now"


SOURCE_RULES: Final[tuple[Rule, ...]] = (
    check_layers,
    check_imports,
    check_machine_names,
    check_seeds,
    check_prints,
    check_caught_errors,
)
CODE_RULES: Final[tuple[Rule, ...]] = (check_name, check_docstring, check_size, check_finished)

# --- rules for the tree and the documents -----------------------------------------------------------------------


def check_mirror(tests: Iterable[str], sources: Iterable[str]) -> Iterator[str]:
    """A test `tests.a.test_b` is of `tidelog.a.b`; with a part of its own, `tests.a.test_b_part`, it still is."""
    things = {name.removesuffix(".__init__") for name in sources}
    for name in tests:
        folder, _, file = name.rpartition(".")
        top = f"{folder}.".split(".")[1]
        if file.startswith("test_") and name not in FREE_TESTS and top not in FREE_TEST_FOLDERS:
            package = folder.replace("tests", "tidelog", 1)
            words = file.removeprefix("test_").split("_")
            if not any(f"{package}.{'_'.join(words[:n])}" in things for n in range(1, len(words) + 1)):
                yield f"{name}: there is no {package}.{'_'.join(words)} that it tests"


def check_packages(sources: Iterable[str]) -> Iterator[str]:
    """A folder without `__init__` would be left out of what is installed."""
    names = set(sources)
    for package in sorted({name.rpartition(".")[0] for name in names}):
        if f"{package}.__init__" not in names:
            yield f"{package} has no __init__.py"


def check_links(text: str, folder: Path, checkout: Path) -> Iterator[str]:
    prose = re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in LINK_TARGET.findall(prose):
        path = unquote(target.partition("#")[0])
        if path and not re.match(r"[a-z][a-z0-9+.-]*:", path, re.IGNORECASE):
            place = (checkout / path[1:] if path.startswith("/") else folder / path).resolve()
            if not place.exists() or not place.is_relative_to(checkout.resolve()):
                yield f"{target} leads nowhere"


# --- the checkout follows the rules -----------------------------------------------------------------------------


def modules_in(folder: Path) -> dict[str, str]:
    """Names and texts of the modules below a folder, named as seen from the folder that holds it."""
    paths = sorted(folder.rglob("*.py"))
    return {".".join(path.relative_to(folder.parent).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def documents() -> Iterator[Path]:
    for folder, folders, files in os.walk(CHECKOUT):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in MADE_FOLDERS)
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".md"))


def complaints(rule: Rule, modules: dict[str, str]) -> list[str]:
    return [f"{name}: {complaint}" for name, text in modules.items() for complaint in rule(text, name)]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return modules_in(CHECKOUT / "src" / "tidelog")


@pytest.fixture(scope="module")
def tests() -> dict[str, str]:
    return modules_in(CHECKOUT / "tests")


def test_the_checkout_is_found(sources: dict[str, str], tests: dict[str, str]) -> None:
    assert {"tidelog.__init__", "tidelog.errors", "tidelog.limits"} <= sources.keys()
    assert "tests.test_tidy" in tests
    assert CHECKOUT / "CONTRIBUTING.md" in list(documents())


@pytest.mark.parametrize("rule", SOURCE_RULES)
def test_the_package_follows(rule: Rule, sources: dict[str, str]) -> None:
    found = complaints(rule, sources)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", CODE_RULES)
def test_all_code_follows(rule: Rule, sources: dict[str, str], tests: dict[str, str]) -> None:
    found = complaints(rule, sources | tests | modules_in(CHECKOUT / "benchmarks") | modules_in(CHECKOUT / "demo"))
    assert not found, "\n".join(found)


def test_tests_mirror_the_package(sources: dict[str, str], tests: dict[str, str]) -> None:
    assert list(check_mirror(tests, sources)) == []


def test_every_folder_is_a_package(sources: dict[str, str]) -> None:
    assert list(check_packages(sources)) == []


def test_links_of_documents_resolve() -> None:
    found = {str(path): list(check_links(path.read_text("utf-8"), path.parent, CHECKOUT)) for path in documents()}
    assert {path: broken for path, broken in found.items() if broken} == {}


# --- the rules can fail -----------------------------------------------------------------------------------------

VIOLATIONS: Final[list[tuple[Rule, str, str, str]]] = [
    (check_layers, "tidelog.journal.frame", "import tidelog.store.shard", "must not import tidelog.store.shard"),
    (check_layers, "tidelog.journal.frame", "def f():\n    from tidelog import store", "line 2: journal must not"),
    (check_layers, "tidelog.journal.frame", "from ..streams.node import Node", "must not import tidelog.streams.node"),
    (check_layers, "tidelog.journal.__init__", "from .. import store", "must not import tidelog.store"),
    (check_layers, "tidelog.ids", "from tidelog.journal import frame", "ids must not import"),
    (check_layers, "tidelog.__init__", "from tidelog.journal import frame", "__init__ must not import"),
    (check_layers, "tidelog.server.listener", "from tidelog.system import clock", "server must not import"),
    (check_layers, "tidelog.replication.leader", "from tidelog.system.network import SystemLink", "must not import"),
    (check_layers, "tidelog.channels.channel", "from tidelog.client import Client", "channels must not import"),
    (check_layers, "tidelog.days.day", "from tidelog.channels import Channel", "days must not import"),
    (check_layers, "tidelog.days.day", "from tidelog import ports", "days must not import tidelog.ports"),
    (check_layers, "tidelog.spark.source", "import tidelog.cli", "spark must not import"),
    (check_layers, "tidelog.extras.thing", "", "is no layer"),
    (check_layers, "tidelog.extra", "", "is no layer"),
    (check_imports, "tidelog.journal.writer", "import time", "time is only for"),
    (check_imports, "tidelog.journal.writer", "import os.path as paths", "os is only for"),
    (check_imports, "tidelog.journal.writer", "from os import fsync", "os is only for"),
    (check_imports, "tidelog.journal.writer", "if True:\n    import random", "line 2: random is only for"),
    (check_imports, "tidelog.store.shard", "from numpy import random", "numpy.random is only for"),
    (check_imports, "tidelog.hlc", "from time import time_ns", "time is only for"),
    (check_imports, "tidelog.testing.clock", "import threading", "threading is only for"),
    (check_imports, "tidelog.testing.network", "import asyncio", "asyncio is only for"),
    (check_imports, "tidelog.replication.leader", "import socket", "socket is only for"),
    (check_imports, "tidelog.commands.strings", "import asyncio", "asyncio is only for"),
    (check_imports, "tidelog.flight.service", "import asyncio", "asyncio is only for"),
    (check_imports, "tidelog.cli.pipeline", "from pyspark.sql import SparkSession", "pyspark is only for spark"),
    (check_imports, "tidelog.spark.source", "import pickle", "pickle is only for nobody"),
    (check_imports, "tidelog.cli.main", "from marshal import loads", "marshal is only for nobody"),
    (check_machine_names, "tidelog.journal.writer", "import datetime\ndatetime.datetime.now()", "line 2: datetime"),
    (check_machine_names, "tidelog.hlc", "from datetime import datetime as d\nx = d.utcnow", "datetime.utcnow is"),
    (check_machine_names, "tidelog.types.string", "from datetime import date\ndate.today()", "date.today is only"),
    (check_machine_names, "tidelog.journal.loader", "with open('x') as f: ...", "open is only for"),
    (check_machine_names, "tidelog.store.slots", "import numpy as np\nnp.random.rand()", "numpy.random is only"),
    (check_seeds, "tidelog.testing.disk", "import random\nrandom.random()", "line 2: random.random cannot be"),
    (check_seeds, "tidelog.testing.disk", "import random as r\nr.choice([1])", "random.choice cannot be"),
    (check_seeds, "tidelog.testing.disk", "from random import shuffle", "random.shuffle cannot be"),
    (check_seeds, "tidelog.testing.disk", "import random\nrandom.Random()", "needs a seed"),
    (check_seeds, "tidelog.testing.disk", "from random import Random\nRandom(None)", "needs a seed"),
    (check_prints, "tidelog.journal.reader", "def f():\n    print('x')", "line 2: print is only for cli"),
    (check_prints, "tidelog.system.clock", "from rich import print\nprint('x')", "line 2: print is only for cli"),
    (check_caught_errors, "tidelog.cli.main", "try: f()\nexcept: g()", "line 2: a bare except"),
    (check_caught_errors, "tidelog.cli.main", "try: f()\nexcept Exception: pass", "caught and forgotten"),
    (check_caught_errors, "tidelog.cli.main", "try: f()\nexcept (OSError, BaseException): ...", "caught and forgotten"),
    (check_caught_errors, "tidelog.cli.main", "import contextlib as c\nwith c.suppress(Exception): f()", "line 2: "),
    (check_name, "tidelog.utils", "", "utils says nothing"),
    (check_name, "tidelog.store.common.slots", "", "common says nothing"),
    (check_name, "tests.journal.helpers", "", "helpers says nothing"),
    (check_docstring, "tidelog.ids", "# A comment is not one.\nx = 1", "no docstring"),
    (check_docstring, "tidelog.ids", '""" """', "no docstring"),
    (check_docstring, "tests.test_ids", "", "no docstring"),
    (check_size, "tidelog.ids", "\n" * 451, "451 lines are more than 450"),
    (check_size, "tests.test_ids", "\n" * 601, "601 lines are more than 600"),
    (check_finished, "tidelog.ids", "x = 1\n# TO" "DO: y", "line 2: TO" "DO"),
    (check_finished, "tests.test_ids", "x = 'FIX" "ME later'", "line 1: FIX" "ME"),
    (check_finished, "benchmarks.append", "pass  # XX" "X", "line 1: XX" "X"),
]  # fmt: skip

HARMLESS: Final[list[tuple[Rule, str, str]]] = [
    (check_layers, "tidelog.store.shard", "from tidelog.journal import frame\nfrom tidelog.errors import Corruption"),
    (check_layers, "tidelog.journal.frame", "from . import flit\nfrom tidelog import __version__\nimport store"),
    (check_layers, "tidelog.hlc", "from tidelog.ids import Ts\nfrom .ports import Clock"),
    (check_layers, "tidelog.server.runtime", "import tidelog.system.clock, tidelog.cli"),
    (check_layers, "tidelog.cli.main", "from tidelog.spark import jobs"),
    (check_layers, "tidelog.channels.channel", "from . import clock\nfrom tidelog import errors, limits, ids"),
    (check_imports, "tidelog.journal.writer", "import posixpath, timeit, datetime\nfrom tidelog.journal import time"),
    (check_imports, "tidelog.system.clock", "import time, os, asyncio"),
    (check_imports, "tidelog.testing.disk", "import random"),
    (check_imports, "tidelog.spark.source", "import pyspark, os"),
    (check_machine_names, "tidelog.journal.writer", "disk.open('x', 'read')\nnow()\nevent.datetime.now()"),
    (check_machine_names, "tidelog.cli.main", "open('x')"),
    (check_seeds, "tidelog.testing.disk", "import random\ndef f(r: random.Random): return r.random()"),
    (check_seeds, "tidelog.testing.disk", "from random import Random\nRandom(7).random()"),
    (check_seeds, "tidelog.server.connection", "import random\nrandom.random()"),
    (check_prints, "tidelog.cli.main", "print('x')"),
    (check_prints, "tidelog.journal.reader", "console.print('x')"),
    (check_caught_errors, "tidelog.cli.main", "try: f()\nexcept OSError: pass\nexcept Exception: raise"),
    (check_caught_errors, "tidelog.cli.main", "import contextlib\nwith contextlib.suppress(OSError): f()"),
    (check_name, "tidelog.replication.common_prefix", ""),
    (check_docstring, "tidelog.ids", '"""What it is for."""'),
    (check_size, "tidelog.ids", "\n" * 450),
    (check_size, "tests.test_ids", "\n" * 600),
    (check_finished, "tidelog.ids", "TODOS = 'to do'"),
]


@pytest.mark.parametrize(("rule", "module", "text", "complaint"), VIOLATIONS)
def test_a_violation_is_seen(rule: Rule, module: str, text: str, complaint: str) -> None:
    found = list(rule(text, module))
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(("rule", "module", "text"), HARMLESS)
def test_what_is_allowed_is_left_alone(rule: Rule, module: str, text: str) -> None:
    assert list(rule(text, module)) == []


def test_every_rule_is_tried_both_ways() -> None:
    rules = {*SOURCE_RULES, *CODE_RULES}
    assert {violation[0] for violation in VIOLATIONS} == rules
    assert {harmless[0] for harmless in HARMLESS} == rules


def test_every_layer_boundary_is_closed() -> None:
    """Of two packages, the one that stands first never imports the other."""
    for index, layer in enumerate(LAYERS[:-1]):
        for below in LAYERS[index + 1 :]:
            assert list(check_layers(f"import tidelog.{below}", f"tidelog.{layer}.module"))


@pytest.mark.parametrize(
    ("test", "is_fine"),
    [
        ("tests.test_ids", True),
        ("tests.test_nothing", False),
        ("tests.conftest", True),
        ("tests.journal.test_frame", True),
        ("tests.journal.test_frame_damage", True),
        ("tests.journal.test_framework", False),
        ("tests.journal.test_ids", False),
        ("tests.journal.builders", True),
        ("tests.test_journal", True),
        ("tests.elsewhere.test_frame", False),
        ("tests.properties.test_anything", True),
        ("tests.journal.properties.test_anything", False),
    ],
)
def test_a_test_without_its_module_is_seen(test: str, is_fine: bool) -> None:
    sources = ["tidelog.ids", "tidelog.journal.__init__", "tidelog.journal.frame"]
    assert (list(check_mirror([test], sources)) == []) is is_fine


def test_a_folder_without_init_is_seen() -> None:
    assert list(check_packages(["tidelog.__init__", "tidelog.journal.frame"])) == ["tidelog.journal has no __init__.py"]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](there.md) [b](sub/) ![c](sub/picture%20one.png) [d](<there.md> 'title')", []),
        ("[a](there.md#part) [b](#part) [c](https://host/x) [d](mailto:a@b)", []),
        ("[a](missing.md) and ![b](sub/missing.png)", ["missing.md", "sub/missing.png"]),
        ("[a](../outside.md)", ["../outside.md"]),
        ("[a](/there.md) [b](/missing.md)", ["/missing.md"]),
        ("[a]\n\n[a]: missing.md", ["missing.md"]),
        ("`[a](missing.md)`\n\n```\n[a](missing.md)\n```\n[b](gone.md)", ["gone.md"]),
    ],
)
def test_a_broken_link_is_seen(text: str, broken: list[str], tmp_path: Path) -> None:
    (tmp_path / "outside.md").touch()
    (tmp_path / "checkout" / "sub").mkdir(parents=True)
    (tmp_path / "checkout" / "there.md").touch()
    (tmp_path / "checkout" / "sub" / "picture one.png").touch()
    found = check_links(text, tmp_path / "checkout", tmp_path / "checkout")
    assert list(found) == [f"{target} leads nowhere" for target in broken]
