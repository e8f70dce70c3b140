"""What a stop says it has left."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.server.leftovers import what_is_left


@dataclass
class Client:
    is_busy: bool = True
    backlog_bytes: int = 0
    unsent_bytes: int = 0


def test_nothing() -> None:
    idle = Client(is_busy=False, backlog_bytes=5, unsent_bytes=5)  # half a command, and a reply on its way
    assert what_is_left([idle], unwritten_bytes=0, waits_for_fsync=False) == ""


def test_each_kind_is_named() -> None:
    clients = [Client(backlog_bytes=10), Client(unsent_bytes=3, backlog_bytes=5), Client()]
    assert what_is_left(clients, unwritten_bytes=7, waits_for_fsync=True) == (
        "7 bytes of changes that the disk did not take, 3 bytes of replies that 1 client did not take, "
        "15 bytes of commands of 2 clients that were not run"
    )
    assert what_is_left([], unwritten_bytes=0, waits_for_fsync=True) == "replies that wait for an fsync"
