"""Every call and every error over real sockets: on a server that is its own backend, and on a gateway of a Redis."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from typing import Final

import pytest

from tests.channels.http.gateways import ADMIN, SECONDS_MAX, HttpReply, HttpServers, HttpSite, polling
from tidelog import limits
from tidelog.channels.http.routes import ROUTES

WAITING: Final = "tidelog_channels_polls_waiting"
BAD_NAMES: Final = ("-a", "a.b", "a%20b", "%C3%A4", "a" * 64, "a%0A", "")


# --- the calls ------------------------------------------------------------------------------------------------------


def test_a_message_from_a_publisher_to_a_subscriber(site: HttpSite) -> None:
    made = site("PUT", polling("chX", "sA"))
    assert (made.status, made.value) == (200, {"channelID": "chX", "subscriberID": "sA"})
    assert site("PUT", polling("chX", "sA")).value == made.value
    sent = site("PUT", "/channel/chX/message/msg123", '{ "text": "hello!" }')
    assert (sent.status, sent.value) == (200, {"channelID": "chX", "messageID": "msg123"})
    found = site.fetch("chX", "sA")
    handle = found.pop("ackHandle")
    assert found == {
        "channelID": "chX",
        "messages": [{"messageID": "msg123", "content": {"text": "hello!"}}],
        "moreMessages": False,
    }
    assert site.fetch("chX", "sA")["ackHandle"] == handle  # it comes again
    site.acknowledge("chX", "sA", handle)
    assert site.fetch("chX", "sA") == {"channelID": "chX", "messages": [], "moreMessages": False}
    site.acknowledge("chX", "sA", handle)  # a stale one is a success
    gone = site("DELETE", polling("chX", "sA"))
    assert (gone.status, gone.value) == (200, made.value)
    assert site("DELETE", polling("chX", "sA")).status == 200


def test_content_is_any_json_and_stays_as_it_is(site: HttpSite) -> None:
    site.subscribe("news", "me")
    texts = ['{"b": 1.50,  "a": [1e400, 12345678901234567890]}', '"\\u00e9é"', "null", "[]", " -0.0 \n", "false"]
    for number, text in enumerate(texts):
        assert site("PUT", f"/channel/news/message/m{number}", text.encode()).status == 200
    body = site("GET", polling("news", "me")).body.decode()
    for text in texts:
        assert f'"content":{text.strip()}' in body


def test_a_repeated_id_is_the_same_message(site: HttpSite) -> None:
    site.subscribe("news", "me")
    site.publish("news", "a", 1)
    site.publish("news", "a", 2)
    assert [each["content"] for each in site.fetch("news", "me")["messages"]] == [1]


def test_several_messages_at_once(site: HttpSite) -> None:
    site.subscribe("news", "me")
    site.publish("news", "b", 0)
    body = '[{"messageID":"a","content":1.0},{"messageID":"b","content":2},{"messageID":"c","content":3}]'
    reply = site("POST", "/channel/news/messages", body)
    assert reply.value == {
        "channelID": "news",
        "messages": [
            {"messageID": "a", "isNew": True},
            {"messageID": "b", "isNew": False},
            {"messageID": "c", "isNew": True},
        ],
    }
    assert b'"content":1.0}' in site("GET", polling("news", "me")).body
    assert [each["messageID"] for each in site.fetch("news", "me")["messages"]] == ["b", "a", "c"]


@pytest.mark.parametrize("kind", ["tidelog", "redis"])
def test_messages_that_have_all_expired_can_be_acknowledged(kind: str, http_servers: HttpServers) -> None:
    port, client = http_servers.get(kind)
    client.flushall()
    site = HttpSite(port)
    site.subscribe("news", "me")
    for number in range(3):
        site.publish("news", f"m{number}", number)
        client.delete(f"c.{{news}}.m.{number + 1}")  # as its expiry does
    found = site.fetch("news", "me", timeout="30s")
    assert (found["messages"], found["moreMessages"]) == ([], False)
    site.acknowledge("news", "me", found["ackHandle"])
    assert "ackHandle" not in site.fetch("news", "me")
    site.publish("news", "m3", 3)
    assert [each["content"] for each in site.fetch("news", "me")["messages"]] == [3]


def test_two_polls_of_one_subscriber_get_the_same(site: HttpSite) -> None:
    site.subscribe("news", "me")
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(HttpSite(site.port).fetch("news", "me", timeout="30s")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    site.wait_for(WAITING, 2)
    site.publish("news", "a", 1)
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert len(found) == 2
    assert found[0] == found[1]


def test_max_and_more(site: HttpSite) -> None:
    site.subscribe("news", "me")
    for number in range(3):
        site.publish("news", f"m{number}", number)
    found = site.fetch("news", "me", max=2)
    assert ([each["content"] for each in found["messages"]], found["moreMessages"]) == ([0, 1], True)
    site.acknowledge("news", "me", found["ackHandle"])
    assert not site.fetch("news", "me", max=2)["moreMessages"]


def test_a_poll_waits_for_a_message(site: HttpSite) -> None:
    site.subscribe("news", "me")
    found: list[object] = []
    poller = HttpSite(site.port)
    thread = threading.Thread(target=lambda: found.append(poller.fetch("news", "me", timeout="30s")))
    thread.start()
    site.wait_for(WAITING, 1)
    began = time.monotonic()
    site.publish("news", "a", "now")
    thread.join(SECONDS_MAX)
    poller.close()
    assert found
    assert time.monotonic() - began < 2
    site.wait_for(WAITING, 0)


def test_a_poll_ends_with_its_time(site: HttpSite) -> None:
    site.subscribe("news", "me")
    began = time.monotonic()
    assert site.fetch("news", "me", timeout="200ms")["messages"] == []
    assert 0.2 <= time.monotonic() - began < 5


def test_a_list_of_channels(site: HttpSite) -> None:
    site.subscribe("a", "me")
    site.subscribe("b", "you")
    site.publish("a", "m1", 1)
    found: dict[str, object] = {}
    query = ""
    while True:
        page = site("GET", f"/channel{query}").value
        for each in page["channels"]:
            found[each["channelID"]] = {row["subscriberID"]: row["lag"] for row in each["subscribers"]}
            assert each["expiresInMs"] > 1_000_000
        if "cursor" not in page:
            break
        query = f"?cursor={page['cursor']}"
    assert found == {"a": {"me": 1}, "b": {"you": 0}}
    assert [each["channelID"] for each in site("GET", "/channel?channel=b").value["channels"]] == ["b"]
    assert site("GET", "/channel?cursor=x").code == "tidelog.channels.invalid-input"
    assert site("GET", "/channel?channel=x.y").status == 400


def test_probes(site: HttpSite) -> None:
    for probe in ("liveness", "readiness"):
        reply = site("GET", f"/probe/{probe}")
        assert (reply.status, reply.value) == (200, {"storage": "ok"})


@pytest.mark.parametrize("path", ["/probe/liveness", "/probe/readiness", "/health", "/metrics", "/channels"])
def test_what_tells_how_it_goes_can_be_asked_with_head(site: HttpSite, path: str) -> None:
    reply = site("HEAD", path)
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0
    assert site("HEAD", polling("news", "me")).status == 405


def test_the_descriptions(site: HttpSite) -> None:
    described = site("GET", "/channels/openapi.json").value
    assert described["openapi"] == "3.1.0"
    assert {(row.template, row.method.lower()) for row in ROUTES} == {
        (path, method) for path, methods in described["paths"].items() for method in methods
    }
    page = site("GET", "/channels")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "/channel/{channelID}/messages" in page.body.decode()
    assert b"//" not in page.body.replace(b"http://", b"//")  # it loads nothing from anywhere


def test_admin_calls(site: HttpSite) -> None:
    path = "/admin/jwt/revoke?jti=abc&exp=4102444800"
    assert site("PUT", path).status == 401
    assert site("PUT", path, Authorization="Bearer wrong").status == 403
    admin = {"Authorization": f"Bearer {ADMIN}"}
    done = site("PUT", path, **admin)
    assert (done.status, done.value) == (200, {"jti": "abc", "exp": 4102444800})
    for bad in ("jti=abc", "exp=1", "jti=abc&exp=soon", "jti=abc&exp=-1", f"jti={'x' * 513}&exp=1"):
        assert site("PUT", f"/admin/jwt/revoke?{bad}", **admin).code == "tidelog.channels.invalid-input"
    assert site("PUT", "/admin/log/level?category=*&level=WARN", **admin).status == 204
    assert site("PUT", "/admin/log/level?category=*&level=LOUD", **admin).status == 400
    assert site("PUT", "/admin/log/level?category=none&level=WARN", **admin).status == 400


# --- errors ---------------------------------------------------------------------------------------------------------


def test_a_subscriber_that_is_not_there(site: HttpSite) -> None:
    for reply in (site("GET", polling("news", "me")), site("GET", polling("news", "me") + "?timeout=10s")):
        assert (reply.status, reply.code) == (404, "dsps.storage.subscription-not-found")
    site.subscribe("news", "me")
    site.publish("news", "a", 1)
    handle = site.fetch("news", "me")["ackHandle"]
    site("DELETE", polling("news", "me"))
    reply = site("DELETE", polling("news", "me") + f"/message?ackHandle={handle}")
    assert (reply.status, reply.code) == (404, "dsps.storage.subscription-not-found")


def test_handles_that_were_not_given_out(site: HttpSite) -> None:
    site.subscribe("news", "me")
    site.subscribe("news", "you")
    site.publish("news", "a", 1)
    handle = site.fetch("news", "me")["ackHandle"]
    for path in (
        polling("news", "you") + f"/message?ackHandle={handle}",
        polling("news", "me") + f"/message?ackHandle={handle[:-1]}",
        polling("news", "me") + "/message?ackHandle=%FF%00",
    ):
        reply = site("DELETE", path)
        assert (reply.status, reply.code) == (400, "dsps.storage.ack-handle-malformed")
    for query in ("", "?ackHandle=", "?other=1"):
        assert site("DELETE", polling("news", "me") + "/message" + query).status == 400


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_cannot_be(site: HttpSite, name: str) -> None:
    for method, path in (
        ("PUT", polling(name, "me")),
        ("PUT", polling("news", name)),
        ("GET", polling("news", name)),
        ("DELETE", polling("news", name)),
        ("DELETE", polling("news", name) + "/message?ackHandle=x"),
        ("PUT", f"/channel/{name}/message/a"),
        ("PUT", f"/channel/news/message/{name}"),
        ("POST", f"/channel/{name}/messages"),
    ):
        reply = site(method, path, b"1")
        assert (reply.status, reply.code) == (400, "tidelog.channels.invalid-input"), path


def test_bodies_that_cannot_be(site: HttpSite) -> None:
    for body in (b"", b"{", b"NaN", b"\xff", b"1 2", b"[" * 100_000):
        assert site("PUT", "/channel/news/message/a", body).code == "tidelog.channels.invalid-input"
    for body in (b"", b"{}", b"[]", b'[{"messageID":"a"}]', b'[{"messageID":"a b","content":1}]'):
        assert site("POST", "/channel/news/messages", body).code == "tidelog.channels.invalid-input"
    many = [{"messageID": f"m{n}", "content": n} for n in range(limits.CHANNEL_PUBLISH_MESSAGES_MAX + 1)]
    assert site("POST", "/channel/news/messages", json.dumps(many)).code == "tidelog.channels.limit-exceeded"


def test_bodies_that_are_compressed(site: HttpSite) -> None:
    body = gzip.compress(b"1")
    for method, path in (("PUT", "/channel/news/message/a"), ("POST", "/channel/news/messages")):
        for sent in (body, b"1"):
            reply = site(method, path, sent, Content_Encoding="gzip")
            assert (reply.status, reply.code) == (415, "tidelog.channels.unsupported-encoding")
            assert reply.headers["accept-encoding"] == "identity"
    assert site("PUT", "/channel/news/message/a", b"1", Content_Encoding="Identity").status == 200


def test_bodies_that_are_too_large(site: HttpSite) -> None:
    largest = b'"' + b"x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2) + b'"'
    assert site("PUT", "/channel/news/message/a", largest).status == 200
    reply = _sent_raw(site.port, "/channel/news/message/b", limits.CHANNEL_MESSAGE_BYTES_MAX + 1, b"1")
    assert reply.startswith(b"HTTP/1.1 413 ")  # without having read it
    assert b'"code":"tidelog.channels.too-large"' in reply
    chunk = b"%x\r\n%b\r\n" % (65536, b" " * 65536)
    reply = _sent_raw(site.port, "/channel/news/message/b", None, chunk * 20)
    assert reply.startswith(b"HTTP/1.1 413 ")
    four = b"[%b]" % b",".join(b'{"messageID":"m%d","content":%b}' % (n, largest) for n in range(5))
    assert site("POST", "/channel/news/messages", four[: limits.CHANNEL_LIST_BYTES_MAX + 1]).status == 413


def _sent_raw(port: int, path: str, length: int | None, body: bytes) -> bytes:
    """The beginning of the answer to a request that is never completed."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as link:
        kind = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        link.sendall(b"PUT %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n%b" % (path.encode(), kind, body))
        reply = b""
        while b"}" not in reply:
            more = link.recv(65536)
            if not more:
                break
            reply += more
        return reply


