"""The documentation mentions only what exists: files, modules, headings, and commands with their options.

`tests/integration/test_documents.py` runs the blocks of the pages; this looks at their prose. A file is mentioned in
backticks, from the checkout (`tests/golden/`), from the package (`journal/frame.py`) or by its name alone
(`limits.py`); a module as it is imported (`benchmarks.days`). A command is mentioned in backticks or in a block without
a language, which is not run: it may show a command that needs another machine, but not one that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from tidelog.channels.http.answer import ERROR_CODES
from tidelog.cli.app import app

CHECKOUT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = CHECKOUT / "src" / "tidelog"
PAGES: Final = [
    *(CHECKOUT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
TOP_FOLDERS: Final = frozenset({"benchmarks", "bin", "demo", "docs", "src", "tests"})

FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PATH: Final = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
NOT_RUN: Final = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTION: Final = re.compile(r"--[a-z][a-z-]*|-[a-z]")
MODULE: Final = re.compile(r"(?:tidelog|benchmarks|tests)(?:\.[a-z_][a-z0-9_]*)+")
LINK: Final = re.compile(r"\]\(([^)\s]*)#([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def prose_of(text: str) -> str:
    return FENCED.sub("", text)


def missing_files(text: str) -> Iterator[str]:
    """Paths in backticks that lead nowhere."""
    packages = {folder.name for folder in PACKAGE.iterdir() if folder.is_dir()}
    for code in CODE.findall(prose_of(text)):
        words = code.split()
        for word in words:
            if not PATH.fullmatch(word):
                continue
            first = word.partition("/")[0]
            if "/" not in word:
                is_there = not (len(words) == 1 and word.endswith(".py")) or any(files_called(word))
            elif first in TOP_FOLDERS:
                is_there = bool(list(CHECKOUT.glob(word)))
            elif first in packages:
                is_there = bool(list(PACKAGE.glob(word)))
            else:
                is_there = not word.endswith(".py")
            if not is_there:
                yield word


def files_called(name: str) -> Iterator[Path]:
    yield from CHECKOUT.glob(name)
    for folder in sorted(TOP_FOLDERS):
        yield from (CHECKOUT / folder).rglob(name)


def missing_modules(text: str) -> Iterator[str]:
    """Modules in backticks, alone or after `python -m`, that do not exist; a name in a module is fine, or a code."""
    for code in CODE.findall(prose_of(text)):
        for word in code.split():
            if MODULE.fullmatch(word) and not word.endswith(".toml") and word not in ERROR_CODES:
                root = CHECKOUT / "src" if word.startswith("tidelog.") else CHECKOUT
                *folders, last = word.split(".")
                inside = root.joinpath(*folders)
                files = (inside / f"{last}.py", inside / last, inside.with_suffix(".py"))
                if not any(file.exists() for file in files) and not has_name(inside / "__init__.py", last):
                    yield word


def has_name(module: Path, name: str) -> bool:
    """Whether a package has a name, such as a function that it exports."""
    return module.exists() and re.search(rf"\b{name}\b", module.read_text()) is not None


def missing_commands(text: str) -> Iterator[str]:
    """Commands and options of `tidelog` that do not exist, in backticks or in blocks that are not run."""
    lines = [line for block in NOT_RUN.findall(text) for line in block.splitlines()]
    for words in map(str.split, [*CODE.findall(prose_of(text)), *lines]):
        if words[:1] not in (["tidelog"], ["bin/tidelog"]):
            continue
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while rest and hasattr(command, "commands") and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        known = {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
        if rest and hasattr(command, "commands") and rest[0] not in known:
            yield " ".join(words)
        yield from (f"{' '.join(words)}: {word}" for word in rest if OPTION.fullmatch(word) and word not in known)


def missing_headings(page: Path, text: str) -> Iterator[str]:
    """Links to headings that do not exist."""
    for target, anchor in LINK.findall(prose_of(text)):
        linked = (page.parent / target).resolve() if target else page
        if ":" not in target and anchor not in anchors_of(linked.read_text()):
            yield f"{target}#{anchor}"


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them."""
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose_of(text))]
    return {title.strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_mentioned_exists(page: Path) -> None:
    text = page.read_text()
    missing = [*missing_files(text), *missing_modules(text), *missing_headings(page, text), *missing_commands(text)]
    assert missing == []


def test_the_drawing_of_layers_has_every_package() -> None:
    drawing = (CHECKOUT / "ARCHITECTURE.md").read_text()
    packages = [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    modules = [path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    drawn = {word for block in FENCED.findall(drawing) for word in block.split()}
    assert sorted({*packages, *modules} - drawn) == []


def test_the_index_has_every_page() -> None:
    index = (CHECKOUT / "docs" / "README.md").read_text()
    pages = [path.relative_to(CHECKOUT / "docs") for path in (CHECKOUT / "docs").rglob("*.md")]
    assert [str(path) for path in pages if str(path) != "README.md" and f"]({path})" not in index] == []


@pytest.mark.parametrize("text", ["`journal/nothing.py`", "`tests/nothing/`", "`nothing.py`", "`bin/nothing --json`"])
def test_a_missing_file_is_noticed(text: str) -> None:
    assert len(list(missing_files(text))) == 1


@pytest.mark.parametrize("text", ["`python -m benchmarks.nothing`", "`tidelog.nothing.at_all`", "`tidelog.nothing`"])
def test_a_missing_module_is_noticed(text: str) -> None:
    assert len(list(missing_modules(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`tidelog nothing`",
        "`tidelog pipeline nothing`",
        "`tidelog feed --nothing`",
        "`tidelog journal verify DIR --payload`",
        "`tidelog\nfeed --nothing`",
        "```\ntidelog pipeline lake --to lake --nothing     what it does\n```\n",
    ],
)
def test_a_missing_command_is_noticed(text: str) -> None:
    assert len(list(missing_commands(text))) == 1


def test_a_missing_heading_is_noticed() -> None:
    page = CHECKOUT / "README.md"
    assert list(missing_headings(page, "# A\n[x](#a) [y](#b) [z](docs/README.md#nothing)")) == [
        "#a",
        "#b",
        "docs/README.md#nothing",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`limits.py` `ports.py` `journal/` `tests/simulation/*.py` `views.toml` `lake/changes` `job.py --master yarn`",
        "`bin/test tests/spark --long` `/metrics` `tidelog/ts` `days:QUEUE/JOBSET` `tidelog.toml`",
        "```\n`journal/nothing.py`\n```\n",
        "`tidelog feed --no-checkpoints --key greeting` `tidelog view ls --help` `tidelog pipeline status` `tidelog`",
        "```\ntidelog serve --data data --port 6400\ntidelog view drop orders --to lake        remove one\n```\n",
    ],
)
def test_what_is_there_is_fine(text: str) -> None:
    assert [*missing_files(text), *missing_modules(text), *missing_commands(text)] == []
