"""Messages of a channel for code without an event loop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.channels.servers import ChannelServer
from tests.integration.feed_server import url_of
from tests.integration.server_process import ServerProcess
from tidelog import limits
from tidelog.client import ReceivedMessage, ServerUnreachable, SubscriptionNotFound
from tidelog.client.listening import Listener
from tidelog.client.receiving import receive


def fill(server: ChannelServer, count: int = 5) -> None:
    with Listener(server.url) as listener:
        receive(listener, "orders", "me", lambda _: True, follows=False)
        listener.run(listener.client.channel("orders").publish_many(range(count)))


def taking(got: list[Any]) -> Callable[[ReceivedMessage], bool]:
    def take(message: ReceivedMessage) -> bool:
        got.append(message.content)
        return False

    return take


def left(server: ChannelServer) -> list[Any]:
    """What the subscriber would get now; it is not acknowledged."""
    got: list[Any] = []
    with Listener(server.url) as listener:
        receive(listener, "orders", "me", taking(got), handled=lambda: None, follows=False)
    return got


def test_a_message_is_handled_when_the_function_has_returned(any_server: ChannelServer) -> None:
    fill(any_server)
    got: list[Any] = []

    def take(message: ReceivedMessage) -> bool:
        got.append(message.content)
        return len(got) == 3

    begun: list[bool] = []
    with Listener(any_server.url) as listener:
        receive(listener, "orders", "me", take, on_begin=begun.append)
    assert (got, begun) == ([0, 1, 2], [False])
    assert left(any_server) == [3, 4]


def test_one_that_raised_comes_again(one_server: ChannelServer) -> None:
    fill(one_server)
    ends: list[bool] = []

    def take(message: ReceivedMessage) -> bool:
        if message.content == 2:
            raise ArithmeticError("broken")
        return False

    with Listener(one_server.url) as listener, pytest.raises(ArithmeticError, match="broken"):
        receive(listener, "orders", "me", take, on_end=ends.append)
    assert ends == [False]
    assert left(one_server) == [2, 3, 4]


def test_without_following_it_ends_when_all_is_read(one_server: ChannelServer) -> None:
    fill(one_server, 300)
    got: list[Any] = []
    ends: list[bool] = []
    with Listener(one_server.url) as listener:
        receive(
            listener,
            "orders",
            "me",
            taking(got),
            follows=False,
            on_end=ends.append,
            batch=7,
        )
    assert (got, ends) == (list(range(300)), [True])
    assert one_server.cursor("orders", "me") == 300


def test_what_is_handled_may_be_told_later(one_server: ChannelServer) -> None:
    """Messages are read on behind those that are not acknowledged."""
    fill(one_server, 6)
    got: list[ReceivedMessage] = []
    cursors: list[int] = []

    def on_idle() -> None:
        cursors.append(one_server.cursor("orders", "me"))

    def take(message: ReceivedMessage) -> bool:
        got.append(message)
        return False

    def handled() -> ReceivedMessage | None:
        if len(cursors) > 6:
            raise InterruptedError
        return got[len(cursors) - 4] if len(cursors) > 3 else None

    with Listener(one_server.url) as listener, pytest.raises(InterruptedError):
        receive(listener, "orders", "me", take, handled=handled, on_idle=on_idle, idle_s=0.02, batch=2)
    assert [each.content for each in got] == [0, 1, 2, 3, 4, 5]
    assert cursors == [0, 0, 0, 0, 1, 2, 3]


def test_ctrl_c_arrives_while_it_waits(one_server: ChannelServer) -> None:
    fill(one_server)
    got: list[Any] = []

    def interrupt() -> None:
        while one_server.cursor("orders", "me") < 5:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with Listener(one_server.url) as listener, pytest.raises(KeyboardInterrupt):
        receive(listener, "orders", "me", taking(got))
    thread.join()
    assert got == [0, 1, 2, 3, 4]
    assert left(one_server) == []


def test_options_reach_the_channel_and_the_subscriber(one_server: ChannelServer) -> None:
    with Listener(one_server.url) as listener:
        with pytest.raises(SubscriptionNotFound):
            receive(listener, "orders", "me", lambda _: True, creates=False, follows=False)
        receive(listener, "orders", "me", lambda _: True, follows=False, channel_options={"expire": 2.0})
    assert 0 < one_server.client.pttl("c.{orders}.r.me") <= 2000


def test_an_end_that_cannot_be_acknowledged_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_CHANNEL_LEAVE_S", 0.3)
    with ServerProcess(tmp_path / "data") as server, Listener(url_of(server)) as listener:
        receive(listener, "orders", "me", lambda _: True, follows=False)
        listener.run(listener.client.channel("orders").publish(1))

        def take(_: ReceivedMessage) -> bool:
            server.kill()
            return True

        with pytest.raises(ServerUnreachable, match="messages that were handled may come again"):
            receive(listener, "orders", "me", take)
