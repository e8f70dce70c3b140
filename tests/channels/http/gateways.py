"""Channels over HTTP in processes of their own: a `tidelog serve`, and a `tidelog channels serve` on a Redis.

A test that takes `site` runs on each of the two, whose backend is empty then.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis

from benchmarks.peers import stop_peer
from tests.conformance.redis_oracle import start_redis
from tests.integration.limited_server import COMMAND as LIMITED
from tests.integration.server_process import READY_S_MAX, STOP_S_MAX, ServerProcess, environment, is_readable
from tidelog.testing.ready_line import read_ports

COMMAND: Final = [sys.executable, "-P", "-m", "tidelog.cli", "channels", "serve"]
SECONDS_MAX: Final = 30.0


class HttpReply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error."""
        assert self.headers["content-type"] == "application/json"
        found = self.value
        assert set(found) == {"error", "code"}
        assert found["error"]
        return str(found["code"])


class HttpSite:
    """One connection to a gateway, made anew when it was closed."""

    def __init__(self, port: int, **headers: str) -> None:
        self.port = port
        self._headers = headers
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)

    def give_up_after(self, seconds: float) -> None:
        """A reply that takes longer is an error."""
        self._connection.timeout = seconds

    def __call__(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> HttpReply:
        named = {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        self._connection.request(method, path, body, named)
        reply = self._connection.getresponse()
        found = reply.read()
        return HttpReply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, found)

    # --- the calls, where they are to succeed -----------------------------------------------------------------

    def subscribe(self, channel: str, subscriber: str) -> None:
        assert self("PUT", polling(channel, subscriber)).status == 200

    def publish(self, channel: str, message_id: str, value: Any) -> None:
        reply = self("PUT", f"/channel/{channel}/message/{message_id}", json.dumps(value))
        assert reply.status == 200, reply

    def fetch(self, channel: str, subscriber: str, **query: Any) -> Any:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        reply = self("GET", f"{polling(channel, subscriber)}?{asked}")
        assert reply.status == 200, reply
        return reply.value

    def acknowledge(self, channel: str, subscriber: str, handle: str) -> None:
        reply = self("DELETE", f"{polling(channel, subscriber)}/message?ackHandle={handle}")
        assert (reply.status, reply.body) == (204, b"")

    def metric(self, name: str) -> float:
        """A number of /metrics, with its labels; 0 if it is not there."""
        lines = self("GET", "/metrics").body.decode().splitlines()
        return float(next((line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name), 0))

    def wait_for(self, name: str, value: float) -> None:
        """Until a number of /metrics has a value."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)} and not {value}"
            time.sleep(0.01)

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        self.close()  # most are made for one request


def polling(channel: str, subscriber: str) -> str:
    return f"/channel/{channel}/subscription/polling/{subscriber}"


class GatewayProcess:
    """A running `tidelog channels serve`."""

    def __init__(self, folder: Path, backend: str, *arguments: str, port: str = "auto", **bounds: float) -> None:
        """`bounds`: limits that are to be others than usual."""
        command = [*LIMITED, json.dumps(bounds), "channels", "serve"] if bounds else COMMAND
        self.errors = folder / f"gateway-{time.monotonic_ns()}.stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--backend", backend, "--port", port, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                cwd=folder,
            )
        self.ready_line = self._wait_until_ready()
        if not self.ready_line:
            self.close()
            raise RuntimeError(f"the gateway did not start: {self.stderr}")
        self.http_port = read_ports(self.ready_line).http

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n") and is_readable(self.process.stdout.fileno(), READY_S_MAX):
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return ""
            line += more
        return line.decode().strip()

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    def site(self, **headers: str) -> HttpSite:
        return HttpSite(self.http_port, **headers)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_S_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RedisProcess:
    """A running Redis."""

    def __init__(self, folder: Path) -> None:
        self.process, self.port = start_redis(folder)
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client: Any = redis.Redis(port=self.port)

    def close(self) -> None:
        self.client.close()
        stop_peer(self.process)


ADMIN: Final = "an-admin-token-for-tests"


class HttpServers:
    """Started when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closers: list[Any] = []
        self._made: dict[str, tuple[int, Any]] = {}
        self._redis: RedisProcess | None = None
        self.admin_file = folder / "admin"
        self.admin_file.write_text(ADMIN)
        self.admin_file.chmod(0o600)

    @property
    def redis(self) -> RedisProcess:
        if self._redis is None:
            self._redis = RedisProcess(self.folder)
            self._closers.append(self._redis)
        return self._redis

    def get(self, kind: str) -> tuple[int, Any]:
        """The HTTP port, and a client of the backend."""
        if kind not in self._made:
            self._made[kind] = self._start(kind)
        return self._made[kind]

    def _start(self, kind: str) -> tuple[int, Any]:
        origins = "https://shop.example"
        if kind == "redis":
            gateway = GatewayProcess(
                self.folder, self.redis.url, "--admin-token-file", str(self.admin_file), "--origins", origins
            )
            self._closers.append(gateway)
            return gateway.http_port, self.redis.client
        options = ["--channel-admin-token-file", str(self.admin_file), "--channel-origins", origins]
        server = ServerProcess(self.folder / "data", *options, has_http=True)
        client = server.client()
        self._closers += [server, client]
        return server.http_port, client

    def close(self) -> None:
        while self._closers:
            self._closers.pop().close()


@pytest.fixture(scope="session")
def http_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServers]:
    made = HttpServers(tmp_path_factory.mktemp("http"))
    yield made
    made.close()


@pytest.fixture(params=["tidelog", "redis"])
def site(request: pytest.FixtureRequest, http_servers: HttpServers) -> Iterator[HttpSite]:
    port, client = http_servers.get(request.param)
    client.flushall()
    made = HttpSite(port)
    yield made
    made.close()
