"""`tidelog stream tail --follow` over restarts and failovers: no entry twice, none left out, no loss without a word.

The servers are real ones, and so are the processes that follow.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import invoke
from tests.cli.running_command import RunningCommand
from tests.integration.heir import Heir, heir
from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until
from tidelog import limits
from tidelog.cli.stream.following import PrintedEntries

__all__ = ["heir"]


def follow(url: str, *more: str) -> RunningCommand:
    return RunningCommand("stream", "tail", "s", "--follow", "--json", "--url", url, *more)


def write(client: Any, *entries: str) -> None:
    for entry in entries:
        client.execute_command("TWRITE", "s", "t", entry)


def lines(tail: RunningCommand, count: int) -> list[tuple[int, str]]:
    found = [tail.line() for _ in range(count)]
    return [(each["offset"], each["entry"]) for each in found]


def test_it_goes_on_at_the_server_that_takes_over(heir: Heir) -> None:
    with follow(heir.url) as tail:
        write(heir.client(), "a", "b")
        assert lines(tail, 2) == [(1, "a"), (2, "b")]
        heir.take_over()
        write(heir.client(), "c")
        assert lines(tail, 1) == [(3, "c")]
        status, told = tail.end(signal.SIGINT)
        assert status == 130
        lost, again = told.splitlines()
        assert lost.startswith("tidelog: connection lost (")
        assert lost.endswith("): resuming at offset 3")
        assert again == "tidelog: connected again"


def test_entries_that_the_other_server_has_not_are_told(heir: Heir) -> None:
    with follow(heir.url) as tail:
        write(heir.client(), "a", "b", "c")
        assert len(lines(tail, 3)) == 3
        heir.copy()
        write(heir.client(), "unconfirmed 1", "unconfirmed 2")
        assert len(lines(tail, 2)) == 2
        heir.take_over()
        assert "connection lost" in tail.told()
        told = tail.told()
        assert f"127.0.0.1:{heir.running.port} does not have what the stream had from offset 4 to 5: " in told
        assert told.endswith("going on at offset 4\n")
        write(heir.client(), "d", "e", "f")
        assert lines(tail, 3) == [(4, "d"), (5, "e"), (6, "f")]


def test_entries_in_whose_place_there_are_others_are_told(heir: Heir) -> None:
    """Those after the loss were written before the command was back."""
    with follow(heir.url) as tail:
        write(heir.client(), "a", "b")
        heir.copy()
        write(heir.client(), "same", "unconfirmed")
        assert len(lines(tail, 4)) == 4
        tail.process.send_signal(signal.SIGSTOP)
        heir.take_over()
        write(heir.client(), "same", "d", "e")
        tail.process.send_signal(signal.SIGCONT)
        assert "connection lost" in tail.told()
        assert "does not have what the stream had from offset 4 to 4: " in tail.told()
        assert lines(tail, 2) == [(4, "d"), (5, "e")]


def test_one_that_has_printed_nothing_goes_on_where_the_stream_ends(heir: Heir) -> None:
    write(heir.client(), "a")
    heir.copy()
    write(heir.client(), "unconfirmed")
    with follow(heir.url, "--count", "0") as tail:
        wait_until(lambda: b"cmd=tread" in heir.client().execute_command("CLIENT", "LIST").lower())
        heir.take_over()
        assert "connection lost" in tail.told()
        assert "does not have what the stream had from offset 2 to 2: " in tail.told()
        write(heir.client(), "b")
        assert lines(tail, 1) == [(2, "b")]


def test_a_single_server_that_is_started_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, follow(f"redis://127.0.0.1:{server.port}") as tail:
        write(server.client(), "a")
        assert lines(tail, 1) == [(1, "a")]
        server.terminate()
        assert "connection lost" in tail.told()
        with ServerProcess(tmp_path / "data", instead_of=server) as again:
            write(again.client(), "b")
            assert lines(tail, 1) == [(2, "b")]
            assert tail.end(signal.SIGINT) == (130, "tidelog: connected again\n")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A leader, and a server that follows it."""
    with ExitStack() as running:
        leader = running.enter_context(ServerProcess(tmp_path / "leader"))
        place = f"127.0.0.1:{leader.port}"
        yield leader, running.enter_context(ServerProcess(tmp_path / "follower", "--replicaof", place))


def test_a_server_that_follows_now_is_left(pair: tuple[ServerProcess, ServerProcess]) -> None:
    """Its connection stays: nothing but the role says that another one leads."""
    first, second = pair
    one: Any = first.client()
    other: Any = second.client()
    with follow(f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}") as tail:
        write(one, "a")
        assert lines(tail, 1) == [(1, "a")]
        wait_until(lambda: one.wait(1, 100) == 1)
        other.execute_command("REPLICAOF", "NO", "ONE")
        one.execute_command("REPLICAOF", "127.0.0.1", second.port)
        assert f"127.0.0.1:{first.port} follows another server now" in tail.told()
        wait_until(lambda: other.role()[0] == b"master")
        write(other, "b")
        assert lines(tail, 1) == [(2, "b")]
        assert tail.told() == "tidelog: connected again\n"


def test_what_the_server_refuses_ends_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.client().set("s", "no stream")
        outcome = invoke("stream", "tail", "s", "-f", "--url", f"redis://127.0.0.1:{server.port}")
        assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
        assert "WRONGTYPE" in outcome.stderr


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_entries_are_told_apart_by_tag_and_content() -> None:
    printed = PrintedEntries()
    printed.add(1, b"t", b"entry")
    printed.add(2, b"t", [b"field", b"value"])
    assert not printed.differs(1, b"t", b"entry")
    assert not printed.differs(2, b"t", [b"field", b"value"])
    assert printed.differs(1, b"u", b"entry")
    assert printed.differs(1, b"t", b"other")
    assert printed.differs(2, b"t", [b"field", b"other"])
    assert not printed.differs(3, b"t", b"one that was not printed")


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAIL_REMEMBERED_ENTRIES", 3)
    monkeypatch.setattr(limits, "TAIL_REMEMBERED_BYTES", 100)
    printed = PrintedEntries()
    for offset in range(1, 4):
        printed.add(offset, b"", b"x")
    assert (printed.first, printed.is_complete) == (1, True)
    printed.add(4, b"", b"x")
    assert (printed.first, printed.is_complete) == (2, False)
    printed.add(5, b"", bytes(99))
    assert printed.first == 4
    printed.forget_from(5)
    printed.add(5, b"", bytes(99))
    assert printed.first == 4, "what is forgotten does not count"
    printed.add(6, b"", bytes(101))
    assert printed.first is None
