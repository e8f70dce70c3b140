"""The processes of the demo: a server, and children that tell what they do in lines of JSON.

Each runs in a session of its own, so that Ctrl-C is for the demo alone, which ends them by their process ids, in the
reverse order of their start. They inherit no settings: what is shown are defaults.

Java lives here for seconds. Compiling everything by its quick compiler alone halves what it takes from the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from tidelog.errors import EnvironmentFault
from tidelog.testing.ready_line import read_ports

_READY_S_MAX: Final = 30.0
_STOP_S_MAX: Final = 20.0
_LOOK_S: Final = 0.01
_KEPT_SETTINGS: Final = "TIDELOG_SPARK_"
_CHECKOUT: Final = str(Path(__file__).resolve().parent.parent)
_JAVA: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}

Line = dict[str, Any]


def module_command(module: str, *arguments: object) -> list[str]:
    """Runs a module of ours with this Python."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def tidelog_command(*arguments: object) -> list[str]:
    """The command line, as `bin/tidelog` runs it."""
    return module_command("tidelog.cli", *arguments)


class DemoProcess:
    """A child, and the lines that it has told so far."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.errors = folder / f"{name}.stderr"
        self.lines: list[str] = []
        """Without their ends. Another thread appends to it."""
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("TIDELOG_") or key.startswith(_KEPT_SETTINGS)
        }
        # The demo is not installed: its children find it in the checkout.
        environment["PYTHONPATH"] = os.pathsep.join([_CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env={**_JAVA, **environment},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def told(self) -> list[Line]:
        """Its lines, of JSON."""
        return [json.loads(line) for line in list(self.lines)]

    @property
    def last(self) -> Line:
        """The last of them."""
        found: Line = json.loads(self.lines[-1])
        return found

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for something that this process is to do; an error if it ends first or takes too long."""
        deadline = time.monotonic() + seconds
        while not holds():
            if self.has_ended:
                self._reader.join(_STOP_S_MAX)
                if holds():
                    return
                raise EnvironmentFault(f"{self.name} ended before {what}: {self.complaint()}")
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"{self.name}: {what} did not happen within {seconds:g} s: {self.complaint()}")
            time.sleep(_LOOK_S)

    def complaint(self) -> str:
        """The end of what it wrote to stderr."""
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def say(self, line: str) -> None:
        """Into its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self) -> None:
        """There is nothing more to say."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As a crash: no chance to do anything."""
        self._process.kill()
        self._process.wait(_STOP_S_MAX)
        self._reader.join(_STOP_S_MAX)

    def stop(self) -> int:
        """In order; returns its exit status."""
        if not self.has_ended:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self.wait(_STOP_S_MAX)

    def wait(self, seconds: float) -> int:
        """Its exit status, when it has ended by itself."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(f"{self.name} did not end within {seconds:g} s: {self.complaint()}") from None
        self._reader.join(_STOP_S_MAX)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, unless it has ended, and let go of its pipes."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGCONT)
        self.stop()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class ServerProcess:
    """`tidelog serve` on a port that it chooses. Killed, it is started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.data = folder / "data"
        self._process, self.start_s = self._started("auto")
        self.port = read_ports(self._process.lines[0]).redis

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def _started(self, port: object) -> tuple[DemoProcess, float]:
        begun_s = time.monotonic()
        ports = "--port", port, "--http-port", 0, "--flight-port", 0
        made = DemoProcess("server", tidelog_command("serve", "--data", self.data, *ports), self._folder)
        try:
            made.wait_until(lambda: bool(made.lines), "it was ready", _READY_S_MAX)
        except EnvironmentFault:
            made.close()
            raise
        return made, time.monotonic() - begun_s

    def kill(self) -> None:
        self._process.kill()
        self._process.close()

    def start_again(self) -> float:
        """Returns how long it took, to where clients can come."""
        self._process, self.start_s = self._started(self.port)
        return self.start_s

    def stop(self) -> int:
        return self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()
