"""Commands about channels as processes that go on, and a look at what a subscriber has left to read."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.channels.servers import ChannelServer
from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, run
from tests.integration.server_process import is_readable
from tidelog.client.listening import Listener
from tidelog.client.receiving import receive


class Running:
    """A `tidelog channel` that goes on; leaving the block ends it."""

    def __init__(self, *arguments: str, stdin: int | None = None, stdout: int = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "channel", *arguments],
            env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self._rest = b""

    def line(self) -> Any:
        """The next line of its output, as JSON."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS_MAX
        while b"\n" not in self._rest:
            assert is_readable(self.process.stdout.fileno(), deadline - time.monotonic()), "nothing came"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.process.stderr and self.process.stderr.read()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def told(self) -> str:
        """The next line of its messages."""
        assert self.process.stderr is not None
        assert is_readable(self.process.stderr.fileno(), SECONDS_MAX), "nothing was told"
        return self.process.stderr.readline().decode()

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Its status, and what it told that nobody has read."""
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(SECONDS_MAX)
        assert self.process.stderr is not None
        return status, self.process.stderr.read().decode()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


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
