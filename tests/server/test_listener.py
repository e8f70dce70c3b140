"""Sockets that are opened, and what is said when they cannot be."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from tidelog.server import listener
from tidelog.server.listener import CannotListen, UnixSocket, allow_descriptors, bind_tcp, is_loopback_only, make_tls


def test_connections_are_kept_alive() -> None:
    [bound] = bind_tcp("127.0.0.1", 0)
    with bound, socket.create_connection(bound.getsockname()):
        bound.setblocking(True)
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 300
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken() -> None:
    [bound] = bind_tcp("127.0.0.1", 0)
    with bound, pytest.raises(CannotListen, match="Address already in use"):
        bind_tcp("127.0.0.1", bound.getsockname()[1])


def test_one_port_at_every_address_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the first choice is taken at the second address."""
    places = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
    bind_one, taken = listener._bind_one, [True]

    def bind(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
        if address[0] == "127.0.0.2" and taken and taken.pop():
            raise OSError(errno.EADDRINUSE, "taken")
        return bind_one(family, kind, protocol, address)

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    monkeypatch.setattr(listener, "_bind_one", bind)
    bound = bind_tcp("somewhere", 0)
    names = [each.getsockname() for each in bound]
    for each in bound:
        each.close()
    assert [name[0] for name in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1] > 0


@pytest.mark.parametrize(
    ("host", "is_only"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("no.such.host.", False),
    ],
)
def test_which_hosts_others_can_reach(host: str, is_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if host == "no.such.host.":  # nobody is asked for it

        def fail(*_: object, **__: object) -> None:
            raise OSError("no such host")

        monkeypatch.setattr("socket.getaddrinfo", fail)
    assert is_loopback_only(host) is is_only


def test_a_unix_socket_is_for_its_owner(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    before = os.umask(0)
    try:
        made = UnixSocket(path)
    finally:
        os.umask(before)
    assert os.stat(path).st_mode & 0o777 == 0o700
    with pytest.raises(CannotListen, match="another server does"):
        UnixSocket(path)
    made.socket.close()
    again = UnixSocket(path)  # what is left of a server that died
    made.remove()  # not its own any more
    assert os.path.exists(path)
    again.remove()
    again.socket.close()
    assert not os.path.exists(path)


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(CannotListen, match="there is a file of that name"):
        UnixSocket(str(path))
    assert path.read_text() == "precious"


def test_a_bad_certificate(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("not a certificate")
    with pytest.raises(CannotListen, match=r"cannot use the certificate .*cert\.pem"):
        make_tls(str(path), str(path))


def test_descriptors() -> None:
    assert allow_descriptors(1) == (1, 0)
    assert allow_descriptors(1, 2) == (1, 2)
    clients, http = allow_descriptors(10**9, 10**9 // 4)
    assert 1 <= http <= clients // 4 + 1 < clients < 10**9  # what there is, in proportion
