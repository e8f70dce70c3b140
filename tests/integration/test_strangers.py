"""Clients that hang, guess or send junk, on a real server: what they cost others."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from tests.integration.server_process import ServerProcess

HALF_OPEN = 1100
PASSWORD = "open sesame"


@contextlib.contextmanager
def more_files(wanted: int) -> Iterator[None]:
    """Let this process have so many sockets."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[0] < wanted:
        if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
            pytest.skip("the system allows too few open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def status(server: ServerProcess, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "secret").write_text(PASSWORD + "\n")
    (folder / "secret").chmod(0o600)
    arguments = ["--requirepass-file", str(folder / "secret")]
    with ServerProcess(folder / "data", *arguments, has_http=True, has_flight=True) as made:
        yield made


def test_health_is_answered_while_many_requests_hang(server: ServerProcess) -> None:
    with more_files(HALF_OPEN + 500), contextlib.ExitStack() as stack, server.client(password=PASSWORD) as client:
        for number in range(HALF_OPEN):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=30))
            link.sendall((b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"POST / HTTP/1.1\r\n")[number % 3])
        for _ in range(20):
            assert status(server, "/health") == 200
            assert client.ping()


def test_metrics_need_the_password_as_info_does(server: ServerProcess, tmp_path: Path) -> None:
    assert status(server, "/metrics") == 401
    assert status(server, "/metrics", Authorization=f"Bearer {PASSWORD}") == 200
    assert status(server, "/health") == 200
    (tmp_path / "secret").write_text(PASSWORD)
    arguments = ["--requirepass-file", str(tmp_path / "secret"), "--metrics-open"]
    with ServerProcess(tmp_path / "data", *arguments, has_http=True) as opened:
        assert status(opened, "/metrics") == 200
        assert status(opened, "/feed") == 401


def test_http_follows_a_change_of_the_password(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_http=True) as server, server.client() as client:
        assert status(server, "/metrics") == 200
        client.config_set("requirepass", "first")
        assert status(server, "/metrics") == status(server, "/feed?prefix=a") == 401
        assert status(server, "/metrics", Authorization="Bearer first") == 200
        client.config_set("requirepass", "second")
        assert status(server, "/metrics", Authorization="Bearer first") == 401
        assert status(server, "/metrics", Authorization="Bearer second") == 200
        client.config_set("requirepass", "")
        assert status(server, "/metrics") == 200


def test_guessing_is_slow_and_holds_up_nobody_else(server: ServerProcess) -> None:
    start = time.monotonic()
    for _ in range(6):  # each on a connection of its own
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as guesser:
            guesser.sendall(b"AUTH wrong\r\n")
            assert guesser.recv(1000).startswith(b"-WRONGPASS ")
    assert status(server, "/metrics", Authorization="Bearer wrong") == 401
    assert time.monotonic() - start > 0.1 + 0.2 + 0.4 + 0.8  # the last three and the page
    with server.client(password=PASSWORD) as client:
        assert client.ping()
    assert status(server, "/metrics", Authorization=f"Bearer {PASSWORD}") == 200


def test_guessing_over_flight(server: ServerProcess) -> None:
    with flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}") as client:
        start = time.monotonic()
        for _ in range(6):
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.authenticate_basic_token("anyone", "wrong")
        assert time.monotonic() - start > 0.1 + 0.2 + 0.4
        client.authenticate_basic_token("anyone", PASSWORD)


def test_junk_fills_no_log(server: ServerProcess) -> None:
    for port in (server.http_port, server.port):
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
                link.sendall(b"POST junk\r\nHost: nowhere\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while link.recv(1000):
                        pass
    lines = server.stderr.splitlines()
    assert sum("Invalid HTTP" in line for line in lines) == 10
    assert sum("speaks HTTP" in line for line in lines) == 10
