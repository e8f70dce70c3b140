"""HTTP connections: requests that do not arrive, more of them than there is room for, and junk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.test_app import Served
from tidelog import limits
from tidelog.gateway.app import Gateway
from tidelog.gateway.http_connection import HttpClients
from tidelog.server.listener import bind_tcp
from tidelog.testing.clock import SimulatedClock

HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Link(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes = HEALTH) -> bytes:
        """The head of the answer."""
        self.writer.write(request)
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        if b"content-length:" in head:
            await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        return head

    async def rest(self) -> bytes:
        """What comes until the connection ends."""
        try:
            return await asyncio.wait_for(self.reader.read(), 10)
        except ConnectionResetError:
            return b""

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof() and self.reader.exception() is None


class Site:
    """A gateway and links to it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.links: list[Link] = []

    async def link(self, sent: bytes = b"") -> Link:
        link = Link(*await asyncio.open_connection("127.0.0.1", self.gateway.port))
        self.links.append(link)
        link.writer.write(sent)
        return link


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    made = Site(
        Gateway(Served(str(folder), loop=asyncio.get_running_loop()).app, bind_tcp("127.0.0.1", 0), SimulatedClock())
    )
    await made.gateway.start()
    try:
        yield made
    finally:
        for link in made.links:
            link.writer.transport.abort()
        await made.gateway.stop()