def test_paths_and_methods_that_are_not_there(site: HttpSite) -> None:
    for path in ("/channel/news", "/channel/news/", polling("news", "me") + "/", "/channels/x", "/probe/x", "/admin"):
        assert site("GET", path).status == 404, path
    assert site("GET", "/channel/news/nothing").code == "tidelog.channels.no-such-path"
    reply = site("POST", polling("news", "me"))
    assert (reply.status, reply.code) == (405, "tidelog.channels.no-such-method")
    assert reply.headers["allow"] == "PUT, DELETE, GET, OPTIONS"


def test_too_many_polls_of_a_subscriber(site: HttpSite) -> None:
    site.subscribe("news", "me")
    replies: list[HttpReply] = []

    def poll() -> None:
        poller = HttpSite(site.port)
        replies.append(poller("GET", polling("news", "me") + "?timeout=30s"))
        poller.close()

    threads = [threading.Thread(target=poll) for _ in range(limits.CHANNEL_POLLS_PER_SUBSCRIBER_MAX)]
    for thread in threads:
        thread.start()
    site.wait_for(WAITING, len(threads))
    reply = site("GET", polling("news", "me") + "?timeout=30s")
    assert (reply.status, reply.code) == (429, "tidelog.channels.too-many-polls")
    assert reply.headers["retry-after"] == "1"
    assert site.fetch("news", "me")["messages"] == []  # one that does not wait is fine
    site.publish("news", "a", 1)
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert [each.status for each in replies] == [200] * len(threads)


