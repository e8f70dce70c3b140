"""How a command ends: its exit status, and what becomes of errors.

    0    the command did its work, and found nothing wrong
    1    damage was found, or some of many items failed
    2    the command could not run: no such directory, not one of ours, in use, a wrong argument
    3    another job is running
    130  Ctrl-C
    143  SIGTERM, if it left work undone

A command is a function that returns its status; `guarded` makes it one that typer can run. The errors that Tidelog and
the operating system raise become one line on stderr. Anything else is a bug, and keeps its traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, Final, ParamSpec

import typer

from tidelog.cli.output.values import printable
from tidelog.errors import Corruption, TidelogError

FINE: Final = 0
DAMAGED: Final = 1
FAILED: Final = 1
CANNOT: Final = 2
BUSY: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

Parameters = ParamSpec("Parameters")


def guarded(command: Callable[Parameters, int]) -> Callable[Parameters, None]:
    """Run a command so that it ends as the module says."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        status = FINE
        try:
            with until_pipe_closes():
                status = command(*args, **kwargs)
                sys.stdout.flush()
        except KeyboardInterrupt:
            status = INTERRUPTED
        except Corruption as error:
            complain(str(error))
            status = DAMAGED
        except TidelogError as error:
            complain(str(error))
            status = CANNOT
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
            status = CANNOT
            _drop_what_cannot_be_written()
        raise typer.Exit(status)

    return run


class Terminated(KeyboardInterrupt):
    """SIGTERM. It takes the way of Ctrl-C through loops and callbacks, and the command ends in order."""


def terminate_in_order() -> None:
    """From now on, SIGTERM raises `Terminated`."""

    def on_terminate(_number: int, _frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, on_terminate)


@contextmanager
def finished_first() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM in the block counts when it is done; a second one at once."""
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    def put_back() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            put_back()
            handlers[number](number, frame)

    for number, handler in handlers.items():
        if callable(handler):  # else it is ignored, or ends the process
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        put_back()
    if came:
        handlers[came[0]](came[0], None)


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"tidelog: {printable(message)}", file=sys.stderr)


@contextmanager
def until_pipe_closes() -> Iterator[None]:
    """Ends the block quietly when the reader of our output closes the pipe, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        stdout_to_nowhere()  # Python flushes stdout once more when it exits, and would complain then


def _drop_what_cannot_be_written() -> None:
    """If the error is one of stdout, such as a full disk, it would come again when Python exits, with a status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        stdout_to_nowhere()


def close_stdout() -> None:
    """Tell the reader of our output that nothing follows."""
    sys.stdout.flush()
    stdout_to_nowhere()


def stdout_to_nowhere() -> None:
    """Whatever is printed from now on, or was not written yet, is dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