def run(folder: Path, test: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site(folder) as made:
            await test(made)

    asyncio.run(main())


async def settled(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


# --- time ---------------------------------------------------------------------------------------------------------


def test_headers_that_do_not_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_HEADERS_S_MAX", 0.5)

    async def test(made: Site) -> None:
        silent, begun, dripping = await made.link(), await made.link(b"GET /hea"), await made.link()

        async def drip() -> None:
            for byte in HEALTH:
                dripping.writer.write(bytes([byte]))
                await asyncio.sleep(0.1)

        task = asyncio.create_task(drip())
        for link in (silent, begun, dripping):
            assert (await link.rest()).startswith(b"HTTP/1.1 408 ")
        task.cancel()
        again = await made.link()
        assert b" 200 " in await again.ask()
        again.writer.write(HEALTH[:20])
        assert (await again.rest()).startswith(b"HTTP/1.1 408 ") or not again.is_open
        assert len(made.gateway.clients) == 0

    run(tmp_path, test)


def test_between_two_requests_there_is_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_HEADERS_S_MAX", 0.3)

    async def test(made: Site) -> None:
        link = await made.link()
        for _ in range(3):
            assert b" 200 " in await link.ask()
            await asyncio.sleep(0.5)
        assert link.is_open

    run(tmp_path, test)


@pytest.mark.parametrize("path", [b"/health", b"/feed"])
def test_bodies_that_do_not_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    """Whether the answer was sent already, or is a stream without end."""
    monkeypatch.setattr(limits, "HTTP_BODY_S_MAX", 0.5)

    async def test(made: Site) -> None:
        method = b"POST" if path == b"/health" else b"GET"
        link = await made.link(method + b" " + path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n12")
        answer = await link.rest()
        assert answer.startswith(b"HTTP/1.1 405 " if path == b"/health" else b"HTTP/1.1 200 ")
        assert not link.is_open
        await settled(lambda: not len(made.gateway.clients))

    run(tmp_path, test)


@pytest.mark.parametrize(
    "framing", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
def test_a_client_that_would_rather_speak_something_else_is_answered(framing: bytes) -> None:
    head = b"PUT /body HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"

    async def test(made: Site, app: Waiting) -> None:
        for pieces in (1, 7):
            link = await made.link()
            request = 2 * (head + framing)
            for start in range(0, len(request), len(request) // pieces):
                link.writer.write(request[start : start + len(request) // pieces])
                await asyncio.sleep(0.01)
            for _ in range(2):
                assert b" 200 " in await link.ask(b"")
        assert app.bodies == [b"hello"] * 4
        assert (await (await made.link(b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n")).rest()).startswith(b"HTTP/1.1 400 ")

    run_waiting(test)


# --- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [b"a" * 1000 + b": b\r\n", b"a"], ids=["many", "one"])
def test_headers_that_are_too_large(tmp_path: Path, part: bytes) -> None:
    async def test(made: Site) -> None:
        link = await made.link(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        sent = (part * limits.HTTP_HEADERS_BYTES_MAX)[: limits.HTTP_HEADERS_BYTES_MAX]
        for start in range(0, len(sent), 4096):
            link.writer.write(sent[start : start + 4096])
            await asyncio.sleep(0.005)
        assert (await link.rest()).startswith(b"HTTP/1.1 431 ")
        assert b" 200 " in await (await made.link()).ask(HEALTH[:-2] + b"x: " + b"y" * 40_000 + b"\r\n\r\n")

    run(tmp_path, test)


def test_requests_that_do_not_wait_for_answers_get_them_in_order(tmp_path: Path) -> None:
    async def test(made: Site) -> None:
        link = await made.link((HEALTH + HEALTH.replace(b"/health", b"/nowhere")) * 40)
        statuses = [(await link.ask(b""))[9:12] for _ in range(80)]
        assert statuses == [b"200", b"404"] * 40

    run(tmp_path, test)


# --- requests behind the one that is answered -----------------------------------------------------------------------


class Waiting:
    """An application that answers at once, except on /wait and /begins: there it waits until its client goes away."""

    def __init__(self) -> None:
        self.waiting = 0
        self.answered = 0
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] in ("/wait", "/begins"):
            if scope["path"] == "/begins":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            self.waiting += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            self.waiting -= 1
            await send({"type": "http.response.start", "status": 200, "headers": []})  # as if it did not know
            return
        self.answered += 1
        if scope["path"] == "/body":
            body = b""
            while (event := await receive())["type"] == "http.request":
                body += event["body"]
                if not event["more_body"]:
                    break
            self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


WAIT = b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n"


def run_waiting(test: Callable[[Site, Waiting], Awaitable[None]]) -> None:
    async def main() -> None:
        app = Waiting()
        made = Site(Gateway(app, bind_tcp("127.0.0.1", 0), SimulatedClock()))
        await made.gateway.start()
        try:
            await test(made, app)
        finally:
            for link in made.links:
                link.writer.transport.abort()
            await made.gateway.stop()

    asyncio.run(main())


@pytest.mark.parametrize("behind", [b"G", HEALTH, 100 * HEALTH])
def test_a_client_that_goes_away_is_noticed_behind_further_requests(behind: bytes) -> None:
    async def test(made: Site, app: Waiting) -> None:
        link = await made.link(WAIT)
        await settled(lambda: app.waiting == 1)
        for _ in range(3):
            link.writer.write(behind)
            await asyncio.sleep(0.05)
        link.writer.close()
        await settled(lambda: app.waiting == 0)
        await settled(lambda: not len(made.gateway.clients))

    run_waiting(test)


def test_too_much_behind_a_request_that_waits_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_PIPELINED_S_MAX", 0.3)

    async def test(made: Site, app: Waiting) -> None:
        link = await made.link(WAIT)
        await settled(lambda: app.waiting == 1)
        link.writer.write(HEALTH * (2 * limits.HTTP_PIPELINED_BYTES_MAX // len(HEALTH)))
        await settled(lambda: app.waiting == 0)
        assert await link.rest() == b""
        assert not len(made.gateway.clients)

    run_waiting(test)


def test_many_requests_at_once_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_PIPELINED_S_MAX", 0.3)

    async def test(made: Site, app: Waiting) -> None:
        count = 5 * limits.HTTP_PIPELINED_BYTES_MAX // len(HEALTH)
        link = await made.link(HEALTH * count)
        for _ in range(count):
            assert b" 200 " in await link.reader.readuntil(b"\r\n\r\n")
        assert app.answered == count
        assert link.is_open

    run_waiting(test)


@pytest.mark.parametrize(
    ("path", "is_late", "answers"),
    [
        (b"/health", False, b"HTTP/1.1 400 "),  # before its application has begun
        (b"/wait", True, b"HTTP/1.1 400 "),  # not answered yet
        (b"/begins", True, b"HTTP/1.1 200 "),  # in the middle of its answer
        (b"/health", True, b"HTTP/1.1 200 "),  # answered, and its body is still coming
    ],
)
def test_a_body_that_makes_no_sense_ends_the_connection_without_a_trace(
    path: bytes, is_late: bool, answers: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody could fill the log otherwise."""
    unhandled: list[Any] = []

    async def test(made: Site, app: Waiting) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        head = b"PUT " + path + b" HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        link = await made.link(head if is_late else head + b"no chunk\r\n")
        if is_late:
            await settled(lambda: app.waiting + app.answered > 0)
            await asyncio.sleep(0.05)
            link.writer.write(b"no chunk\r\n")
        assert (await link.rest()).startswith(answers)
        await settled(lambda: app.waiting == 0)
        await settled(lambda: not len(made.gateway.clients))

    with caplog.at_level(logging.WARNING):
        run_waiting(test)
    assert unhandled == []
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}


# --- numbers ------------------------------------------------------------------------------------------------------


def test_those_who_hang_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 20)

    async def test(made: Site) -> None:
        idle = await made.link()
        await idle.ask()
        feed = await made.link(b"GET /feed HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await feed.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        hanging = [await made.link(HEALTH[:-2]) for _ in range(60)]
        await settled(lambda: sum(link.is_open for link in hanging) == 18)
        assert not any(link.is_open for link in hanging[:42])
        for _ in range(30):
            assert b" 200 " in await (await made.link()).ask()
        assert len(made.gateway.clients) == 20
        assert feed.is_open
        assert not any(link.is_open for link in hanging)

    run(tmp_path, test)


def test_when_all_are_being_answered_a_new_one_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 3)

    async def test(made: Site) -> None:
        feeds = [await made.link(b"GET /feed HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(3)]
        for feed in feeds:
            await feed.reader.readuntil(b"\r\n\r\n")
        assert (await (await made.link(HEALTH)).rest()).startswith(b"HTTP/1.1 503 ")
        feeds[0].writer.transport.abort()
        await settled(lambda: len(made.gateway.clients) == 2)
        assert b" 200 " in await (await made.link()).ask()

    run(tmp_path, test)


class Stranger:
    """A connection without a socket."""

    def __init__(self, clients: HttpClients, address: str, *, is_answering: bool = False, has_asked: bool = False):
        self.clients: Any = clients
        self.address = address
        self.is_answering, self.has_asked = is_answering, has_asked or is_answering
        self.is_cut = False

    def come(self) -> bool:
        return bool(self.clients.admit(self))

    def cut(self) -> None:
        self.is_cut = True
        self.clients.remove(self)


def test_one_address_has_a_bound_of_its_own() -> None:
    clients = HttpClients(3)
    idle = Stranger(clients, "10.0.0.1", has_asked=True)
    busy = Stranger(clients, "10.0.0.1", is_answering=True)
    hanging = [Stranger(clients, "10.0.0.1") for _ in range(3)]
    assert all(each.come() for each in (idle, busy, *hanging))
    assert [each.is_cut for each in (idle, busy, *hanging)] == [False, False, True, True, False]
    other = Stranger(clients, "10.0.0.2")
    assert other.come()
    assert len(clients) == 4
    more = [Stranger(clients, "10.0.0.1", is_answering=True) for _ in range(3)]
    assert [each.come() for each in more] == [True, True, False]
    assert idle.is_cut
    assert not other.is_cut
    assert all(Stranger(clients, "127.0.0.1", is_answering=True).come() for _ in range(9))
    clients.remove(busy)  # type: ignore[arg-type]
    clients.remove(busy)  # type: ignore[arg-type]
    assert Stranger(clients, "10.0.0.1").come()


# --- the log ------------------------------------------------------------------------------------------------------


def test_junk_is_logged_a_few_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(made: Site) -> None:
        for _ in range(50):
            link = await made.link(b"\x16\x03junk\r\n\r\n")
            assert (await link.rest()).startswith(b"HTTP/1.1 400 ")

    with caplog.at_level(logging.WARNING):
        run(tmp_path, test)
    assert len(caplog.records) == limits.LOGGED_LINES_MAX
    assert caplog.messages[-1].endswith("(more of these are left out for 60 s)")
    assert not logging.getLogger("uvicorn.error").filters
