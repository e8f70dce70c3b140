"""Messages as server-sent events, read as a browser reads them: over a real connection, line by line."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.channels.http.gateways import SECONDS_MAX, HttpSite, polling
from tests.integration.limited_server import COMMAND
from tests.integration.server_process import ServerProcess
from tidelog.channels.http.answer import TooManyPolls, answer_to
from tidelog.channels.http.event_stream import events_of, put_off
from tidelog.channels.message import ChannelMessage
from tidelog.errors import ServerRefused, SubscriptionNotFound, TidelogError


class ServerEvent(NamedTuple):
    """An event, with the id that a browser would send if it connected again after it."""

    kind: str
    value: Any
    last_id: str


class EventSource:
    """What a browser does with a stream."""

    def __init__(self, port: int, path: str, last_id: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        self._connection.request("GET", path, headers=headers)
        self.reply = self._connection.getresponse()
        self.last_id = last_id

    def events(self) -> Iterator[ServerEvent]:
        kind, data, noted = "message", "", self.last_id
        for line in self.reply:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                noted = value
            elif name == "data":
                data += value
            elif name == "event":
                kind = value
            elif not name and not value:
                self.last_id = noted
                if data:
                    yield ServerEvent(kind, json.loads(data), noted)
                kind, data = "message", ""

    def take(self, count: int) -> list[ServerEvent]:
        events = self.events()
        return [next(events) for _ in range(count)]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def event_source(port: int, channel: str, subscriber: str, last_id: str = "", query: str = "") -> Iterator[EventSource]:
    made = EventSource(port, polling(channel, subscriber) + query, last_id)
    yield made
    made.close()


def test_messages_come_as_events_and_the_last_id_acknowledges(site: HttpSite) -> None:
    site.subscribe("news", "me")
    site.publish("news", "a", {"text": "hello!"})
    site.publish("news", "b", "two\nlines")
    with event_source(site.port, "news", "me") as source:
        assert source.reply.status == 200
        assert source.reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        first, second = source.take(2)
        assert first.value == {"messageID": "a", "content": {"text": "hello!"}}
        assert (first.last_id, second.value["content"]) == ("", "two\nlines")
        site.publish("news", "c", 3)  # while it is open, without an acknowledgement
        [third] = source.take(1)
        assert third.value["content"] == 3
    assert len(site.fetch("news", "me")["messages"]) == 3  # nothing was acknowledged
    with event_source(site.port, "news", "me", second.last_id) as source:
        [again] = source.take(1)
        assert again.value["content"] == 3
    assert len(site.fetch("news", "me")["messages"]) == 1


def test_a_stream_reads_on_behind_what_it_sent(site: HttpSite) -> None:
    site.subscribe("news", "me")
    for number in range(10):
        site.publish("news", f"m{number}", number)
    with event_source(site.port, "news", "me", query="?max=3") as source:
        events = source.take(10)
    assert [each.value["content"] for each in events] == list(range(10))
    assert [bool(each.last_id) for each in events[:3]] == [False, False, True]
    site.acknowledge("news", "me", events[5].last_id)
    assert site.fetch("news", "me")["messages"][0]["content"] == 6


def test_what_is_wrong_is_a_plain_error(site: HttpSite) -> None:
    stream = {"Accept": "text/event-stream"}
    reply = site("GET", polling("news", "me"), **stream)
    assert (reply.status, reply.code) == (404, "dsps.storage.subscription-not-found")
    site.subscribe("news", "me")
    reply = site("GET", polling("news", "me"), Last_Event_ID="x", **stream)
    assert (reply.status, reply.code) == (400, "dsps.storage.ack-handle-malformed")


@pytest.mark.parametrize("error", [ServerRefused("LOADING"), TooManyPolls("x")])
def test_what_passes_by_itself_is_told_in_a_stream_for_which_a_browser_comes_back(error: TidelogError) -> None:
    plain = answer_to(error)
    told = put_off(plain)
    assert (told.status, told.content_type) == (200, b"text/event-stream; charset=utf-8")
    assert told.body == b"retry: 1000\n\nevent: error\ndata: %b\n\n" % plain.body
    assert (b"retry-after", b"1") in told.headers


def test_what_stays_wrong_is_not_put_off() -> None:
    plain = answer_to(SubscriptionNotFound("x"))
    assert put_off(plain) is plain


def test_a_subscriber_that_is_removed_ends_its_stream(site: HttpSite) -> None:
    site.subscribe("news", "me")
    with event_source(site.port, "news", "me") as source:
        site.wait_for("tidelog_channels_polls_waiting", 1)
        site("DELETE", polling("news", "me"))
        site.publish("news", "a", 1)
        [event] = source.take(1)
        assert (event.kind, event.value["code"]) == ("error", "dsps.storage.subscription-not-found")
        assert source.reply.read() == b""


def test_a_reader_that_goes_away_frees_its_place(site: HttpSite) -> None:
    site.subscribe("news", "me")
    with event_source(site.port, "news", "me"):
        site.wait_for("tidelog_channels_polls_waiting", 1)
    site.wait_for("tidelog_channels_polls_waiting", 0)


@pytest.mark.long
def test_a_stream_ends_so_that_its_reader_acknowledges_and_keeps_its_subscriber(tmp_path: Path) -> None:
    bounds = {"CHANNEL_STREAM_SILENT_S": 0.1, "CHANNEL_STREAM_UNACKNOWLEDGED_S": 0.3}
    command = [*COMMAND, json.dumps(bounds), "serve"]
    with ServerProcess(tmp_path / "data", "--channel-expire", "1s", has_http=True, command=command) as server:
        site = HttpSite(server.http_port)
        site.subscribe("news", "me")
        with event_source(site.port, "news", "me") as source:
            time.sleep(1.5)  # it would have expired
            site.publish("news", "a", 1)
            [event] = source.events()
            assert event.value["content"] == 1
        with event_source(site.port, "news", "me", source.last_id) as source:
            lines = [source.reply.readline() for _ in range(3)]
            assert lines == [b"retry: 500\n", b"\n", b": still here\n"]
        assert site.fetch("news", "me")["messages"] == []


def test_the_bytes_of_events() -> None:
    messages = [ChannelMessage("a", b'{\r\n"b": 1}'), ChannelMessage("c", b"2")]
    assert events_of(messages, "HANDLE") == (
        b'data: {"messageID":"a","content":{  "b": 1}}\n\nid: HANDLE\ndata: {"messageID":"c","content":2}\n\n'
    )
    assert events_of([], "HANDLE") == b"id: HANDLE\n\n"
