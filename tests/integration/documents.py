"""Follows a page of the documentation as a reader does: every block in order, in an empty folder, with real processes.

    ```sh        typed into one bash per page; a command that fails ends the page. A block that is a lone
                 `tidelog serve ...` has a terminal of its own: the page goes on once the server is ready
    ```python    run by one Python process per page, so that blocks share names and a Spark session; or, if the first
                 line is a comment that names a file (`# orders.py`), written to that file
    ```toml      written to the file that its first line names
    ```conf      the same, for a program that cannot choose its port: a free one takes the place of that in `port N`
    ```text      what the block above must have printed, stderr included. White space at the end of a line does not
                 count; `...` stands for anything within a line, and alone on a line for any number of lines
    ```          a diagram, a syntax or a command for another machine: neither run nor compared

A page that needs a server and starts none finds one running on the default ports, with its data in `data`. Only the
ports differ from those on the page, so that several pages can be followed at the same time: servers choose theirs, and
what follows on the page is changed to them. One that is started again gets the port that it had.

`pip install` installs a copy of the checkout, without its dependencies and without compiling it.
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
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest

from benchmarks.peers import free_ports
from tests.cli.command_line import ENVIRONMENT
from tidelog.testing.ready_line import read_ports

CHECKOUT: Final = Path(__file__).resolve().parents[2]
DEFAULT_PORTS: Final = {"--port": "6399", "--http-port": "8399", "--flight-port": "8499"}
"""By the option that a server takes for another one."""
PORTS: Final = (*DEFAULT_PORTS.values(), "6400")
"""The ports that pages use."""

FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME: Final = re.compile(r"# (\w+\.(?:py|toml|conf))\n")
CHOSEN_PORT: Final = re.compile(r"^port (\d+)$", re.MULTILINE)
SERVE: Final = re.compile(r"\s*(?:#.*\n)*(tidelog serve [^&|;\n]*?)\s*(?:#[^\n]*)?\n")
BLOCK_S_MAX: Final = 300.0
STOP_S_MAX: Final = 30.0
MARK: Final = "--- the block is done ---"

PYTHON_LOOP: Final = f"""
import os
import sys
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    os.environ["TIDELOG_URL"], path = line.split()
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), names)
    print("\\n{MARK}", flush=True)
"""
PIP: Final = """#!/bin/sh
# Installs a copy of the checkout as `pip install` does, but needs no network and no compiler.
set -e
[ "$1" = install ]
mkdir -p {folder}/checkout
cd {checkout}
cp -r src pyproject.toml setup.py README.md LICENSE {folder}/checkout
cd {folder}/checkout
find src -name '*.so' -delete
TIDELOG_COMPILE=no {python} -m pip install --quiet --disable-pip-version-check --no-index --no-deps \\
    --no-build-isolation --target {folder}/installed "$2" 2> {folder}/pip.log || {{ cat {folder}/pip.log; exit 1; }}
for extra in $(echo "$2" | sed -n 's/.*\\[\\(.*\\)\\]/\\1/p' | tr , ' '); do
    grep -q "^Provides-Extra: $extra$" {folder}/installed/tidelog-*.dist-info/METADATA
done
PYTHONPATH={folder}/installed {folder}/installed/bin/tidelog --version > /dev/null
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    return [Block(found[1], found[2], page.count("\n", 0, found.start()) + 1) for found in FENCED.finditer(page)]


def is_run(block: Block) -> bool:
    """Whether `follow` runs a block, or writes it to a file that another block runs."""
    return block.kind in ("sh", "python", "toml", "conf")


def starts_server(block: Block) -> bool:
    """Whether a block starts the server that the rest of the page talks to."""
    found = SERVE.fullmatch(block.text)
    return found is not None and "--port" not in found[1]


def needs_server(blocks: Sequence[Block]) -> bool:
    """Whether a page talks to a server and does not start it."""
    if any(block.kind == "sh" and starts_server(block) for block in blocks):
        return False
    return any(word in block.text for block in blocks if is_run(block) for word in ("tidelog", *PORTS))


def is_like(printed: str, expected: str) -> bool:
    """Whether an output is what the page shows."""
    pattern = ""
    for line in expected.splitlines():
        parts = map(re.escape, line.rstrip().split("..."))
        pattern += r"(?:.*\n)*" if line.strip() == "..." else ".*".join(parts) + r"[ ]*\n"
    return re.fullmatch(pattern, printed) is not None


class Interpreter:
    """A process that is told on its standard input which file to run next, and prints `MARK` after each."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            command,
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

    def run(self, block: Block, request: str) -> str:
        """What a block prints; the test fails if one of its commands does."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a process that has ended is noticed below
            self._process.stdin.write(f"{request}\n")
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
        return "".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self._folder.glob("*.log")))

    def close(self) -> None:
        """End the process and every process that it has left."""
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
            with suppress(BrokenPipeError):
                pipe.close()


