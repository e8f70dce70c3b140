"""Commands about channels as processes that go on, and a look at what a subscriber has left to read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.channels.servers import ChannelServer
from tests.cli.command_line import SECONDS_MAX, run
from tests.cli.running_command import RunningCommand
from tidelog.client.listening import Listener
from tidelog.client.receiving import receive


class Running(RunningCommand):
    """A `tidelog channel` that goes on."""

    def __init__(self, *arguments: str, stdin: int | None = None, stdout: int = subprocess.PIPE) -> None:
        super().__init__("channel", *arguments, stdin=stdin, stdout=stdout)


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def at(server: ChannelServer) -> tuple[str, str]:
    return "--url", server.url


def fill(server: ChannelServer, count: int, *, begin: int = 0) -> None:
    """Subscriber `me` of `orders` has so many messages more to read."""
    with Listener(server.url) as listener:
        receive(listener, "orders", "me", lambda _: True, handled=lambda: None, follows=False, batch=1)
        channel = listener.client.channel("orders")
        listener.run(channel.publish_many(range(begin, begin + count)))


def left(server: ChannelServer) -> list[Any]:
    """What the subscriber would get now; it is not acknowledged."""
    got: list[Any] = []

    def take(message: Any) -> bool:
        got.append(message.content)
        return False

    with Listener(server.url) as listener:
        receive(listener, "orders", "me", take, handled=lambda: None, follows=False)
    return got


def contents(outcome_lines: list[dict[str, Any]]) -> list[Any]:
    return [each["content"] for each in outcome_lines]


def printed(server: ChannelServer, *options: str) -> list[Any]:
    """What `tidelog channel sub --no-follow` prints now."""
    outcome = run("channel", "sub", "orders", "me", "--no-follow", *at(server), *options)
    assert outcome.status == 0, outcome.stderr
    return contents(outcome.objects)
