"""What others hang on a turn: calls at its end, and news of what is visible and durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.engine.made import make_connections, make_engine
from tests.server.test_connection import Transport, turns
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


class Server:
    """A client of an engine on a simulated disk, and what happens in which order."""

    def __init__(self, policy: FsyncPolicy) -> None:
        clock, loop = SimulatedClock(), asyncio.get_running_loop()
        self.store = Store.open(SimulatedDisk(1), "/data", clock, Settings(policy=policy), lambda: 1, Random(1))
        self.writer = self.store.journal.writer
        self.engine = make_engine(self.store, clock, loop)
        self.turns = Turns(
            loop,
            self.store.journal,
            clock.monotonic_us,
            on_visible=lambda: self.note("visible"),
            on_durable=lambda: self.note("durable"),
        )
        self.session = Connection(self.engine, self.turns, make_connections(self.engine))
        self.transport = Transport()
        self.session.connection_made(self.transport)  # type: ignore[arg-type]
        self.happened: list[tuple[str, bool, bytes]] = []

    def note(self, what: str) -> None:
        """With whether all is written, and what the client was told until then."""
        self.happened.append((what, self.writer.batch_bytes == 0, self.transport.written))

    def noting(self, what: str) -> Callable[[], None]:
        return lambda: self.note(what)


def run(policy: FsyncPolicy, test: Callable[[Server], object]) -> Server:
    async def inside() -> Server:
        server = Server(policy)
        test(server)
        await turns(6)
        return server

    return asyncio.run(inside())


def test_calls_come_after_the_commands_and_before_the_journal() -> None:
    def test(server: Server) -> None:
        server.turns.at_end(server.noting("first"))
        server.session.data_received(b"SET a 1\r\n")
        server.turns.at_end(server.noting("second"))

    server = run(FsyncPolicy.NEVER, test)
    assert server.happened == [("first", False, b""), ("second", False, b""), ("visible", True, b"")]
    assert server.transport.written == b"+OK\r\n"


def test_a_call_alone_makes_a_turn_and_runs_once() -> None:
    server = run(FsyncPolicy.NEVER, lambda server: server.turns.at_end(server.noting("called")))
    assert [what for what, _, _ in server.happened] == ["called", "visible"]


def test_a_call_may_ask_for_another() -> None:
    server = run(FsyncPolicy.NEVER, lambda made: made.turns.at_end(lambda: made.turns.at_end(made.noting("inner"))))
    assert [what for what, _, _ in server.happened] == ["inner", "visible"]
    assert server.turns.count == 1


def test_a_client_that_a_call_answers_is_answered_in_the_same_turn() -> None:
    def test(server: Server) -> None:
        def unblock() -> None:
            assert server.engine.blocking.unblock(server.session, with_error=True)

        server.session.data_received(b"BLPOP l 0\r\n")
        server.turns.at_end(unblock)

    server = run(FsyncPolicy.NEVER, test)
    assert server.turns.count == 1
    assert server.transport.written.startswith(b"-UNBLOCKED")


def test_each_fsync_is_told_when_its_replies_have_left() -> None:
    server = run(FsyncPolicy.ALWAYS, lambda server: server.session.data_received(b"SET a 1\r\n"))
    assert [(what, told) for what, _, told in server.happened if what == "durable"] == [("durable", b"+OK\r\n")]
    assert server.writer.durable_ts == server.writer.written_ts


@pytest.mark.parametrize("policy", [FsyncPolicy.EVERYSEC, FsyncPolicy.NEVER])
def test_an_fsync_while_everyone_waits_is_told_too(policy: FsyncPolicy) -> None:
    def test(server: Server) -> None:
        server.session.data_received(b"SET a 1\r\n")
        server.writer.write()
        server.turns.commit.sync_now()

    server = run(policy, test)
    assert [what for what, _, _ in server.happened] == ["durable", "visible"]
