"""Signatures: what they are made of."""

from __future__ import annotations

import hashlib
import hmac

from tidelog.channels.webhooks.signature import signature, signature_header

SECRETS = (b"s" * 32, b"t" * 32)


def test_a_signature_is_over_time_names_and_body() -> None:
    expected = hmac.new(SECRETS[0], b"17.chat-7.m1.{}", hashlib.sha256).hexdigest()
    assert signature(SECRETS[0], 17, "chat-7", "m1", b"{}") == expected
    changed = [
        (17, "chat-7", "m1", b"{ }"),
        (18, "chat-7", "m1", b"{}"),
        (17, "chat-8", "m1", b"{}"),
        (17, "chat-7", "m2", b"{}"),
    ]
    assert all(signature(SECRETS[0], *each) != expected for each in changed)
    assert signature(SECRETS[1], 17, "chat-7", "m1", b"{}") != expected


def test_every_secret_signs() -> None:
    header = signature_header(SECRETS, 17, "c", "m", b"x")
    assert header.split(", ") == [f"v1={signature(secret, 17, 'c', 'm', b'x')}" for secret in SECRETS]
