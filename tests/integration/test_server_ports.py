"""The ports of a server: TLS, a unix socket, HTTP, and who is let in."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until


class Certificate(NamedTuple):
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("certificate")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", made.key, "-out", made.certificate, "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return made


def test_tls(tmp_path: Path, certificate: Certificate) -> None:
    arguments = ["--tls-cert", str(certificate.certificate), "--tls-key", str(certificate.key)]
    with ServerProcess(tmp_path / "data", *arguments, has_http=True) as server:
        assert "rediss://" in server.ready_line
        client = server.client(ssl=True, ssl_ca_certs=str(certificate.certificate))
        assert client.set("a", b"x" * 1_000_000)
        pipeline = client.pipeline(transaction=False)
        for _ in range(40):
            pipeline.get("a")
        assert [len(reply) for reply in pipeline.execute()] == [1_000_000] * 40
        with server.connect() as plain:
            plain.sendall(b"PING\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(b"+PONG")
        context = ssl.create_default_context(cafile=str(certificate.certificate))
        connection = http.client.HTTPSConnection("localhost", server.http_port, timeout=30, context=context)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        assert client.ping()
        client.close()
        assert server.terminate() == 0


def test_a_unix_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ServerProcess(tmp_path / "data", "--unix-socket", str(path), "--port", "0") as server:
        assert server.ready_line.startswith(f"tidelog: ready on unix:{path}, data in")
        client = redis.Redis(unix_socket_path=str(path), decode_responses=True)
        assert client.set("a", 1)
        [shown] = client.client_list()
        assert (shown["addr"], shown["laddr"], shown["flags"]) == (f"{path}:0", f"{path}:0", "U")


def own_address() -> str | None:
    """An address of this machine that is not on the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return None if address.startswith("127.") else address


def test_without_a_password_only_this_machine_is_served(tmp_path: Path) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address beside those of the loopback interface")
    with ServerProcess(tmp_path / "data", "--host", "0.0.0.0", has_http=True) as server:
        assert server.client().ping()
        with socket.create_connection((address, server.port), timeout=30) as stranger:
            assert stranger.recv(1000).startswith(b"-DENIED Tidelog is running in protected mode")
            assert stranger.recv(1) == b""
        assert get(server, "/health", host="localhost", address=address)[0] == 403
        assert server.client().info("stats")["rejected_connections"] == 1
    (tmp_path / "secret").write_text("sesame\n")
    arguments = ["--host", "0.0.0.0", "--requirepass-file", str(tmp_path / "secret")]
    with ServerProcess(tmp_path / "data", *arguments) as server:
        client: Any = redis.Redis(host=address, port=server.port, password="sesame", socket_timeout=30)
        assert client.ping()
        with pytest.raises(redis.ResponseError, match="local connection only"):
            client.execute_command("DEBUG", "SLEEP", "0")


def test_the_server_chooses_its_ports(tmp_path: Path) -> None:
    """Two at once, which tell their ports in the ready line and in INFO."""
    with (
        ServerProcess(tmp_path / "a", has_http=True, has_flight=True) as one,
        ServerProcess(tmp_path / "b", "--host", "localhost", has_http=True, has_flight=True) as other,
    ):
        ports = {port for each in (one, other) for port in (each.port, each.http_port, each.flight_port)}
        assert len(ports) == 6
        assert 0 not in ports
        for server in (one, other):
            assert server.client().info("server")["tcp_port"] == server.port
            facts = server.client().info("tidelog")
            assert (facts["http_port"], facts["flight_port"]) == (server.http_port, server.flight_port)
            assert server.client().config_get("port") == {"port": str(server.port)}
            assert get(server, "/health")[0] == 200


# --- HTTP -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(
        tmp_path_factory.mktemp("http") / "data", "--http-hosts", "tides.example, other.example", has_http=True
    ) as made:
        yield made


def get(
    server: ServerProcess, path: str, *, host: str | None = None, address: str = "127.0.0.1", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, server.http_port, timeout=30)
    connection.request("GET", path, headers={**({"Host": host} if host else {}), **headers})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_health(server: ServerProcess) -> None:
    assert get(server, "/health") == (200, '{"status":"ok"}')
    client = server.client()
    client.config_set("maxmemory", 1)
    status, body = get(server, "/health")
    assert (status, json.loads(body)["reason"]) == (503, "used memory > 'maxmemory'")
    client.config_set("maxmemory", 0)
    assert get(server, "/health")[0] == 200


def test_metrics(server: ServerProcess) -> None:
    client: Any = server.client()
    for number in range(10):
        client.set(f"k{number}", number)
    client.set("brief", 1, px=1)
    client.execute_command("SELECT", 0)
    with pytest.raises(redis.ResponseError):
        client.execute_command("NOSUCH")
    client.publish("news", "x")
    status, body = get(server, "/metrics")
    assert status == 200
    found = {}
    for line in body.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    assert found["tidelog_commands_total"] >= 14
    assert found["tidelog_connections"] >= 1
    assert found['tidelog_keys{db="0"}'] >= 10
    assert found['tidelog_errors_total{code="ERR"}'] >= 1
    assert found["tidelog_memory_bytes"] > 1e6
    assert found["tidelog_journal_cycle"] > 0
    assert found["tidelog_journal_written_ts"] >= found["tidelog_journal_durable_ts"]
    assert found["tidelog_pubsub_messages_total"] >= 1
    assert found["tidelog_writable"] == 1
    assert 'tidelog_fsync_seconds_bucket{le="+Inf"}' in found
    for name in found:
        assert (
            f"# TYPE {name.partition('{')[0].removesuffix('_bucket').removesuffix('_sum').removesuffix('_count')} "
            in body
        )


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 200),
        ("localhost:1", None, 200),
        ("[::1]:80", None, 200),
        ("LOCALHOST", None, 200),
        ("tides.example", None, 200),
        ("other.example:8399", "https://tides.example", 200),
        ("evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("169.254.169.254", None, 403),
        ("localhost", "https://evil.example", 403),
        ("localhost", "null", 403),
        ("[", None, 403),
    ],
)
def test_hosts(server: ServerProcess, host: str, origin: str | None, status: int) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert get(server, "/health", host=host, **headers)[0] == status


def test_nothing_else_is_there(server: ServerProcess) -> None:
    assert get(server, "/")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", "/metrics", body="x")
    assert connection.getresponse().status == 405
    connection.close()


def test_a_follower_over_tls(tmp_path: Path, certificate: Certificate) -> None:
    arguments = ["--tls-cert", str(certificate.certificate), "--tls-key", str(certificate.key)]
    options = {"ssl": True, "ssl_ca_certs": str(certificate.certificate)}
    with ServerProcess(tmp_path / "a", *arguments) as leader, leader.client(**options) as writing:
        calling = [*arguments, "--replicaof", f"localhost:{leader.port}", "--tls-replication"]
        with ServerProcess(tmp_path / "b", *calling) as follower:
            wait_until(lambda: "The certificate cannot be trusted" in follower.stderr)
        calling += ["--tls-ca-cert-file", str(certificate.certificate)]
        with ServerProcess(tmp_path / "c", *calling) as follower, follower.client(**options) as reading:
            writing.set("x", "1")
            wait_until(lambda: bool(reading.get("x") == b"1"))
