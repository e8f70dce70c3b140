"""`docs/guide.md`, as a reader does it: every block, one after the other, in an empty folder, with real processes.

    ```sh        typed into one bash; a command that fails ends it
    ```text      what the block above has printed, stderr included, but for white space at its end and at those of
                 lines; `...` is anything: in a line, or any number of lines
    ```python    a file, whose name its first line says
    ```toml      the same

Only ports are others than in the text, so that several runs fit on a machine.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from demo.processes import free_port
from tests.cli.command_line import ENVIRONMENT

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide.md"
PORTS: Final = {"6399": "TIDELOG_PORT", "8399": "TIDELOG_HTTP_PORT", "8499": "TIDELOG_FLIGHT_PORT"}
"""Those of the text, and how a server is told others."""
FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_S_MAX: Final = 300.0
STOP_S_MAX: Final = 30.0
MARK: Final = "--- the block is done ---"


class Block(NamedTuple):
    """A fenced block of the guide."""

    kind: str
    text: str
    line: int


def blocks_of(guide: str) -> list[Block]:
    return [Block(found[1], found[2], guide.count("\n", 0, found.start()) + 1) for found in FENCED.finditer(guide)]


def is_like(printed: str, expected: str) -> bool:
    """Whether an output is what the guide shows."""
    pattern = ""
    for line in expected.splitlines():
        parts = map(re.escape, line.rstrip().split("..."))
        pattern += r"(?:.*\n)*" if line.strip() == "..." else ".*".join(parts) + r"[ ]*\n"
    return re.fullmatch(pattern, printed) is not None


class Shell:
    """A bash that is given one block after the other."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, block: Block) -> str:
        """What it prints; an error if one of its commands fails."""
        assert self._process.stdin is not None
        script = self._folder.parent / "block.sh"
        script.write_text(block.text)
        self._process.stdin.write(f"source {script} < /dev/null; echo; echo '{MARK}'\n")
        self._process.stdin.flush()
        deadline_s = time.monotonic() + BLOCK_S_MAX
        printed: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"line {block.line} takes too long: {block.text}\n{''.join(printed)}{self._logs()}")
            if line is None:
                pytest.fail(f"line {block.line} fails: {block.text}\n{''.join(printed)}{self._logs()}")
            if line.rstrip() == MARK:
                return "".join(printed).removesuffix("\n")  # what was put before the mark
            printed.append(line)

    def _logs(self) -> str:
        """What processes in the background have said."""
        return "".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in self._folder.glob("*.log"))

    def close(self) -> None:
        """End it, and all that it has left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_S_MAX)
            self._reader.join(STOP_S_MAX)  # processes in the background have its stdout, or have ended
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def shell_in(folder: Path, ports: dict[str, str]) -> Iterator[Shell]:
    """With `tidelog` and `python` of this checkout on its PATH."""
    programs = folder / "bin"
    programs.mkdir()
    for name, command in (("tidelog", f"{sys.executable} -P -m tidelog.cli"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    inside = folder / "inside"
    inside.mkdir()
    others = {PORTS[port]: free for port, free in ports.items()}
    environment = {**ENVIRONMENT, **others, "PATH": f"{programs}:{os.environ['PATH']}"}
    shell = Shell(inside, {**environment, "TIDELOG_URL": f"redis://127.0.0.1:{ports['6399']}"})
    try:
        yield shell
    finally:
        shell.close()


def follow(guide: str, folder: Path) -> None:
    """Do all that a guide says."""
    ports = {port: str(free_port()) for port in PORTS}
    for port, free in ports.items():
        guide = re.sub(rf"\b{port}\b", free, guide)
    printed: str | None = None
    with shell_in(folder, ports) as shell:
        for block in blocks_of(guide):
            match block.kind:
                case "sh":
                    printed = shell.run(block)
                case "text":
                    assert printed is not None, f"line {block.line}: what has printed this?"
                    printed = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
                    assert is_like(printed, block.text), f"line {block.line}: {block.text}\nis not: {printed}"
                    printed = None
                case "python" | "toml":
                    name = block.text.partition("\n")[0].removeprefix("# ")
                    assert re.fullmatch(r"\w+\.(py|toml)", name), f"line {block.line}: {name} is no name of a file"
                    (folder / "inside" / name).write_text(block.text)
                case other:
                    pytest.fail(f"line {block.line}: a block of {other or 'nothing'}")


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    follow(GUIDE.read_text(), tmp_path)


def test_every_block_is_found() -> None:
    blocks = blocks_of(GUIDE.read_text())
    assert 2 * len(blocks) == GUIDE.read_text().count("```")
    assert len([block for block in blocks if block.kind == "sh"]) >= 12


@pytest.mark.parametrize(
    "guide",
    [
        "```sh\nfalse\ntrue\n```\n",
        "```sh\nfalse | true\n```\n",
        "```sh\nno-such-command\n```\n",
        "```sh\necho a\n```\n```text\nb\n```\n",
        "```sh\necho a\n```\n```text\na\n...\nb\n```\n",
        "```sh\necho a\n```\n```sh\nx=1\n```\n```text\na\n```\n",
        "```text\na\n```\n",
        "```sh\necho >&2 warned\n```\n```text\n```\n",
        "```ruby\n1\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\n# one.py\n1 / 0\n```\n```sh\npython one.py\n```\n",
    ],
)
def test_what_is_not_so_is_noticed(tmp_path: Path, guide: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        follow(guide, tmp_path)


def test_what_is_so_is_fine(tmp_path: Path) -> None:
    guide = """
```python
# two.py
print("6399: 1 and", 2)
```
```sh
sleep 60 > nothing.log &
sleeper=$!
printf 'first\\nsecond\\nthird\\n'; python two.py
```
```text
first
...
...: 1 and 2
```
```sh
kill $sleeper
cat two.py; echo >&2 6399
```
```text
...
6399
```
"""
    follow(guide, tmp_path)
