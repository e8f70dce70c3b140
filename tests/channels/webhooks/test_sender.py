"""Calls of webhooks: what a receiver gets, and receivers that fail, stall, redirect, die, and talk too much."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.channels.servers import in_loop
from tests.channels.webhooks.receivers import ReceivedCall, Receiver, receiver, webhook_rules
from tests.system.certificates import certified
from tidelog.channels import message_of
from tidelog.channels.webhooks.addresses import looked_up
from tidelog.channels.webhooks.sender import SendOutcome, WebhookSender
from tidelog.channels.webhooks.signature import signature
from tidelog.channels.webhooks.webhook_rule import WebhookUse

NOW_S = 1_800_000_000
REFUSED = "an address that webhooks may not call"


@asynccontextmanager
async def sender_of(use: WebhookUse, **options: object) -> AsyncIterator[WebhookSender]:
    made = WebhookSender(use.webhook, now_s=lambda: NOW_S + 0.5, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.aclose()


async def sent(folder: Path, port: int, rest: str = "", *, value: object = "x", **options: object) -> SendOutcome:
    """What became of one message."""
    how = {name: options.pop(name) for name in ("lookup", "tls") if name in options}
    [use] = webhook_rules(folder, port, rest, **options).match("chat-7").webhooks
    async with sender_of(use, **how) as sender:
        return await sender.send(use, message_of("m1", value), attempt=2, fence=17)


@in_loop
async def test_what_a_receiver_gets(tmp_path: Path) -> None:
    rest = (
        "method = 'PUT'\nsecret-files = ['secret', 'secret']\nbody = '<{message.content}>'\ncontent-type = 'text/x'\n"
    )
    rest += "[channels.webhooks.headers]\nX-Room = 'room {channel.id} {message.id}'\nAuthorization = 'Bearer hidden'\n"
    async with receiver() as there:
        assert await sent(tmp_path, there.port, rest, value="hé") == (True, "status 200", None)
        [call] = there.calls
    assert (call.method, call.path, call.body) == ("PUT", "/rooms/7", "<hé>".encode())
    proof = f"v1={signature(b's' * 32, NOW_S, 'chat-7', 'm1', call.body)}"
    expected = {
        "Host": f"127.0.0.1:{there.port}",
        "Content-Type": "text/x",
        "X-Room": "room 7 m1",
        "Authorization": "Bearer hidden",
        "Tidelog-Webhook": "hook",
        "Tidelog-Channel": "chat-7",
        "Tidelog-Message-Id": "m1",
        "Tidelog-Attempt": "2",
        "Tidelog-Fence": "17",
        "Tidelog-Timestamp": str(NOW_S),
        "Tidelog-Signature": f"{proof}, {proof}",
    }
    assert {name: call.headers.get(name) for name in expected} == expected
    assert "Cookie" not in call.headers


@in_loop
async def test_a_url_arrives_as_it_was_made(tmp_path: Path) -> None:
    async with receiver() as there:
        url = f"http://127.0.0.1:{there.port}/a%2Fb/{{message.content}}?q={{message.content}}&%7e"
        assert (await sent(tmp_path, there.port, url=url, value="..")).is_sent
        assert there.calls[0].path == "/a%2Fb/%2E%2E?q=%2E%2E&%7e"


@pytest.mark.parametrize("status", [200, 204, 299, 301, 302, 303, 304, 307, 400, 404, 429, 500, 503])
@in_loop
async def test_only_2xx_is_a_success(status: int, tmp_path: Path) -> None:
    async def answer(_call: ReceivedCall) -> web.StreamResponse:
        return web.Response(status=status, headers={"Retry-After": "7", "Set-Cookie": "a=b", "Location": "/elsewhere"})

    async with receiver() as there:
        there.answer = answer
        outcome = await sent(tmp_path, there.port)
        assert outcome.is_sent is (status < 300)
        assert outcome.retry_after_ms == (None if status < 300 or status == 307 else 7000)
        assert len(there.calls) == 1


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254"]
)
@in_loop
async def test_private_addresses_are_not_called_by_default(host: str, tmp_path: Path) -> None:
    async with receiver() as there:
        outcome = await sent(tmp_path, 0, url=f"http://{host}:{there.port}/", allows=False)
        assert outcome == (False, REFUSED, None)
        assert there.calls == []


@in_loop
async def test_a_name_that_changes_its_address_is_called_at_the_one_that_was_checked(tmp_path: Path) -> None:
    """DNS rebinding: the first answer is allowed, the next one would not be. There is no next one."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def lookup(host: str, _port: int) -> list[str]:
        assert host == "receiver.example"
        return answers.pop(0)

    async with receiver() as there:
        url = f"http://receiver.example:{there.port}/"
        assert (await sent(tmp_path, 0, url=url, lookup=lookup)).is_sent
        assert len(answers) == 1
        assert there.calls[0].headers["Host"] == f"receiver.example:{there.port}"
        answers = [["127.0.0.1", "169.254.169.254"]]
        assert await sent(tmp_path, 0, url=url, lookup=lookup) == (False, REFUSED, None)
        assert len(there.calls) == 1


def redirects_to(there: Receiver, location: str, status: int = 307) -> None:
    async def answer(call: ReceivedCall) -> web.StreamResponse:
        if call.path.startswith("/rooms"):
            return web.Response(status=status, headers={"Location": location})
        return web.Response()

    there.answer = answer


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.2:{port}/", "http://[::1]:{port}/", "//10.0.0.1/",
     "http://[::ffff:169.254.169.254]/"],
)  # fmt: skip
@in_loop
async def test_redirects_to_private_addresses_are_not_followed(location: str, tmp_path: Path) -> None:
    async with receiver() as there:
        redirects_to(there, location.format(port=there.port))
        rest = 'max-redirects = 3\nallow-networks = ["127.0.0.1/32"]'
        outcome = await sent(tmp_path, there.port, rest, allows=False)
        assert outcome == (False, REFUSED, None)
        assert len(there.calls) == 1