class Desk:
    """Where a page is followed: a folder, and the interpreters that its blocks share, started when they are needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, str] = {}
        """A port on the page -> that of the server that was started on it."""
        self.inside = folder / "inside"
        self.inside.mkdir()
        self._write_programs()
        self._environment = {
            **ENVIRONMENT,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }
        self._running = ExitStack()
        self._bash: Interpreter | None = None
        self._python: Interpreter | None = None
        self._scripts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._running.close()

    def _write_programs(self) -> None:
        """`tidelog`, `python` and `pip`, as a reader has them on the PATH."""
        programs = self._folder / "bin"
        programs.mkdir()
        pip = PIP.format(folder=self._folder / "pip", checkout=CHECKOUT, python=sys.executable)
        for name, script in (
            ("tidelog", f'#!/bin/sh\nexec {sys.executable} -P -m tidelog.cli "$@"\n'),
            ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
            ("pip", pip),
        ):
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)

    def run_shell(self, block: Block) -> str:
        if self._bash is None:
            self._bash = self._start(["bash", "--noprofile", "--norc", "-eo", "pipefail"])
        script = self._write_script(self.at_real_ports(block.text))
        return self._bash.run(
            block, f"export TIDELOG_URL={self._url}; source {script} < /dev/null; echo; echo '{MARK}'"
        )

    def run_python(self, block: Block) -> str:
        if self._python is None:
            self._python = self._start([sys.executable, "-c", PYTHON_LOOP])
        return self._python.run(block, f"{self._url} {self._write_script(self.at_real_ports(block.text))}")

    def serve(self, block: Block, command: str) -> str:
        """Start a server in the background; returns what it prints when it is ready."""
        log = f"server-{block.line}.log"
        words = command.split()
        wanted = {option: _option(words, option) or port for option, port in DEFAULT_PORTS.items()}
        for option, port in wanted.items():
            if port in PORTS:
                command += f" {option} {self._ports.get(port, 'auto')}"
        until_ready = f"until grep -qs '^tidelog: ready on ' {log}; do kill -0 $!; sleep 0.1; done"
        waiting = f"{command} > {log} 2>&1 &\n{until_ready}\ncat {log}\n"
        printed = self.run_shell(block._replace(text=waiting))
        ready = next(line for line in printed.splitlines() if line.startswith("tidelog: ready on "))
        for port, real in zip(wanted.values(), read_ports(ready), strict=True):
            if port in PORTS:
                self._ports[port] = str(real)
        return printed

    def choose_ports(self, text: str) -> None:
        """Find free ports for a program that is told its port by a file."""
        ports = CHOSEN_PORT.findall(text)
        self._ports.update(zip(ports, map(str, free_ports(len(ports))), strict=True))

    def at_real_ports(self, text: str) -> str:
        """A text of the page with the ports that its servers have."""
        for port, real in self._ports.items():
            text = re.sub(rf"\b{port}\b", real, text)
        return text

    @property
    def _url(self) -> str:
        return f"redis://127.0.0.1:{self._ports.get('6399', '6399')}"

    def _start(self, command: Sequence[str]) -> Interpreter:
        made = Interpreter(command, self.inside, self._environment)
        self._running.callback(made.close)
        return made

    def _write_script(self, text: str) -> Path:
        self._scripts += 1
        script = self._folder / f"block-{self._scripts}"
        script.write_text(text)
        return script


def _option(words: Sequence[str], name: str) -> str | None:
    """The value of an option on a command line."""
    return words[words.index(name) + 1] if name in words else None


def follow(page: str, folder: Path) -> None:
    """Do everything that a page says, and compare what is printed with what it shows."""
    blocks = blocks_of(page)
    if not any(is_run(block) for block in blocks):
        return
    printed: str | None = None
    with Desk(folder) as desk:
        if needs_server(blocks):
            desk.serve(Block("sh", "", 0), "tidelog serve --data data")
        for number, block in enumerate(blocks):
            match block.kind:
                case "sh":
                    served = SERVE.fullmatch(block.text)
                    printed = desk.serve(block, served[1]) if served else desk.run_shell(block)
                case "text":
                    assert printed is not None, f"line {block.line}: what has printed this?"
                    printed = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
                    assert is_like(printed, desk.at_real_ports(block.text)), (
                        f"line {block.line}: {block.text}\nis not: {printed}"
                    )
                    printed = None
                case "python" | "toml" | "conf":
                    name = FILE_NAME.match(block.text)
                    if name is not None:
                        later = [each.text for each in blocks[number + 1 :] if is_run(each)]
                        module = re.compile(rf"\b{name[1].partition('.')[0]}\b")  # a module may be imported
                        assert any(map(module.search, later)), f"line {block.line}: nothing runs {name[1]}"
                        if block.kind == "conf":
                            desk.choose_ports(block.text)
                        (desk.inside / name[1]).write_text(desk.at_real_ports(block.text))
                        printed = None
                    else:
                        assert block.kind == "python", f"line {block.line}: the first line must name a file"
                        printed = desk.run_python(block)
                case "":
                    pass
                case other:
                    pytest.fail(f"line {block.line}: nothing can be done with a block of {other}")
