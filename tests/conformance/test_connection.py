"""What concerns one connection, on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import Item
from tests.conformance.socket_pair import Both, Connection


def without_version(item: Item) -> object:
    """HELLO's reply, but for versions and the number of the connection."""
    if not isinstance(item.value, tuple):
        return item
    pairs = dict(zip(item.value[::2], item.value[1::2], strict=True))
    kept = {
        key.value: value for key, value in pairs.items() if key.value not in (b"id", b"version", b"tidelog_version")
    }
    return item.mark, kept


def test_ping_and_echo(link: Connection) -> None:
    for command in (
        ["PING"],
        ["ping", "x"],
        ["PING", "a", "b"],
        ["PING", b"\r\n"],
        ["ECHO", "x"],
        ["ECHO"],
        ["ECHO", ""],
    ):
        link(*command)


def test_select(link: Connection) -> None:
    for number in ("x", "16", "-1", "", "1.5", "99999999999999999999"):
        link("SELECT", number)
    link("SELECT", 9)
    link("SET", "k", "nine")
    link("SELECT", 0)
    link("GET", "k")
    link("SELECT", 9)
    link("GET", "k")


@pytest.mark.parametrize(
    "command",
    [
        "AUTH a",
        "AUTH default x",
        "AUTH foo x",
        "AUTH a b c",
        "AUTH",
        "HELLO 4",
        "HELLO x",
        "HELLO 3 FOO",
        "HELLO 3 AUTH a",
        "HELLO 3 AUTH foo bar",
        "HELLO 2 SETNAME",
        "HELLO 3 SETNAME a AUTH",
        "HELLO 3 SETNAME é",
        "RESET x",
        "SELECT",
        "CLIENT",
        "CLIENT NOSUCH",
        "nosuch a b",
        "NOSUCH",
    ],
)
def test_refusals(both: Both, command: str) -> None:
    link = both.connect()
    link(*command.split())
    link("PING")


@pytest.mark.parametrize("command", ["HELLO", "HELLO 2", "HELLO 3", "HELLO 3 AUTH default any", "HELLO 3 SETNAME me"])
def test_hello(both: Both, command: str) -> None:
    link = both.connect()
    link(*command.split(), order=without_version)
    link("CLIENT", "GETNAME")
    link("HGETALL", "nothing")
    link("HELLO", order=without_version)
    link("GET", "nothing")


def test_reset_forgets_everything(both: Both) -> None:
    link = both.connect(3)
    link("SELECT", 3)
    link("CLIENT", "SETNAME", "me")
    link("WATCH", "k")
    link("SUBSCRIBE", "news")
    link("MULTI")
    link("SET", "k", 1)
    link("RESET")
    link("EXEC")
    link("CLIENT", "GETNAME")
    link("GET", "k")
    link("PUBLISH", "news", "hi")
    link("HGETALL", "k")


@pytest.mark.parametrize("command", ["QUIT", "quit a b"])
def test_quit(both: Both, command: str) -> None:
    link = both.connect()
    link(*command.split())
    assert link.is_closed()


def test_what_follows_quit_is_not_run(both: Both) -> None:
    link = both.connect()
    link.send_bytes(b"SET a 1\r\nQUIT\r\nSET a 2\r\n")
    link.read()
    link.read()
    assert link.is_closed()
    assert both.admin("GET", "a") == b"1"


def test_names(link: Connection) -> None:
    for name in (b"a b", b"", b"me", b"\xff", b"a\n", b"!~"):
        link("CLIENT", "SETNAME", name)
        link("CLIENT", "GETNAME")


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n", b"post\r\n", b"GET / HTTP/1.1\r\nHost: here\r\nX: y\r\n\r\n"])
def test_http_is_cut_off(both: Both, head: bytes) -> None:
    link = both.connect()
    link.send_bytes(head + b"SET smuggled 1\r\n")
    assert link.is_closed()
    assert both.admin("EXISTS", "smuggled") == 0


@pytest.mark.parametrize(
    "data",
    [
        b"*1\r\n$-5\r\n",
        b"*1\r\n:1\r\n",
        b"*99999999999\r\n",
        b"*x\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$999999999999\r\n",
        b'SET a "b\r\n',
    ],
)
def test_broken_protocol(both: Both, data: bytes) -> None:
    link = both.connect()
    link.send_bytes(b"PING\r\n" + data)
    link.read()
    link.read()
    assert link.is_closed()


def test_odd_but_fine_protocol(both: Both) -> None:
    link = both.connect()
    link.send_bytes(b'\r\n*0\r\n*-1\r\n  PING  "a b" \r\n*1\r\n$4\r\npInG\r\n')
    link.read()
    link.read()


def test_half_closed_connection_gets_its_replies(both: Both) -> None:
    link = both.connect()
    for line in (link.redis, link.tidelog):
        line.socket.sendall(b"INCR n\r\n" * 100)
    for _ in range(100):
        link.read()


@pytest.mark.parametrize(
    "script",
    [
        "CLIENT REPLY ON / PING",
        "CLIENT REPLY SKIP / PING / PING x",
        "CLIENT REPLY OFF / PING / CLIENT REPLY ON / PING y",
        "CLIENT REPLY OFF / CLIENT REPLY SKIP / PING / CLIENT REPLY ON",
        "CLIENT REPLY OFF / SUBSCRIBE a / UNSUBSCRIBE a / CLIENT REPLY ON",
        "CLIENT REPLY SKIP / CLIENT REPLY SKIP / PING / PING x",
        "CLIENT REPLY SKIP / SET a 1 / GET a / GET a",
        "CLIENT REPLY OFF / SET a 1 / SET b 2 / RESET / GET a",
        "CLIENT REPLY foo / PING",
    ],
)
def test_client_reply(both: Both, protocol: int, script: str) -> None:
    """All at once; then whatever comes, up to an answer that always does."""
    link = both.connect(protocol)
    for command in script.split(" / "):
        link.send(*command.split())
    link.send("ECHO", "the end")
    while link.read() != b"the end":
        pass
