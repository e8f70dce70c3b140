"""How a server stops, and how it does not start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis

from tests.integration.server_process import COMMAND, ServerProcess, environment

NO_OTHERS = ["--http-port", "0", "--flight-port", "0"]
"""Ports that tests side by side would want at the same time."""


@pytest.mark.parametrize("policy", ["always", "everysec", "never"])
def test_what_was_read_is_answered_and_kept(tmp_path: Path, policy: str) -> None:
    """Clients pipeline without end while the server stops: every reply that came is true after a restart."""
    data = tmp_path / "data"
    answered = [0] * 4

    def pour(number: int, connection: socket.socket) -> None:
        received = b""
        connection.settimeout(20)
        command = b"*2\r\n$4\r\nINCR\r\n$2\r\nn%d\r\n" % number
        try:
            while True:
                connection.sendall(command * 50)
                received += connection.recv(1 << 20)
        except OSError:
            pass
        try:
            while more := connection.recv(1 << 20):
                received += more
        except OSError:
            pass
        answered[number] = received.count(b"\r\n")
        assert received == b"".join(
            b":%d\r\n" % (index + 1) for index in range(answered[number])
        ) or not received.endswith(b"\n")

    with ServerProcess(data, "--fsync", policy) as server:
        connections = [server.connect() for _ in range(4)]
        threads = [
            threading.Thread(target=pour, args=(number, connection)) for number, connection in enumerate(connections)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert server.terminate() == 0
        for thread in threads:
            thread.join(30)
        for connection in connections:
            connection.close()
        assert server.stderr == ""
    assert min(answered) > 0
    with ServerProcess(data) as server:
        client = server.client()
        for number, count in enumerate(answered):
            # What was answered is there; the last replies may have been on their way when the connection closed.
            assert int(client.get(f"n{number}") or 0) >= count
        assert client.info("tidelog")["epochs"] == 1  # the stop was a clean one


def test_an_accepted_pipeline_is_answered_whole(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--fsync", "always") as server, server.connect() as connection:
        connection.sendall(b"INCR n\r\n" * 1000)
        first = connection.recv(4)
        server.process.send_signal(signal.SIGTERM)
        received = first
        while more := connection.recv(1 << 20):
            received += more
        assert server.process.wait(30) == 0
        count = received.count(b"\r\n")
        assert received == b"".join(b":%d\r\n" % (number + 1) for number in range(count))
        assert count == 1000


def test_commands_that_had_to_wait_are_answered(tmp_path: Path) -> None:
    """Large replies that the client has not taken yet, and a pause: what was read is still answered."""
    with ServerProcess(tmp_path / "data") as server, server.connect() as reader, server.connect() as paused:
        client = server.client()
        client.set("large", b"x" * 300_000)
        reader.sendall(b"GET large\r\n" * 60)
        assert len(reader.recv(10)) == 10
        client.client_pause(20_000)
        paused.sendall(b"INCR n\r\n" * 3)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        received = 10
        while more := reader.recv(1 << 20):
            received += len(more)
        assert received == 60 * (300_000 + len(b"$300000\r\n\r\n"))
        assert paused.recv(100) == b":1\r\n:2\r\n:3\r\n"
        assert server.process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(tmp_path: Path, number: signal.Signals) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.client().set("a", 1)
        server.process.send_signal(signal.SIGHUP)
        assert server.client().get("a") == b"1"
        server.process.send_signal(number)
        assert server.process.wait(30) == 0
        assert server.stderr == ""


@pytest.mark.parametrize("options", [[], ["NOSAVE"], ["SAVE", "NOW", "FORCE"]])
def test_shutdown(tmp_path: Path, options: list[str]) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        client.set("a", 1)
        with server.connect() as connection:
            connection.sendall(b" ".join([b"SHUTDOWN", *(option.encode() for option in options)]) + b"\r\n")
            assert connection.recv(100) == b""
        assert server.process.wait(30) == 0


def test_a_client_that_does_not_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.connect() as connection:
        server.client().set("large", b"x" * 1_000_000)
        connection.sendall(b"GET large\r\n" * 200)
        time.sleep(0.3)
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 25
        assert re.search(
            r"stops with this left: \d+ bytes of replies that 1 client did not take, \d+ bytes of commands of 1 client",
            server.stderr,
        )
        assert "disk" not in server.stderr


def run(*arguments: str, cwd: Path, **more: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**more),
        cwd=cwd,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_directory_in_use(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        status, errors = run("--data", str(tmp_path / "data"), "--port", "auto", *NO_OTHERS, cwd=tmp_path)
        assert status == 2
        assert str(server.pid) in errors
        assert "Traceback" not in errors
        assert server.client().ping()


def test_a_port_in_use(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        status, errors = run("--data", "other", "--port", str(server.port), *NO_OTHERS, cwd=tmp_path)
        assert (status, errors) == (
            2,
            f"tidelog: cannot listen on 127.0.0.1:{server.port}: Address already in use\n",
        )
        # What it had opened is closed again, in order.
        with ServerProcess(tmp_path / "other") as other:
            assert other.client().info("tidelog")["epochs"] == 1


@pytest.mark.parametrize(
    ("arguments", "more", "file", "problem"),
    [
        (["--port", "x"], {}, "", "--port must be a port, 0 to 65535, or auto (it is 'x')"),
        (["--fsync", "often"], {}, "", "--fsync must be one of always, everysec, never (it is 'often')"),
        ([], {"TIDELOG_SHARDS": "0"}, "", "TIDELOG_SHARDS must be a number of shards, 1 to 256 (it is '0')"),
        ([], {}, "port = true", "tidelog.toml: port must be a port, 0 to 65535, or auto (it is True)"),
        ([], {}, "prot = 1", "tidelog.toml: prot: there is no such setting (there are host, port,"),
        ([], {}, "port = ", "tidelog.toml: not TOML:"),
        (["--config", "nowhere.toml"], {}, "", "nowhere.toml: cannot be read: No such file or directory"),
        (["--requirepass-file", "nowhere"], {}, "", "--requirepass-file names nowhere, which cannot be read"),
        (["--tls-cert", "c.pem"], {}, "", "--tls-cert needs tls-key beside it"),
        (["--tls-cert", "c.pem", "--tls-key", "k.pem"], {}, "", "cannot use the certificate c.pem"),
        (["--port", "0"], {}, "", "--port is 0 and there is no unix-socket: nobody could connect"),
        (["--host", "nowhere.invalid"], {}, "", "cannot listen on nowhere.invalid"),
        (["--maxmemory", "lots"], {}, "", "--maxmemory must be a number of bytes"),
        (["--unix-socket", "nowhere/x"], {}, "", "cannot listen on nowhere/x: No such file or directory"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], more: dict[str, str], file: str, problem: str) -> None:
    if file:
        (tmp_path / "tidelog.toml").write_text(file)
    defaults = [] if "--port" in arguments or file else ["--port", "auto"]
    status, errors = run(*NO_OTHERS, *defaults, *arguments, cwd=tmp_path, **more)
    assert (status, errors.splitlines()[0][: len(problem) + 9]) == (2, f"tidelog: {problem}")
    assert len(errors.splitlines()) == 1


def test_the_number_of_shards_is_fixed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2") as server:
        assert server.terminate() == 0
    status, errors = run("--data", "data", "--shards", "4", "--port", "auto", *NO_OTHERS, cwd=tmp_path)
    assert status == 2
    assert "has 2 shards and not 4" in errors


def test_the_size_of_frames_is_fixed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--frame-size", "1mb") as server:
        assert server.client().info("tidelog")["frame_bytes"] == 1 << 20
        assert server.terminate() == 0
    status, errors = run("--data", "data", "--frame-size", "4mb", "--port", "auto", *NO_OTHERS, cwd=tmp_path)
    assert status == 2
    assert "has frames of 1048576 bytes and not of 4194304: their size is fixed when a data directory" in errors
    with ServerProcess(tmp_path / "data", TIDELOG_FRAME_SIZE="1mb") as server:
        assert server.client().config_get("frame-size") == {"frame-size": str(1 << 20)}


def test_configuration_counts_in_order(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text('timeout = 1000\nmaxclients = 500\nmaxmemory = "1gb"\nfsync = "never"\n')
    with ServerProcess(
        tmp_path / "data", "--maxclients", "300", TIDELOG_MAXCLIENTS="400", TIDELOG_MAXMEMORY="2gb"
    ) as server:
        found = server.client(decode_responses=True).config_get("*")
        assert (found["timeout"], found["maxclients"], found["maxmemory"]) == ("1000", "300", str(2 << 30))
        assert found["appendfsync"] == "no"


def test_the_ready_line(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_http=True) as server:
        assert server.ready_line == (
            f"tidelog: ready on redis://127.0.0.1:{server.port} http://127.0.0.1:{server.http_port}, "
            f"data in {tmp_path / 'data'}, pid {server.pid}"
        )


def test_a_killed_server_leaves_a_socket_that_the_next_one_takes(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ServerProcess(tmp_path / "data", "--unix-socket", str(path)) as server:
        server.kill()
        assert path.exists()
    with ServerProcess(tmp_path / "data", "--unix-socket", str(path)) as server:
        assert redis.Redis(unix_socket_path=str(path)).ping()
        assert os.stat(path).st_mode & 0o777 == 0o700
        status, errors = run("--data", "other", "--unix-socket", str(path), "--port", "0", *NO_OTHERS, cwd=tmp_path)
        assert (status, errors) == (2, f"tidelog: cannot listen on {path}: another server does\n")
        assert server.terminate() == 0
    assert not path.exists()
