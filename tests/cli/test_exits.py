"""What becomes of errors: the exit status, and one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import typer

from tidelog.cli.exits import (
    CANNOT,
    DAMAGED,
    FINE,
    INTERRUPTED,
    TERMINATED,
    Terminated,
    finished_first,
    guarded,
    terminate_in_order,
)
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse, FormatError, InternalError, TooOld


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (Corruption("it is wrong", path="/f", frame=1, position=9), DAMAGED, "/f, frame 1, position 9: it is wrong"),
        (FormatError("it is wrong"), DAMAGED, "it is wrong"),
        (DataDirectoryError("no"), CANNOT, "no"),
        (DirectoryInUse("in use"), CANNOT, "in use"),
        (TooOld("gone", oldest=1), CANNOT, "gone"),
        (InternalError("two\nlines"), CANNOT, "two\\nlines"),
        (PermissionError(13, "Permission denied", "/f"), CANNOT, "/f: Permission denied"),
        (OSError("odd"), CANNOT, "odd"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @guarded
    def command() -> int:
        raise error

    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"tidelog: {line}\n")


def test_ctrl_c_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    @guarded
    def command() -> int:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == INTERRUPTED
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("status", [FINE, DAMAGED, CANNOT])
def test_a_status_is_passed_on(status: int) -> None:
    @guarded
    def command() -> int:
        return status

    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == status


def test_a_bug_keeps_its_traceback() -> None:
    @guarded
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


@pytest.fixture
def _handled() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a test before has left
    terminate_in_order()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def finished_after(*signals: int) -> list[int]:
    """What was done in a block in which signals come, one after the other."""
    done: list[int] = []
    try:
        with finished_first():
            for number in signals:
                os.kill(os.getpid(), number)
                done.append(number)
    except Terminated:
        done.append(TERMINATED)
    except KeyboardInterrupt:
        done.append(INTERRUPTED)
    return done


@pytest.mark.usefixtures("_handled")
def test_a_signal_waits_until_something_is_finished() -> None:
    assert finished_after(signal.SIGTERM) == [signal.SIGTERM, TERMINATED]
    assert finished_after(signal.SIGINT) == [signal.SIGINT, INTERRUPTED]
    assert finished_after() == []
    with pytest.raises(Terminated):  # outside of it, it counts at once
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("_handled")
def test_a_second_signal_does_not_wait() -> None:
    assert finished_after(signal.SIGINT, signal.SIGTERM) == [signal.SIGINT, TERMINATED]
    assert finished_after(signal.SIGTERM, signal.SIGINT) == [signal.SIGTERM, INTERRUPTED]
