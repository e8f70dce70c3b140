"""What a call answers: a status, a body and perhaps headers; and which answer an error becomes.

    {"error": "<for people>", "code": "<for programs>"}

    400   the request cannot be understood, or a number, a name or a handle in it cannot be
    401   a token or a password is missing, or not valid (any more)
    403   no rule is for this channel, or the token is not for it
    404   there is no such path, or no such subscriber (any more)
    405   the path has no such method
    413   the body is too large
    415   the body is compressed
    429   too many polls wait, or too many large bodies are under way
    500   a bug of ours
    503   the backend does not answer, or too few replicas have the message: the same request may be sent again

An error of the backend is told in general words: its text may name hosts and keys that are nobody's business. The
whole text goes to the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.channels.message import ChannelMessage
from tidelog.errors import (
    AckHandleMalformed,
    BadChannelInput,
    ChannelError,
    ChannelTokenMissing,
    ChannelTokenRefused,
    EnvironmentFault,
    InvalidChannel,
    LimitExceeded,
    MessageTooLarge,
    NotConfirmed,
    SubscriptionNotFound,
    TidelogError,
)

JSON: Final = b"application/json"

HeaderPair = tuple[bytes, bytes]


class Answer(NamedTuple):
    """An answer that is sent as a whole."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[HeaderPair, ...] = ()


NO_CONTENT: Final = Answer(204)

_STATUS: Final[dict[type, int]] = {
    InvalidChannel: 403,
    SubscriptionNotFound: 404,
    AckHandleMalformed: 400,
    BadChannelInput: 400,
    ChannelTokenMissing: 401,
    ChannelTokenRefused: 403,
}
_ACCEPTED: Final = ((b"accept-encoding", b"identity"),)
_RETRY_AFTER: Final = ((b"retry-after", b"%d" % limits.CHANNEL_RETRY_AFTER_S),)
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


class ComeBackLater(ChannelError):
    """There is too much of something at the moment."""


class TooManyPolls(ComeBackLater):
    """So many polls wait that there is no place for another."""

    code = "tidelog.channels.too-many-polls"


class BodyEncoded(ChannelError):
    """A body came compressed, or encoded in another way."""

    code = "tidelog.channels.unsupported-encoding"


ERROR_CODES: Final[Mapping[str, tuple[int, ...]]] = {
    "dsps.storage.invalid-channel": (403,),
    "dsps.storage.subscription-not-found": (404,),
    "dsps.storage.ack-handle-malformed": (400,),
    "dsps.auth.rejected": (401, 403, 429),
    "tidelog.channels.invalid-input": (400,),
    "tidelog.channels.limit-exceeded": (400,),
    "tidelog.channels.unauthorized": (401, 429),
    "tidelog.channels.forbidden": (403,),
    "tidelog.channels.no-such-path": (404,),
    "tidelog.channels.no-such-method": (405,),
    "tidelog.channels.too-large": (413,),
    "tidelog.channels.unsupported-encoding": (415,),
    "tidelog.channels.too-many-polls": (429,),
    "tidelog.channels.too-many-bytes": (429,),
    "tidelog.channels.internal": (500,),
    "tidelog.channels.not-confirmed": (503,),
    "tidelog.channels.backend-unavailable": (503,),
}
"""All codes and the statuses that they come with, for those who describe them."""


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def message_json(message: ChannelMessage) -> bytes:
    """A message as it is sent. Hot."""
    return b'{"messageID":"%b","content":%b}' % (message.id.encode(), message.content)


def error_answer(status: int, error: str, code: str, headers: tuple[HeaderPair, ...] = ()) -> Answer:
    return json_answer({"error": error, "code": code}, status)._replace(headers=headers)


def answer_to(error: TidelogError) -> Answer:
    """The answer that an error becomes. `EnvironmentFault` is told in general words."""
    if isinstance(error, ComeBackLater):
        return error_answer(429, str(error), error.code, _RETRY_AFTER)
    if isinstance(error, BodyEncoded):
        return error_answer(415, str(error), error.code, _ACCEPTED)
    if isinstance(error, ChannelError):
        headers = _CHALLENGE if isinstance(error, ChannelTokenMissing) else ()
        status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 400)
        return error_answer(status, str(error), error.code, headers)
    if isinstance(error, MessageTooLarge):
        return error_answer(413, str(error), "tidelog.channels.too-large")
    if isinstance(error, LimitExceeded):
        return error_answer(400, str(error), "tidelog.channels.limit-exceeded")
    if isinstance(error, NotConfirmed):
        return error_answer(503, str(error), "tidelog.channels.not-confirmed", _RETRY_AFTER)
    if isinstance(error, EnvironmentFault):
        text = "the backend of the channels does not answer: send the same request again in a moment"
        return error_answer(503, text, "tidelog.channels.backend-unavailable", _RETRY_AFTER)
    return INTERNAL


INTERNAL: Final = error_answer(500, "something went wrong here: the log says what", "tidelog.channels.internal")
