"""Signatures, by which a receiver knows that a request came from here, for which message, and when.

    Tidelog-Timestamp: 1767225600
    Tidelog-Signature: v1=5f2b...e1, v1=90ac...77

A signature is the HMAC-SHA256, in hex, over these bytes:

    <timestamp> . <channel> . <message id> . <body>

which are the headers `Tidelog-Timestamp`, `Tidelog-Channel` and `Tidelog-Message-Id` and the body as it came, with dots
between them (without the spaces; names have no dots, so there is one way to read them). There is one signature for each
secret that is configured: to change a secret, add the new one, let receivers take it, then remove the old one.

A receiver should refuse a timestamp that is more than some minutes off, and compare in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence


def signature(secret: bytes, timestamp_s: int, channel: str, message_id: str, body: bytes) -> str:
    signed = b"%d.%b.%b.%b" % (timestamp_s, channel.encode(), message_id.encode(), body)
    return hmac.digest(secret, signed, "sha256").hex()


def signature_header(secrets: Sequence[bytes], timestamp_s: int, channel: str, message_id: str, body: bytes) -> str:
    return ", ".join(f"v1={signature(secret, timestamp_s, channel, message_id, body)}" for secret in secrets)
