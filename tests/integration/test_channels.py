"""Channels over HTTP as a whole: stops, two gateways on one backend, passwords, and a backend that is away.

That nothing is lost when processes are killed is tested in `test_channel_ledger.py`.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.http.gateways import SECONDS_MAX, GatewayProcess, HttpReply, HttpSite, RedisProcess, polling
from tests.integration.server_process import ServerProcess

WAITING = "tidelog_channels_polls_waiting"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    made = RedisProcess(tmp_path_factory.mktemp("backend"))
    yield made
    made.close()


def in_background(site: HttpSite, method: str, path: str) -> tuple[threading.Thread, list[HttpReply]]:
    replies: list[HttpReply] = []
    thread = threading.Thread(target=lambda: replies.append(site(method, path, b"1" if method == "PUT" else None)))
    thread.start()
    return thread, replies


# --- a stop ---------------------------------------------------------------------------------------------------------


def test_polls_that_wait_get_an_empty_answer_when_the_server_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_http=True) as server:
        _stops_in_order(server, HttpSite(server.http_port))
        assert server.stderr == ""


def test_polls_that_wait_get_an_empty_answer_when_the_gateway_stops(tmp_path: Path, backend: RedisProcess) -> None:
    with GatewayProcess(tmp_path, backend.url) as gateway:
        _stops_in_order(gateway, gateway.site())
        assert gateway.stderr == ""


def _stops_in_order(process: Any, site: HttpSite) -> None:
    site.subscribe("stop", "me")
    waiting = [in_background(HttpSite(site.port), "GET", polling("stop", "me") + "?timeout=1h") for _ in range(3)]
    stream = http.client.HTTPConnection("127.0.0.1", site.port, timeout=SECONDS_MAX)
    stream.request("GET", polling("stop", "me"), headers={"Accept": "text/event-stream"})
    events = stream.getresponse()
    site.wait_for(WAITING, 4)
    began = time.monotonic()
    assert process.terminate() == 0
    assert time.monotonic() - began < 5
    for thread, replies in waiting:
        thread.join(SECONDS_MAX)
        [reply] = replies
        assert (reply.status, reply.value["messages"]) == (200, [])
    assert events.read().startswith(b"retry: ")  # and it ends in order, or this would raise
    stream.close()


def test_a_stop_does_not_wait_for_a_backend_that_hangs(tmp_path: Path, backend: RedisProcess) -> None:
    with GatewayProcess(tmp_path, backend.url) as gateway:
        site = gateway.site()
        site.subscribe("stop", "me")
        poll = in_background(gateway.site(), "GET", polling("stop", "me") + "?timeout=1h")
        stream = in_background(gateway.site(Accept="text/event-stream"), "GET", polling("stop", "me"))
        site.wait_for(WAITING, 2)
        time.sleep(0.5)  # both have looked, and wait
        backend.process.send_signal(signal.SIGSTOP)
        try:
            publish = in_background(gateway.site(), "PUT", "/channel/stop/message/a")
            time.sleep(0.3)
            began = time.monotonic()
            assert gateway.terminate() == 0
            assert time.monotonic() - began < 5
        finally:
            backend.process.send_signal(signal.SIGCONT)
        for thread, _ in (poll, stream, publish):
            thread.join(SECONDS_MAX)
        assert [(reply.status, reply.value["messages"]) for reply in poll[1]] == [(200, [])]
        assert [(reply.status, b"event: error" in reply.body) for reply in stream[1]] == [(200, False)]
        assert [(reply.status, reply.code) for reply in publish[1]] == [(503, "tidelog.channels.backend-unavailable")]
        assert "Traceback" not in gateway.stderr


# --- in a server ----------------------------------------------------------------------------------------------------


def test_channels_of_a_server_survive_what_is_done_to_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--maxclients", "1", has_http=True) as server:
        site = HttpSite(server.http_port)
        client: Any = server.client(single_connection_client=True)
        site.subscribe("news", "me")
        site.publish("news", "a", 1)
        assert client.ping()  # its own connections take nobody's place
        handle = site.fetch("news", "me")["ackHandle"]
        client.script_flush()
        client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        site.publish("news", "b", 2)
        site.acknowledge("news", "me", handle)
        assert [each["content"] for each in site.fetch("news", "me")["messages"]] == [2]
        client.flushall()
        assert site("GET", polling("news", "me")).status == 404
        site.subscribe("news", "me")
        client.config_set("requirepass", "secret")
        assert site("GET", polling("news", "me")).status == 401
        assert site("GET", "/probe/readiness").status == 200
        known = HttpSite(server.http_port, Authorization="Bearer secret")
        known.publish("news", "c", 3)
        assert [each["content"] for each in known.fetch("news", "me")["messages"]] == [3]
        client.close()
        assert "secret" not in server.stderr


@pytest.mark.long
def test_channels_can_be_off(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "off", "--channels", "off", has_http=True) as server:
        assert HttpSite(server.http_port)("PUT", polling("news", "me")).status == 404


def test_channels_can_have_another_expiry_and_a_log(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "short", "--channel-log", has_http=True, TIDELOG_CHANNEL_EXPIRE="90s") as server:
        site, client = HttpSite(server.http_port), server.client()
        assert site("PUT", polling("news", "me") + "?token=hidden", X_Request_ID="one").status == 200
        assert 80_000 < client.pttl("c.{news}.r.me") <= 90_000
        client.close()
        [line] = [json.loads(line) for line in server.stderr.splitlines() if line.startswith("{")]
        del line["at"], line["ms"], line["bytes"]
        assert line == {
            "request_id": "one",
            "client": "127.0.0.1",
            "method": "PUT",
            "path": "/channel/news/subscription/polling/me",
            "call": "subscribe",
            "status": 200,
        }


# --- alone ----------------------------------------------------------------------------------------------------------


def test_a_message_at_one_gateway_wakes_a_poll_at_another(tmp_path: Path, backend: RedisProcess) -> None:
    backend.client.flushall()
    with GatewayProcess(tmp_path, backend.url) as one, GatewayProcess(tmp_path, backend.url) as two:
        at_one, at_two = one.site(), two.site()
        at_one.subscribe("news", "me")
        thread, replies = in_background(two.site(), "GET", polling("news", "me") + "?timeout=1m")
        at_two.wait_for(WAITING, 1)
        time.sleep(0.2)  # what it listens to is under way to the backend
        began = time.monotonic()
        at_one.publish("news", "a", 1)
        thread.join(SECONDS_MAX)
        assert time.monotonic() - began < 2
        at_one.acknowledge("news", "me", replies[0].value["ackHandle"])  # which the other one gave out
        assert at_two.fetch("news", "me")["messages"] == []


def test_a_subscriber_that_has_expired_is_told(tmp_path: Path, backend: RedisProcess) -> None:
    """It is never moved on in silence, not even if messages have come since."""
    backend.client.flushall()
    with GatewayProcess(tmp_path, backend.url, "--expire", "1") as gateway:
        site = gateway.site()
        site.subscribe("news", "me")
        site.publish("news", "a", 1)
        handle = site.fetch("news", "me")["ackHandle"]
        time.sleep(0.7)
        site.publish("news", "b", 2)
        time.sleep(0.5)
        site.publish("news", "c", 3)
        for reply in (
            site("GET", polling("news", "me")),
            site("GET", polling("news", "me") + "?timeout=1m"),
            site("GET", polling("news", "me"), Accept="text/event-stream"),
            site("DELETE", polling("news", "me") + f"/message?ackHandle={handle}"),
        ):
            assert (reply.status, reply.code) == (404, "dsps.storage.subscription-not-found")
        site.subscribe("news", "me")
        assert site.fetch("news", "me")["messages"] == []


def test_a_password_for_the_gateway_and_one_for_its_backend(tmp_path: Path) -> None:
    secrets = {name: tmp_path / name for name in ("http", "redis", "handles")}
    for name, path in secrets.items():
        path.write_text(f"the-{name}-password\n")
        path.chmod(0o600)
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(secrets["redis"])) as server:
        options = ["--password-file", str(secrets["http"]), "--backend-password-file", str(secrets["redis"])]
        options += ["--handle-key-file", str(secrets["handles"]), "--log-requests"]
        with GatewayProcess(tmp_path, f"redis://127.0.0.1:{server.port}", *options) as gateway:
            stranger = gateway.site()
            for page in (polling("news", "me"), "/channel", "/metrics"):
                reply = stranger("GET", page)
                assert reply.status == 401
                assert "www-authenticate" in reply.headers
            assert stranger("GET", "/probe/readiness").status == 200
            assert stranger("GET", "/channels/openapi.json").status == 200
            known = gateway.site(Authorization="Bearer the-http-password")
            known.subscribe("news", "me")
            known.publish("news", "a", 1)
            handle = known.fetch("news", "me")["ackHandle"]
            known.acknowledge("news", "me", handle)
            assert known("GET", "/metrics").status == 200
            assert gateway.terminate() == 0
        assert "-password" not in gateway.stderr
        assert handle not in gateway.stderr
        assert "-password" not in gateway.ready_line


def test_a_backend_that_is_away(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with GatewayProcess(tmp_path, f"redis://:hidden@127.0.0.1:{port}", CHANNEL_ATTEMPTS_MORE=0) as gateway:
        site = gateway.site()
        for method, path in (("GET", polling("news", "me")), ("PUT", "/channel/news/message/a")):
            reply = site(method, path, b"1")
            assert (reply.status, reply.code) == (503, "tidelog.channels.backend-unavailable")
            assert reply.headers["retry-after"] == "1"
            assert str(port) not in reply.body.decode()
        reply = site("GET", polling("news", "me"), Accept="text/event-stream")
        assert reply.status == 200, "a browser would not come back"
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body.startswith(b'retry: 1000\n\nevent: error\ndata: {"error":')
        assert b"tidelog.channels.backend-unavailable" in reply.body
        assert site("GET", "/probe/readiness").status == 503
        assert site("GET", "/probe/liveness").status == 200
        assert "no server answers" in gateway.stderr
        assert "hidden" not in gateway.stderr + gateway.ready_line


def test_a_publish_that_too_few_replicas_confirm(tmp_path: Path, backend: RedisProcess) -> None:
    with GatewayProcess(tmp_path, backend.url, "--confirm-replicas", "1", CHANNEL_CONFIRM_MS_DEFAULT=100) as gateway:
        reply = gateway.site()("PUT", "/channel/news/message/a", b"1")
        assert (reply.status, reply.code) == (503, "tidelog.channels.not-confirmed")


def test_only_so_many_polls_wait(tmp_path: Path, backend: RedisProcess) -> None:
    backend.client.flushall()
    with GatewayProcess(tmp_path, backend.url, "--polls", "4") as gateway:
        site = gateway.site()
        waiting = []
        for channel, subscriber in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")):
            site.subscribe(channel, subscriber)
            waiting.append(in_background(gateway.site(), "GET", polling(channel, subscriber) + "?timeout=1m"))
            site.wait_for(WAITING, len(waiting))
            if len(waiting) == 2:
                site.subscribe("a", "z")
                reply = site("GET", polling("a", "z") + "?timeout=1m")
                assert (reply.status, "channel a" in reply.value["error"]) == (429, True)
        site.subscribe("c", "x")
        assert site("GET", polling("c", "x") + "?timeout=1m").status == 429
        assert site("GET", polling("c", "x")).status == 200
        gateway.terminate()
        for thread, _ in waiting:
            thread.join(SECONDS_MAX)
