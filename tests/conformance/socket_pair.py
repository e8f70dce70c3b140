"""A real Redis and a Tidelog server side by side, each behind sockets: for what concerns connections and the server.

    def test_something(both: Both) -> None:
        a, b = both.connect(), both.connect(3)            each is a connection to Redis and one to Tidelog
        a("SUBSCRIBE", "news")                            the same bytes from both
        b("PUBLISH", "news", "hi")
        a.read()                                          the next message on both, the same too
        a.is_closed()                                     both have closed it

Both are processes of their own that all tests of this process share, and are emptied before each test.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from tests.conformance.redis_oracle import EXACT, Argument, Item, Order, decode, pack, parse
from tests.integration.server_process import ServerProcess

REPLY_S_MAX: Final = 20.0


def encoded(arguments: Sequence[bytes]) -> bytes:
    """A command as clients send it."""
    parts = [b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments]
    return b"*%d\r\n%b" % (len(arguments), b"".join(parts))


class Line:
    """One connection to one of them."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, arguments: list[bytes]) -> None:
        self.socket.sendall(encoded(arguments))

    def read(self) -> tuple[Item, bytes]:
        """The next reply or message, decoded and as it came."""
        while True:
            with contextlib.suppress(ValueError, IndexError):  # not all there yet
                item, end = parse(self._buffer)
                if end <= len(self._buffer):
                    data, self._buffer = self._buffer[:end], self._buffer[end:]
                    return item, data
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError(f"closed after {self._buffer!r}")
            self._buffer += more

    def is_quiet(self, seconds: float = 0.1) -> bool:
        """Nothing comes."""
        if self._buffer:
            return False
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) and False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(REPLY_S_MAX)

    def is_closed(self) -> bool:
        try:
            return not self._buffer and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


class Connection:
    """A connection to each."""

    def __init__(self, redis_port: int, tidelog_port: int) -> None:
        self.redis, self.tidelog = Line(redis_port), Line(tidelog_port)

    def __call__(self, *arguments: Argument, order: Order = EXACT) -> Any:
        """Run a command on both, compare the replies, and return Tidelog's."""
        self.send(*arguments)
        return self.read(order, f"{arguments}")

    def send(self, *arguments: Argument) -> None:
        for line in (self.redis, self.tidelog):
            line.send(pack(arguments))

    def pipeline(self, commands: Sequence[Sequence[Argument]], order: Callable[[str], Order] = lambda _: EXACT) -> None:
        """Send commands in one piece, and compare all replies; `order` says how, for the name of a command."""
        words = [pack(command) for command in commands]
        self.send_bytes(b"".join(map(encoded, words)))
        for command in commands:
            self.read(order(str(command[0])), f"{list(command)} in {list(map(list, commands))}")

    def send_bytes(self, data: bytes) -> None:
        for line in (self.redis, self.tidelog):
            line.socket.sendall(data)

    def read(self, order: Order = EXACT, what: str = "a message") -> Any:
        """The next reply or message of both, which must be the same."""
        (theirs, expected), (ours, actual) = self.redis.read(), self.tidelog.read()
        if expected != actual:
            assert order(ours) == order(theirs), f"{what}: {ours!r} and not {theirs!r}"
        return decode(actual)

    def each(self, *arguments: Argument) -> tuple[Any, Any]:
        """Run a command on both without comparing: what Redis replied, and what Tidelog did."""
        self.send(*arguments)
        return decode(self.redis.read()[1]), decode(self.tidelog.read()[1])

    def is_quiet(self) -> bool:
        return self.redis.is_quiet() and self.tidelog.is_quiet()

    def is_closed(self) -> bool:
        return self.redis.is_closed() and self.tidelog.is_closed()

    def close(self) -> None:
        self.redis.socket.close()
        self.tidelog.socket.close()


class Both:
    """Opens connections to both, and closes them after the test."""

    def __init__(self, redis_port: int, tidelog_port: int) -> None:
        self.redis_port, self.tidelog_port = redis_port, tidelog_port
        self._open: list[Connection] = []
        admin = self.connect()
        admin("CLIENT", "UNPAUSE")
        admin.each("CONFIG", "RESETSTAT")
        admin("FLUSHALL")
        self.admin = admin

    def connect(self, protocol: int = 2) -> Connection:
        made = Connection(self.redis_port, self.tidelog_port)
        self._open.append(made)
        if protocol != 2:
            made.each("HELLO", protocol)
        return made

    def eventually(self, test: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + REPLY_S_MAX
        while not test():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.005)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@pytest.fixture(scope="session")
def tidelog_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Tidelog that only this process uses."""
    with ServerProcess(tmp_path_factory.mktemp("tidelog") / "data") as server:
        yield server.port


@pytest.fixture
def both(redis_port: int, tidelog_port: int) -> Iterator[Both]:
    made = Both(redis_port, tidelog_port)
    yield made
    made.close()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def link(both: Both, protocol: int) -> Connection:
    """One connection, in both protocols."""
    return both.connect(protocol)