@pytest.mark.parametrize("behind", [b"", b"GET /probe/liveness HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_a_client_that_goes_away_frees_its_place(site: HttpSite, behind: bytes) -> None:
    site.subscribe("news", "me")
    gone = site.metric("tidelog_channels_polls_gone_total")
    with socket.create_connection(("127.0.0.1", site.port), timeout=SECONDS_MAX) as link:
        link.sendall(f"GET {polling('news', 'me')}?timeout=1h HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        site.wait_for(WAITING, 1)
        link.sendall(behind)
    site.wait_for(WAITING, 0)
    assert site.metric("tidelog_channels_polls_gone_total") == gone + 1


# --- around the calls -----------------------------------------------------------------------------------------------


def test_request_ids(site: HttpSite) -> None:
    assert site("GET", "/probe/liveness", X_Request_ID="abc-1").headers["x-request-id"] == "abc-1"
    one, two = (site("GET", "/nothing-here" if n else "/probe/liveness") for n in range(2))
    assert one.headers["x-request-id"]
    strange = site("GET", "/probe/liveness", X_Request_ID="a b\tc")
    assert strange.headers["x-request-id"] not in ("a b\tc", one.headers["x-request-id"])
    assert two.status == 404


def test_pages_of_other_sites(site: HttpSite) -> None:
    site.subscribe("news", "me")
    known = site("GET", polling("news", "me"), Origin="https://shop.example")
    assert known.headers["access-control-allow-origin"] == "https://shop.example"
    asked = site(
        "OPTIONS",
        polling("news", "me"),
        Origin="https://shop.example",
        Access_Control_Request_Method="DELETE",
        Access_Control_Request_Headers="authorization",
    )
    assert asked.status == 204
    assert "DELETE" in asked.headers["access-control-allow-methods"]
    assert "authorization" in asked.headers["access-control-allow-headers"]
    other = site("GET", polling("news", "me"), Origin="https://evil.example")
    assert (other.status, other.code) == (403, "tidelog.channels.forbidden")
    assert "access-control-allow-origin" not in other.headers
    assert site("GET", polling("news", "me"), Host="evil.example").status == 403


def test_numbers(site: HttpSite) -> None:
    site.subscribe("news", "me")
    before = site.metric("tidelog_channels_published_total"), site.metric("tidelog_channels_delivered_total")
    site.publish("news", "a", 1)
    site.publish("news", "a", 1)
    handle = site.fetch("news", "me")["ackHandle"]
    site.acknowledge("news", "me", handle)
    assert site.metric("tidelog_channels_published_total") == before[0] + 1
    assert site.metric("tidelog_channels_delivered_total") == before[1] + 1
    assert site.metric('tidelog_channels_requests_total{call="publish",status="200"}') >= 2
    assert site.metric('tidelog_channels_request_seconds_count{call="publish"}') >= 2
