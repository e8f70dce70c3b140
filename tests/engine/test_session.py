"""The states of a client: what each means for its next command, and which change leads in and out."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.engine.made import NoLoop, make_connections, make_engine
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.feeding import SessionSink
from tidelog.engine.session import Replies, Session
from tidelog.engine.table import Command
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

TABLE = command_table()


def new_session(password: bytes | None = None) -> Session:
    clock = SimulatedClock()
    store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
    engine = make_engine(store, clock, NoLoop(), password)
    loop = asyncio.new_event_loop()  # it never runs: nothing is sent here
    loop.close()
    return Connection(engine, Turns(loop, store.journal, clock.monotonic_us), make_connections(engine))


def row(name: bytes) -> Command:
    found = TABLE.find(name)
    assert found is not None
    return found


def refused(session: Session, name: bytes) -> str | None:
    """The code of the error that a command would get."""
    refusal = session.refusal_of(row(name)) or session.listening_refusal_of(row(name))
    return None if refusal is None else refusal.partition(" ")[0]


def test_a_new_client_is_plain() -> None:
    session = new_session()
    assert session.is_plain
    assert (refused(session, b"GET"), session.queues(row(b"GET")), session.takes_reply()) == (None, False, True)


def test_a_stranger_may_only_say_who_it_is() -> None:
    session = new_session(b"secret")
    assert not session.is_plain
    assert [refused(session, name) for name in (b"GET", b"AUTH", b"HELLO", b"QUIT")] == ["NOAUTH", None, None, None]
    session.authenticate()
    assert (session.is_plain, refused(session, b"GET")) == (True, None)
    session.reset()
    assert (session.is_plain, refused(session, b"GET")) == (False, "NOAUTH")


def test_in_multi_commands_are_queued() -> None:
    session = new_session()
    session.begin_multi()
    assert not session.is_plain
    names = (b"GET", b"PUBLISH", b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT", b"RESET")
    assert [session.queues(row(name)) for name in names] == [True, True] + [False] * 6
    assert [refused(session, name) for name in (b"GET", b"SUBSCRIBE", b"CHANGEFEED")] == [None, "ERR", "ERR"]
    assert session.queue(row(b"GET"), [b"GET", b"k"])
    assert (session.queued, session.queued_bytes) == ([(row(b"GET"), [b"GET", b"k"])], 4)
    session.end_multi()
    assert (session.queued, session.queued_bytes, session.is_plain) == (None, 0, True)


def test_a_multi_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUED_BYTES_MAX", 9)
    session = new_session()
    session.begin_multi()
    assert [session.queue(row(b"GET"), [b"GET", b"k"]) for _ in range(3)] == [True, True, False]


def test_a_feed_is_told_that_it_may_acknowledge() -> None:
    session = new_session()
    session.begin_feed(SessionSink(session, session.engine.feeding))
    refusal = session.listening_refusal_of(row(b"GET"))
    assert refusal is not None
    assert "(P|S)UNSUBSCRIBE / FEED ACK / PING" in refusal
    subcommands = TABLE.subcommands(b"FEED")
    assert subcommands is not None
    assert session.listening_refusal_of(subcommands[b"ACK"]) is None


@pytest.mark.parametrize(("protocol", "code"), [(2, "ERR"), (3, None)])
def test_while_listening_resp2_takes_few_commands(protocol: int, code: str | None) -> None:
    session = new_session()
    session.speak(protocol)
    session.engine.subscriptions.subscribe(session, b"news")
    session.state_changed()
    assert (session.is_listening, session.is_plain) == (True, False)
    assert [refused(session, name) for name in (b"GET", b"PING", b"UNSUBSCRIBE", b"RESET")] == [code, None, None, None]
    session.engine.subscriptions.unsubscribe(session, b"news")
    session.state_changed()
    assert (session.is_listening, session.is_plain) == (False, True)


def test_skip_drops_its_own_reply_and_the_next() -> None:
    session = new_session()
    session.set_replies(Replies.SKIP_NEXT)
    assert not session.is_plain
    assert [session.takes_reply() for _ in range(3)] == [False, False, True]
    assert session.is_plain


def test_replies_that_are_off_stay_off() -> None:
    session = new_session()
    session.set_replies(Replies.OFF)
    assert [session.takes_reply() for _ in range(3)] == [False] * 3
    session.set_replies(Replies.ON)
    assert (session.takes_reply(), session.is_plain) == (True, True)


def test_reset_leaves_every_state() -> None:
    session = new_session()
    session.speak(3)
    session.select(2)
    session.name, session.is_unevictable = b"me", True
    session.set_replies(Replies.OFF)
    session.engine.store.watch(session, 2, b"k")
    session.engine.subscriptions.subscribe_pattern(session, b"n*")
    session.begin_multi()
    session.reset()
    assert (session.protocol, session.database, session.name, session.is_unevictable) == (2, 0, b"", False)
    assert (session.queued, session.watched, session.patterns, session.replies) == (None, set(), set(), Replies.ON)
    assert session.is_plain
    assert session.engine.subscriptions.pattern_count() == 0


def test_a_pause_makes_no_session_plain_until_it_is_over() -> None:
    session = new_session()
    session.engine.sessions.add(session)

    class Cancelled:
        def cancel(self) -> None: ...

    session.engine.gate._loop.call_later = lambda *_: Cancelled()  # type: ignore[method-assign]
    session.engine.gate.pause(1000, writes_only=True)
    assert not session.is_plain
    assert session.engine.gate.holds(row(b"SET"), [b"SET", b"k", b"v"])
    assert not session.engine.gate.holds(row(b"GET"), [b"GET", b"k"])
    session.engine.gate.resume()
    assert session.is_plain
