"""Requests of webhooks: templates that are filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.webhooks.receivers import webhook_rules
from tidelog.channels import ChannelMessage, message_of
from tidelog.channels.names import is_webhook_subscriber
from tidelog.channels.webhooks.dead_letter import dead_letter
from tidelog.channels.webhooks.webhook_rule import WebhookUse


def use_of(folder: Path, rest: str = "", **options: str) -> WebhookUse:
    [use] = webhook_rules(folder, 1, rest, **options).match("chat-7").webhooks
    return use


def test_by_default_the_content_is_the_body(tmp_path: Path) -> None:
    request = use_of(tmp_path).filled(ChannelMessage("m1", b'{"a": 1.00}'))
    assert (request.url, request.body) == ("http://127.0.0.1:1/rooms/7", b'{"a": 1.00}')


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ("a \"b\"", b'chat-7 7 m1 a "b" "a \\"b\\""'),
        ({"a": [1]}, b'chat-7 7 m1 {"a":[1]} {"a":[1]}'),
        ("é", 'chat-7 7 m1 é "é"'.encode()),
    ],
)  # fmt: skip
def test_bodies(value: object, body: bytes, tmp_path: Path) -> None:
    use = use_of(tmp_path, "body = '{channel} {channel.id} {message.id} {message.content} {message.content_json}'")
    assert use.filled(message_of("m1", value)).body == body


def test_half_of_a_pair_can_be_sent(tmp_path: Path) -> None:
    use = use_of(tmp_path, "body = '{message.content}'")
    assert use.filled(ChannelMessage("m1", b'"\\ud83d"')).body == b"?"


def test_parts_of_urls_are_encoded(tmp_path: Path) -> None:
    use = use_of(tmp_path, url="https://h/{message.content}/x?q={message.content}")
    assert use.filled(message_of("m1", "../a?b")).url == "https://h/..%2Fa%3Fb/x?q=..%2Fa%3Fb"
    assert use.filled(message_of("m1", "..")).url == "https://h/%2E%2E/x?q=%2E%2E"
    with pytest.raises(ValueError, match="more than 8192 characters"):
        use.filled(message_of("m1", "a" * 9000))


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    rest = "secret-files = ['secret']\n[channels.webhooks.headers]\nAuthorization = 'Bearer hidden'"
    use = use_of(tmp_path, rest)
    shown = repr(use.webhook) + repr(use.filled(message_of("m1", "hidden")))
    assert "hidden" not in shown
    assert "s" * 32 not in shown


def test_a_dead_letter_has_what_is_known(tmp_path: Path) -> None:
    use = use_of(tmp_path)
    letter = dead_letter(use, ChannelMessage("m1", b"[1.0]"), attempts=3, reason="status 500")
    assert letter.value == {
        "webhook": "hook",
        "channelID": "chat-7",
        "messageID": "m1",
        "attempts": 3,
        "reason": "status 500",
        "content": [1.0],
    }
    assert letter.content.endswith(b'"content":[1.0]}')
    assert letter.id == dead_letter(use, ChannelMessage("m1", b"2"), attempts=1, reason="x").id
    assert letter.id != dead_letter(use, ChannelMessage("m2", b"2"), attempts=1, reason="x").id


def test_subscribers_of_webhooks_are_known_by_their_names(tmp_path: Path) -> None:
    assert is_webhook_subscriber(use_of(tmp_path).webhook.subscriber)
    assert not is_webhook_subscriber("me")
