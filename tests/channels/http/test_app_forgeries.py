"""Handles and tokens that were not issued, sent over HTTP: none is accepted, and none moves anything."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.channels.http.gateways import GatewayProcess, HttpServers, HttpSite, polling
from tests.channels.test_tokens import forged
from tests.channels.token_makers import KEYS, RULES, good_claims, token, write_keys

MALFORMED = (400, "dsps.storage.ack-handle-malformed")


def changed(text: str, rng: random.Random) -> set[str]:
    """Every bit of a text of base64url flipped, cuts, repeats, and letters at random."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    found = set()
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        found.add(base64.urlsafe_b64encode(flipped).decode().rstrip("="))
    for at in range(len(text)):
        found |= {
            text[:at],
            text[at:],
            text[:at] + rng.choice("AZaz09-_") + text[at + 1 :],
            text[:at] + "A" + text[at:],
        }
    found |= {text * 2, text.swapcase(), text[::-1], text + "=", text + "%00", "%20" + text}
    return found - {text, ""}


def test_no_handle_that_was_not_given_out_is_accepted(site: HttpSite) -> None:
    rng = random.Random(1)
    for channel, subscriber in (("news", "me"), ("news", "you"), ("other", "me")):
        site.subscribe(channel, subscriber)
    for channel in ("news", "other"):
        site.publish(channel, "a", 1)
        site.publish(channel, "b", 2)
    handle = site.fetch("news", "me")["ackHandle"]
    foreign = {site.fetch("news", "you")["ackHandle"], site.fetch("other", "me")["ackHandle"]}
    wrong = changed(handle, rng) | foreign
    assert len(wrong) > 300
    for each in sorted(wrong):
        reply = site("DELETE", f"{polling('news', 'me')}/message?ackHandle={each}")
        assert (reply.status, reply.code) == MALFORMED, each
    for each in rng.sample(sorted(wrong), 30):
        if "%" not in each:
            reply = site("GET", polling("news", "me"), Accept="text/event-stream", Last_Event_ID=each)
            assert (reply.status, reply.code) == MALFORMED, each
    assert len(site.fetch("news", "me")["messages"]) == 2
    site.acknowledge("news", "me", handle)


@pytest.fixture
def guarded(tmp_path: Path, http_servers: HttpServers) -> Iterator[HttpSite]:
    """A gateway whose channels `chat-<id>` need tokens of three kinds of keys."""
    http_servers.redis.client.flushall()
    write_keys(tmp_path)
    (tmp_path / "rules.toml").write_text(RULES)
    with GatewayProcess(tmp_path, http_servers.redis.url, "--rules", str(tmp_path / "rules.toml")) as gateway:
        yield gateway.site()


def test_no_token_that_was_not_issued_is_accepted(guarded: HttpSite) -> None:
    rng = random.Random(1)
    claims = good_claims(exp=int(time.time()) + 600)
    for algorithm, key in KEYS.items():
        issued = token(algorithm, key(), claims)
        allowed = HttpSite(guarded.port, Authorization=f"Bearer {issued}")
        assert allowed("PUT", polling("chat-7", "me")).status == 200
        assert allowed("PUT", polling("chat-8", "me")).status == 403
        head, payload, proof = issued.split(".")
        pieces = [(changed(part, rng), at) for at, part in enumerate((head, payload, proof))]
        wrong = [
            ".".join([*(head, payload, proof)[:at], each, *(head, payload, proof)[at + 1 :]])
            for found, at in pieces
            for each in rng.sample(sorted(found), 60)
            if "%" not in each
        ]
        assert_refused(guarded, wrong)
    # Spaces around a token are none of it, and some texts cannot be in a header.
    sent = [text for text in forged(claims) if text == text.strip() and text.isascii() and text.isprintable()]
    assert_refused(guarded, sent)


def assert_refused(site: HttpSite, tokens: list[str]) -> None:
    assert len(tokens) > 30
    for text in tokens:
        reply = site("PUT", polling("chat-7", "me"), Authorization=f"Bearer {text}")
        if len(text) < 50_000:
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), text
            assert reply.code == "dsps.auth.rejected"
        else:
            assert reply.status in (400, 401)  # the headers are too large
