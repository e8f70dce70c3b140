"""Every call over HTTP on every kind of backend that a URL can name: one gateway each, before real servers."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from benchmarks.peers import start_peer, stop_peer
from tests.channels.http.gateways import SECONDS_MAX, GatewayProcess, HttpServers, HttpSite, polling
from tests.channels.http.test_event_stream import event_source
from tests.channels.sentinels import start_sentinel
from tests.channels.servers import ChannelServers
from tests.conformance.redis_oracle import REDIS_SERVER, is_this_redis
from tests.integration.server_process import ServerProcess

KINDS: Final = ("cluster", "sentinel", "tls", "tidelog-tls", "tidelog-unix")


def made_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return certificate, key


class Backends:
    """URLs of real servers, started for one test."""

    def __init__(self, folder: Path, stack: ExitStack, servers: ChannelServers, http: HttpServers) -> None:
        self._folder = folder
        self._stack = stack
        self._servers = servers
        self._http = http

    def url(self, kind: str) -> str:
        made: dict[str, Callable[[], str]] = {
            "cluster": self._cluster,
            "sentinel": self._sentinel,
            "tls": self._tls,
            "tidelog-tls": self._tidelog_tls,
            "tidelog-unix": self._tidelog_unix,
        }
        return made[kind]()

    def _cluster(self) -> str:
        found = self._servers.get("cluster")
        found.client.flushall()
        return found.url

    def _sentinel(self) -> str:
        self._http.redis.client.flushall()
        process, port = start_sentinel(self._folder, self._http.redis.port)
        self._stack.callback(stop_peer, process)
        return f"redis+sentinel://127.0.0.1:{port}/orders"

    def _tls(self) -> str:
        if b"ssl" not in subprocess.run(["ldd", REDIS_SERVER], capture_output=True, check=False).stdout:
            pytest.skip("this Redis was built without TLS")
        certificate, key = made_certificate(self._folder)

        def command(ports: list[int]) -> list[str]:
            return [
                *(REDIS_SERVER, "--port", str(ports[0]), "--tls-port", str(ports[1]), "--bind", "127.0.0.1"),
                *("--save", "", "--dir", str(self._folder), "--tls-cert-file", str(certificate)),
                *("--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"),
            ]

        process, ports = start_peer(command, is_this_redis, port_count=2)
        self._stack.callback(stop_peer, process)
        return f"rediss://127.0.0.1:{ports[1]}?ssl_ca_certs={certificate}"

    def _tidelog_tls(self) -> str:
        certificate, key = made_certificate(self._folder)
        options = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        server = self._stack.enter_context(ServerProcess(self._folder / "data", *options))
        return f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={certificate}"

    def _tidelog_unix(self) -> str:
        path = self._folder / "socket"
        self._stack.enter_context(ServerProcess(self._folder / "data", "--unix-socket", str(path)))
        return f"unix://{path}"


@pytest.fixture
def backends(tmp_path: Path, channel_servers: ChannelServers, http_servers: HttpServers) -> Iterator[Backends]:
    with ExitStack() as stack:
        yield Backends(tmp_path, stack, channel_servers, http_servers)


@pytest.mark.parametrize("kind", KINDS)
def test_all_calls(kind: str, backends: Backends, tmp_path: Path) -> None:
    if "tls" in kind and shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    with GatewayProcess(tmp_path, backends.url(kind)) as gateway:
        site = gateway.site()
        assert site("GET", "/probe/readiness").status == 200
        for channel in ("a1", "b2", "c3"):  # in a cluster, of several masters
            plays(site, channel)
        wakes(site, "b2")
        lists(site, {"a1", "b2", "c3"})
        assert gateway.stderr == ""


def plays(site: HttpSite, channel: str) -> None:
    """Each call at least once, as a client makes them."""
    assert site("GET", polling(channel, "me")).code == "dsps.storage.subscription-not-found"
    site.subscribe(channel, "me")
    site.subscribe(channel, "me")
    site.publish(channel, "m1", {"text": "hello!"})
    site.publish(channel, "m1", "again")
    body = '[{"messageID":"m2","content":2.50},{"messageID":"m1","content":1}]'
    told = site("POST", f"/channel/{channel}/messages", body).value["messages"]
    assert told == [{"messageID": "m2", "isNew": True}, {"messageID": "m1", "isNew": False}]
    found = site.fetch(channel, "me", max=1)
    assert (found["messages"], found["moreMessages"]) == ([{"messageID": "m1", "content": {"text": "hello!"}}], True)
    site.acknowledge(channel, "me", found["ackHandle"])
    site.acknowledge(channel, "me", found["ackHandle"])
    with event_source(site.port, channel, "me") as source:
        [event] = source.take(1)
        assert event.value == {"messageID": "m2", "content": 2.5}
    with event_source(site.port, channel, "me", event.last_id) as source:
        assert source.reply.status == 200
        site.publish(channel, "m3", 3)
        assert [each.value["content"] for each in source.take(1)] == [3]
    site.acknowledge(channel, "me", site.fetch(channel, "me")["ackHandle"])
    assert site("DELETE", polling(channel, "other")).status == 200


def wakes(site: HttpSite, channel: str) -> None:
    got: list[object] = []
    poller = HttpSite(site.port)
    thread = threading.Thread(target=lambda: got.append(poller.fetch(channel, "me", timeout="30s")["messages"]))
    thread.start()
    site.wait_for("tidelog_channels_polls_waiting", 1)
    time.sleep(0.3)  # the backend knows that somebody listens
    began = time.monotonic()
    site.publish(channel, "m4", "now")
    thread.join(SECONDS_MAX)
    assert got == [[{"messageID": "m4", "content": "now"}]]
    assert time.monotonic() - began < 3, "a look by itself would have come later"


def lists(site: HttpSite, channels: set[str]) -> None:
    found: dict[str, object] = {}
    query = ""
    while True:
        page = site("GET", f"/channel{query}").value
        for each in page["channels"]:
            found[each["channelID"]] = {row["subscriberID"]: row["lag"] for row in each["subscribers"]}
        if "cursor" not in page:
            break
        query = f"?cursor={page['cursor']}"
    assert found == {channel: {"me": int(channel == "b2")} for channel in channels}