@in_loop
async def test_redirects(tmp_path: Path) -> None:
    headers = "[channels.webhooks.headers]\nAuthorization = 'Bearer hidden'\n"
    async with receiver() as there, receiver() as elsewhere:
        redirects_to(there, "/new")
        assert await sent(tmp_path, there.port) == (False, "redirected", None)
        there.calls.clear()
        assert (await sent(tmp_path, there.port, f"max-redirects = 1\n{headers}")).is_sent
        assert [call.path for call in there.calls] == ["/rooms/7", "/new"]
        assert {(call.method, call.body, call.headers.get("Authorization")) for call in there.calls} == {
            ("POST", b'"x"', "Bearer hidden")
        }
        redirects_to(there, f"http://127.0.0.1:{elsewhere.port}/", 308)
        assert (await sent(tmp_path, there.port, f"max-redirects = 1\n{headers}")).is_sent
        assert "Authorization" not in elsewhere.calls[0].headers
        assert elsewhere.calls[0].body == b'"x"'
        for location in ("/rooms/again", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://x:y:z/", "http://"):
            redirects_to(there, location)
            outcome = await sent(tmp_path, there.port, "max-redirects = 2")
            assert not outcome.is_sent
            assert outcome.reason.startswith("redirected")
        for status in (301, 302, 303):
            redirects_to(there, "/new", status)
            assert await sent(tmp_path, there.port, "max-redirects = 2") == (False, f"status {status}", None)


# --- receivers that misbehave -----------------------------------------------------------------------------------------


@asynccontextmanager
async def raw_receiver(reply: bytes, *, then_waits: bool = False) -> AsyncIterator[int]:
    """A server that reads a request, sends these bytes and closes, or says nothing more; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            if then_waits:
                await asyncio.sleep(5)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("reply", "then_waits", "reason"),
    [
        (b"", False, "ServerDisconnectedError"),
        (b"HTTP/1.1 20", False, "the call failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", False, "ClientPayloadError"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", False, "the call failed"),
        (b"nonsense\r\n\r\n", False, "the call failed"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", False, "the call failed"),
        (b"", True, "no answer within 300 ms"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", True, "no answer within 300 ms"),
    ],
)
@in_loop
async def test_a_receiver_that_dies_or_stalls_fails(
    reply: bytes, then_waits: bool, reason: str, tmp_path: Path
) -> None:
    async with raw_receiver(reply, then_waits=then_waits) as port:
        outcome = await sent(tmp_path, port, "timeout = '300ms'")
    assert not outcome.is_sent
    assert reason in outcome.reason


@in_loop
async def test_a_response_without_end_is_read_up_to_a_bound(tmp_path: Path) -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
        try:
            while written < 2**30:
                writer.write(b"x" * 65536)
                await writer.drain()
                written += 65536
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        outcome = await sent(tmp_path, server.sockets[0].getsockname()[1])
    assert outcome.is_sent
    assert written < 64 * 2**20


@in_loop
async def test_nobody_at_the_port_or_no_such_name(tmp_path: Path) -> None:
    async def lookup(_host: str, _port: int) -> list[str]:
        raise OSError("no such name")

    for options in ({}, {"url": "http://nowhere.example/", "lookup": lookup}):
        outcome = await sent(tmp_path, 1, **options)  # type: ignore[arg-type]
        assert not outcome.is_sent
        assert "the call failed" in outcome.reason
        assert "nowhere" not in outcome.reason


@in_loop
async def test_calls_under_way_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_call: ReceivedCall) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return web.Response()

    async with receiver() as there:
        there.answer = answer
        [use] = webhook_rules(tmp_path, there.port, "max-calls = 3").match("chat-7").webhooks
        with caplog.at_level(logging.DEBUG):
            async with sender_of(use) as sender:
                calls = [sender.send(use, message_of(f"m{each}", "hidden"), attempt=1, fence=1) for each in range(20)]
                assert all(outcome.is_sent for outcome in await asyncio.gather(*calls))
        assert there.at_once_max == 3
    assert "hidden" not in caplog.text


# --- TLS --------------------------------------------------------------------------------------------------------------


@in_loop
async def test_tls_is_for_the_name_and_not_for_the_address(tmp_path: Path) -> None:
    server, client = certified(tmp_path, "receiver.example")
    names = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)

    async def lookup(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with receiver(server) as there:
        for host, is_sent in (("receiver.example", True), ("another.example", False)):
            url = f"https://{host}:{there.port}/"
            assert (await sent(tmp_path, 0, url=url, lookup=lookup, tls=client)).is_sent is is_sent
        assert not (await sent(tmp_path, 0, url=f"https://receiver.example:{there.port}/", lookup=lookup)).is_sent
        redirects_to(there, f"http://127.0.0.1:{there.port}/")
        url = f"https://receiver.example:{there.port}/rooms"
        outcome = await sent(tmp_path, 0, "max-redirects = 1", url=url, lookup=lookup, tls=client)
        assert outcome.reason == "redirected to what is not followed"
    assert names[0] == "receiver.example"


@in_loop
async def test_the_resolver_of_this_machine() -> None:
    assert all(ipaddress.ip_address(address).is_loopback for address in await looked_up("localhost", 80))
