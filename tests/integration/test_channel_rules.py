"""Channels by configuration, as a whole: rules, tokens and webhooks of `tidelog serve` and `tidelog channels serve`."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.channels.http.gateways import SECONDS_MAX, GatewayProcess, HttpSite, RedisProcess, polling
from tests.integration.server_process import ServerProcess
from tidelog import limits

KEY = b"a key of at least 32 bytes, for HS256"
SENT = 'tidelog_webhook_sent_total{webhook="archive"}'


class Archive:
    """A receiver of webhooks."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def archive() -> Iterator[Archive]:
    made = Archive()
    yield made
    made.close()


def write_rules(folder: Path, port: int, more: str = "") -> str:
    (folder / "issuer.key").write_bytes(KEY)
    (folder / "issuer.key").chmod(0o600)
    path = folder / "channels.toml"
    path.write_text(
        f"""
[[channels]]
regex = 'room-(?P<id>[0-9]+)'
expire = "10m"

[channels.jwt]
iss = ["https://login.example/"]

[channels.jwt.keys]
HS256 = ["issuer.key"]

[channels.jwt.claims]
room = "{{id}}"

[[channels.webhooks]]
name = "archive"
method = "PUT"
url = "http://127.0.0.1:{port}/"
body = '{{"room": "{{channel.id}}", "message": {{message.content_json}}}}'
allow-networks = ["127.0.0.0/8"]

[[channels]]
regex = 'open'
expire = "10m"
{more}"""
    )
    return str(path)


def token(room: str) -> str:
    claims = {"iss": "https://login.example/", "exp": int(time.time()) + 600, "room": room, "jti": f"token-{room}"}
    return jwt.encode(claims, KEY, "HS256")


def follows_the_rules(site: HttpSite, archive: Archive, password: str) -> None:
    room = HttpSite(site.port, Authorization=f"Bearer {token('7')}")
    opened = HttpSite(site.port, Authorization=f"Bearer {password}")
    room.subscribe("room-7", "me")
    room.publish("room-7", "m1", {"text": "hello"})
    assert [each["messageID"] for each in room.fetch("room-7", "me")["messages"]] == ["m1"]
    deadline = time.monotonic() + SECONDS_MAX
    while not archive.bodies:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert archive.bodies == [{"room": "7", "message": {"text": "hello"}}]
    assert opened.metric(SENT) == 1

    assert site("PUT", polling("room-7", "me")).status == 401
    assert opened("PUT", polling("room-7", "me")).status == 401, "the password is no token"
    assert room("PUT", polling("room-8", "me")).status == 403, "it is for another room"
    assert room("PUT", polling("room-7", "webhook-archive")).status == 400, "its cursor is the webhook's"
    assert opened("PUT", polling("other", "me")).code == "dsps.storage.invalid-channel"
    opened.subscribe("open", "me")
    assert site("PUT", polling("open", "me")).status == 401, "no token is demanded, so the password is"

    admin = HttpSite(site.port, Authorization="Bearer the admin's own token")
    assert {each["channelID"] for each in admin("GET", "/channel").value["channels"]} == {"room-7", "open"}
    assert [each("GET", "/channel").status for each in (site, room, opened)] == [401, 403, 403]
    began = time.monotonic()
    for _ in range(limits.WRONG_PASSWORDS_FREE):
        assert opened("PUT", "/admin/log/level?category=*&level=WARN").code == "dsps.auth.rejected"
    assert time.monotonic() - began > limits.WRONG_PASSWORD_DELAY_S, "guessing is slow"
    assert admin("PUT", f"/admin/jwt/revoke?jti=token-7&exp={int(time.time()) + 600}").status in (200, 204)
    deadline = time.monotonic() + SECONDS_MAX
    while room("PUT", polling("room-7", "me")).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert room("PUT", polling("room-7", "me")).status == 401


def write_secrets(folder: Path) -> tuple[str, str]:
    for name, text in (("password", "the password"), ("admin", "the admin's own token")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return str(folder / "password"), str(folder / "admin")


def test_a_server_follows_the_rules(tmp_path: Path, archive: Archive) -> None:
    password, admin = write_secrets(tmp_path)
    rules = write_rules(tmp_path, archive.port)
    options = ["--channel-rules", rules, "--channel-admin-token-file", admin, "--requirepass-file", password]
    with ServerProcess(tmp_path / "data", *options, has_http=True) as server:
        site = HttpSite(server.http_port)
        follows_the_rules(site, archive, "the password")
        assert site("PUT", polling("later", "me"), Authorization="Bearer the password").status == 403
        write_rules(tmp_path, archive.port, "[[channels]]\nregex = 'later'\nexpire = '1m'\n")
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + SECONDS_MAX
        while site("PUT", polling("later", "me"), Authorization="Bearer the password").status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.terminate() == 0


def test_a_gateway_follows_the_rules(tmp_path: Path, archive: Archive) -> None:
    password, admin = write_secrets(tmp_path)
    rules = write_rules(tmp_path, archive.port)
    backend = RedisProcess(tmp_path)
    try:
        options = ["--rules", rules, "--admin-token-file", admin, "--password-file", password]
        with GatewayProcess(tmp_path, backend.url, *options) as gateway:
            follows_the_rules(gateway.site(), archive, "the password")
            assert gateway.terminate() == 0
    finally:
        backend.close()


def test_a_publish_does_not_wait_for_webhooks(tmp_path: Path) -> None:
    """A receiver that takes a call and never answers holds up its own messages only."""
    backend = RedisProcess(tmp_path)
    try:
        with socket.create_server(("127.0.0.1", 0)) as hangs:
            rules = write_rules(tmp_path, hangs.getsockname()[1])
            with GatewayProcess(tmp_path, backend.url, "--rules", rules) as gateway:
                room = gateway.site(Authorization=f"Bearer {token('7')}")
                room.subscribe("room-7", "me")
                began = time.monotonic()
                for number in range(20):
                    room.publish("room-7", f"m{number}", number)
                assert time.monotonic() - began < 2
                assert len(room.fetch("room-7", "me")["messages"]) == 20
                assert backend.client.get("c.{room-7}.r.webhook-archive") == b"0"
                gateway.kill()
    finally:
        backend.close()


def test_wrong_rules_are_told(tmp_path: Path) -> None:
    path = tmp_path / "channels.toml"
    path.write_text("[[channels]]\nregex = '('\n")
    with pytest.raises(RuntimeError, match=r"channels\.toml"):
        GatewayProcess(tmp_path, "redis://127.0.0.1:1", "--rules", str(path))
