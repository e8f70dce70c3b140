"""Templates: places, names that there are not, and values in URLs."""

from __future__ import annotations

import pytest

from tidelog.channels.templates import MESSAGE_NAMES, TextTemplate, channel_names, channel_values, in_url

NAMES = channel_names({"id", "room"}) | MESSAGE_NAMES


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{channel}/{channel.room}", "chat-7/7"),
        ('{"text": {message.content}}', '{"text": hello}'),
        ("{}{ }{{message.id}}", "{}{ }{m1}"),
        ('{"a":{"b":"{channel.room}"}}', '{"a":{"b":"7"}}'),
    ],
)
def test_places_are_filled(text: str, filled: str) -> None:
    values = channel_values("chat-7", {"room": "7", "id": None})
    assert TextTemplate(text, NAMES).fill({**values, "message.id": "m1", "message.content": "hello"}) == filled


def test_a_name_that_there_is_not_is_told() -> None:
    with pytest.raises(ValueError, match=r"uses \{mesage.id\}, which there is not \(there are \{channel\}, "):
        TextTemplate("{mesage.id}", NAMES)


def test_what_took_no_part_in_the_match_leaves_no_text() -> None:
    template = TextTemplate("{channel.id}", NAMES)
    assert template.fill(channel_values("chat-7", {"id": None})) is None
    assert template.fill(channel_values("chat-7", {"id": "7"})) == "7"
    assert template.fill(channel_values("chat-7", {})) == "chat-7"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("a b/c?d&e#f%", "a%20b%2Fc%3Fd%26e%23f%25"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("a.b", "a.b"),
        ("é\r\n", "%C3%A9%0D%0A"),
    ],
)
def test_values_in_urls(value: str, encoded: str) -> None:
    assert in_url(value) == encoded
