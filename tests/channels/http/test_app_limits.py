"""The bounds of names, numbers and durations over HTTP: what is just allowed, and what is just not."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest

from tests.channels.http.gateways import HttpSite, polling
from tidelog import limits

INVALID: Final = (400, "tidelog.channels.invalid-input")
EXCEEDED: Final = (400, "tidelog.channels.limit-exceeded")
NAMES: Final = ("a", "Z", "0", "9-", "A_", "a" * 63, "0" + "_-" * 31, "CamelCase-and_snake_42")


@pytest.mark.parametrize("name", NAMES)
def test_names_at_their_bounds(site: HttpSite, name: str) -> None:
    site.subscribe(name, name)
    site.publish(name, name, name)
    found = site.fetch(name, name)
    assert (found["channelID"], found["messages"]) == (name, [{"messageID": name, "content": name}])
    site.acknowledge(name, name, found["ackHandle"])
    assert site("POST", f"/channel/{name}/messages", f'[{{"messageID":"{name}","content":1}}]').status == 200
    assert [each["channelID"] for each in site("GET", f"/channel?channel={name}").value["channels"]] == [name]
    assert site("DELETE", polling(name, name)).status == 200


COUNTS: Final = ("0", "-1", "+1", "1.0", "1e2", "\u0663", "", "9" * 5000, "1 ", "0x1")
"""None of them is a count that is allowed; one is a digit, but an Arabic one."""
WAITS: Final = ("0", "0s", "1h", "60m", "3600s", "1ns", "0.5h30m", "1h0ns", ".5s")
LONG_WAITS: Final = ("1h1s", "3600.1s", "61m", "2h", "999999999999999999h")
NO_WAITS: Final = (
    *("30", "-1s", "-0s", "1e9s", "\u0663s", "", "s", "1", "1 s", "1S", "inf", "NaN", "1h" * 40, "1s\n", "1d", "1h-1s"),
)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("max=1", None),
        ("max=0001", None),
        (f"max={limits.CHANNEL_FETCH_MESSAGES_MAX}", None),
        (f"max={limits.CHANNEL_FETCH_MESSAGES_MAX + 1}", EXCEEDED),
        *((f"max={quote(text)}", EXCEEDED) for text in COUNTS),
        *((f"timeout={quote(text)}", None) for text in WAITS),
        *((f"timeout={quote(text)}", EXCEEDED) for text in LONG_WAITS),
        *((f"timeout={quote(text)}", INVALID) for text in NO_WAITS),
        ("timeout=1s&timeout=x", None),  # the first counts
        ("max=1;timeout=x", EXCEEDED),
        ("&".join(f"x{number}" for number in range(limits.CHANNEL_QUERY_FIELDS_MAX)), None),
        ("&".join(f"x{number}" for number in range(limits.CHANNEL_QUERY_FIELDS_MAX + 1)), INVALID),
        ("%ff%00=%ff", None),
    ],
)
def test_numbers_and_durations_at_their_bounds(site: HttpSite, query: str, told: tuple[int, str] | None) -> None:
    site.subscribe("news", "me")
    site.publish("news", "a", 1)  # so that nothing waits
    reply = site("GET", f"{polling('news', 'me')}?{query}")
    if told is None:
        assert (reply.status, len(reply.value["messages"])) == (200, 1)
    else:
        assert (reply.status, reply.code) == told


def test_bodies_at_their_bounds(site: HttpSite) -> None:
    site.subscribe("news", "me")
    largest = b'"%b"' % (b"x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2))
    assert site("PUT", "/channel/news/message/a", largest).status == 200
    reply = site("PUT", "/channel/news/message/b", largest + b" ")
    assert (reply.status, reply.code) == (413, "tidelog.channels.too-large")
    reply = site("POST", "/channel/news/messages", b'[{"messageID":"c","content":%b }]' % (largest[:-1] + b'x"'))
    assert (reply.status, reply.code) == (413, "tidelog.channels.too-large")
    at_once = limits.CHANNEL_PUBLISH_MESSAGES_MAX
    rows = [b'{"messageID":"m%d","content":%d}' % (number, number) for number in range(at_once + 1)]
    assert site("POST", "/channel/news/messages", b"[%b]" % b",".join(rows[:-1])).status == 200
    reply = site("POST", "/channel/news/messages", b"[%b]" % b",".join(rows))
    assert (reply.status, reply.code) == EXCEEDED
    quarter = limits.CHANNEL_PUBLISH_BYTES_MAX // 4
    large = [b'{"messageID":"l%d","content":"%b"}' % (number, b"y" * (quarter - 60)) for number in range(5)]
    assert site("POST", "/channel/news/messages", b"[%b]" % b",".join(large[:4])).status == 200
    reply = site("POST", "/channel/news/messages", b"[%b]" % b",".join(large))
    assert (reply.status, reply.code) == (413, "tidelog.channels.too-large")
    assert [each["messageID"] for each in site.fetch("news", "me", max=1)["messages"]] == ["a"]


@pytest.mark.parametrize(
    "content",
    [
        b'{"a":1,"a":2}',
        b"1e400",
        b"-0",
        b"-0.0",
        b"1" + b"0" * 5000,
        b"0.1000000000000000055511151231257827",
        b'"\\ud800"',
        b'"\\u0000\\u2028"',
        '"\u2028\U0001f30a"'.encode(),
        b"[" * 500 + b"]" * 500,
        b'{"z":1,\r\n\t"a":2}',
        b"[]",
        b'""',
    ],
)
def test_content_comes_out_as_it_went_in(site: HttpSite, content: bytes) -> None:
    site.subscribe("news", "me")
    assert site("PUT", "/channel/news/message/a", content).status == 200
    body = b'[{"messageID":"b","content":%b}]' % content
    assert site("POST", "/channel/news/messages", body).status == 200
    found = site("GET", polling("news", "me")).body
    for message_id in (b"a", b"b"):
        assert b'{"messageID":"%b","content":%b}' % (message_id, content) in found


@pytest.mark.parametrize(
    "content",
    [
        *(b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"01", b"1.", b".5", b"+1", b"0x1", b"1_0"),
        *(b"[1,]", b'{"a":1,}', b"'a'", b"nul", b"True", b"1 2", b"1//", b"{", b"", b" ", b"[" * 100_000),
        *(b"\xef\xbb\xbf1", b"\x0b1", b"\xa01", b"\xc2\xa01", b'"\t"', b'"\x00"', b"\x1f\x8b\x08\x00"),
        *(b'"\\x"', b'"\\u12"', b'"\xed\xa0\x80"', b'"\xff"', '"a"'.encode("utf-16")),
    ],
)
def test_content_that_is_not_json_is_refused(site: HttpSite, content: bytes) -> None:
    reply = site("PUT", "/channel/news/message/a", content)
    assert (reply.status, reply.code) == INVALID
    reply = site("POST", "/channel/news/messages", b'[{"messageID":"a","content":%b}]' % content)
    assert (reply.status, reply.code) == INVALID
