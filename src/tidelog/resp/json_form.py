"""Decoded values as JSON has them.

Bytes are a string if they are UTF-8, and otherwise `{"base64": "..."}`: nothing is lost, and neither can be taken for
the other. A large string is encoded in pieces, so that neither memory nor time depends on its size.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

_PIECE_BYTES: Final = 96 * 1024
"""Of a large string that are encoded at a time: a multiple of 3, which base64 takes together."""
_LOOKED_AT_ONCE_BYTES: Final = 1024 * 1024


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


def string_pieces(read: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    """A large string as JSON, in pieces; an empty one only says that some work is done. `read(at, size)` gives bytes.

    All of it is looked at before the first piece, because whether it is UTF-8 decides what it becomes.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_text = True
    try:
        for at in range(0, size, _LOOKED_AT_ONCE_BYTES):
            decoder.decode(read(at, _LOOKED_AT_ONCE_BYTES), at + _LOOKED_AT_ONCE_BYTES >= size)
            yield b""
    except UnicodeDecodeError:
        is_text = False
    yield b'"' if is_text else b'{"base64":"'
    decoder.reset()
    for at in range(0, size, _PIECE_BYTES):
        data = read(at, _PIECE_BYTES)
        yield (
            json.dumps(decoder.decode(data), ensure_ascii=False)[1:-1].encode() if is_text else base64.b64encode(data)
        )
    yield b'"' if is_text else b'"}'
