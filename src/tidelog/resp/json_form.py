"""Decoded values as JSON has them.

Bytes are a string if they are UTF-8, and otherwise `{"base64": "..."}`: nothing is lost, and neither can be taken for
the other.
"""

from __future__ import annotations

import base64
from typing import Any


def bytes_to_json(data: bytes) -> str | dict[str, str]:
    """A string if the bytes are UTF-8, otherwise `{"base64": ...}`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def reply_to_json(reply: Any) -> Any:
    """A reply, or a part of one: arrays as lists, bytes as the module says."""
    if isinstance(reply, bytes):
        return bytes_to_json(reply)
    return [reply_to_json(part) for part in reply] if isinstance(reply, list) else reply
